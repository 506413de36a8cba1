//! Possessions of two machines besides their own: the wire, a disk that both
//! reach, and the power switch of the second one.

use super::reset::ResetSwitch;
use super::wire::{Host, Wire};
use std::fs;
use std::io;
use std::path::PathBuf;

/// Size of the disk; a sparse file.
const DISK_BYTES: u64 = 6 << 30;
/// Serial number of the disk: `/dev/disk/by-id/virtio-shared` in both machines.
const DISK_SERIAL: &str = "shared";

/// Two machines' common things, removed on drop.
#[derive(Debug)]
pub(crate) struct Pair {
    wire: Wire,
    dir: tempfile::TempDir,
}

impl Pair {
    /// Creates wire and disk.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn new() -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("zgate-lab-pair-").tempdir()?;
        let pair = Self { wire: Wire::new()?, dir };
        fs::File::create(pair.disk())?.set_len(DISK_BYTES)?;
        Ok(pair)
    }

    fn disk(&self) -> PathBuf {
        self.dir.path().join("shared.img")
    }

    fn monitor(&self) -> PathBuf {
        self.dir.path().join("monitor")
    }

    /// Starts to execute the orders that machines leave in a directory.
    pub(crate) fn switch(&self, orders: PathBuf) -> ResetSwitch {
        ResetSwitch::new(orders, self.monitor())
    }

    /// Returns the emulator's arguments for one of the machines.
    pub(crate) fn arguments(&self, host: Host) -> Vec<String> {
        let mut arguments = self.wire.arguments(host).to_vec();
        // Both emulators use the page cache of the host, so that each reads what
        // the other one wrote. A reset of a machine takes nothing from it, as a
        // reset of a server takes nothing from its disks.
        arguments.extend([
            "-drive".to_owned(),
            format!(
                "file={},if=none,id=shared,format=raw,cache=unsafe,file.locking=off,\
                 discard=unmap,detect-zeroes=off",
                self.disk().display()
            ),
            "-device".to_owned(),
            format!("virtio-blk-pci,drive=shared,share-rw=on,serial={DISK_SERIAL}"),
        ]);
        if host == Host::B {
            let monitor = self.monitor();
            arguments.extend([
                "-qmp".to_owned(),
                format!("unix:{},server=on,wait=off", monitor.display()),
            ]);
        }
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_machines_have_one_disk_and_only_the_second_can_be_reset() {
        let pair = Pair::new().unwrap();
        let [a, b] = [Host::A, Host::B].map(|host| pair.arguments(host));
        let drive = |all: &[String]| all.iter().find(|one| one.contains("shared.img")).cloned();
        assert!(drive(&a).is_some());
        assert_eq!(drive(&a), drive(&b));
        assert!(!a.contains(&"-qmp".to_owned()) && b.contains(&"-qmp".to_owned()));
    }
}
