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

/// PCI slot of the disk: behind all others, or the emulator puts it before the
/// disks without a slot of their own, whose names follow from their order.
const DISK_SLOT: &str = "0x1e";

/// Two machines' common things, removed on drop.
#[derive(Debug)]
pub(crate) struct Pair {
    wire: Wire,
    /// Directory of the disk and of the switch; none if no scenario needs them.
    shared: Option<tempfile::TempDir>,
}

impl Pair {
    /// Creates the wire, and the disk if it is wanted.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn new(shares_disk: bool) -> io::Result<Self> {
        let dir = || tempfile::Builder::new().prefix("zgate-lab-pair-").tempdir();
        let shared = shares_disk.then(dir).transpose()?;
        if let Some(dir) = &shared {
            fs::File::create(disk(dir))?.set_len(DISK_BYTES)?;
        }
        Ok(Self { wire: Wire::new()?, shared })
    }

    /// Starts to execute the orders that machines leave in a directory.
    pub(crate) fn switch(&self, orders: PathBuf) -> Option<ResetSwitch> {
        self.shared.as_ref().map(|dir| ResetSwitch::new(orders, monitor(dir)))
    }

    /// Returns the emulator's arguments that connect a machine to the wire.
    pub(crate) fn wire(&self, host: Host) -> [String; 4] {
        self.wire.arguments(host)
    }

    /// Returns its arguments for the disk and the switch; none if they are not
    /// wanted.
    pub(crate) fn shared(&self, host: Host) -> Vec<String> {
        let Some(dir) = &self.shared else { return Vec::new() };
        // Both emulators use the page cache of the host, so that each reads what
        // the other one wrote. A reset of a machine takes nothing from it, as a
        // reset of a server takes nothing from its disks.
        let mut arguments = vec![
            "-drive".to_owned(),
            format!(
                "file={},if=none,id=shared,format=raw,cache=unsafe,file.locking=off,\
                 discard=unmap,detect-zeroes=off",
                disk(dir).display()
            ),
            "-device".to_owned(),
            format!(
                "virtio-blk-pci,drive=shared,share-rw=on,serial={DISK_SERIAL},addr={DISK_SLOT}"
            ),
        ];
        if host == Host::B {
            arguments.extend([
                "-qmp".to_owned(),
                format!("unix:{},server=on,wait=off", monitor(dir).display()),
            ]);
        }
        arguments
    }
}

fn disk(dir: &tempfile::TempDir) -> PathBuf {
    dir.path().join("shared.img")
}

fn monitor(dir: &tempfile::TempDir) -> PathBuf {
    dir.path().join("monitor")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_machines_have_one_disk_and_only_the_second_can_be_reset() {
        let pair = Pair::new(true).unwrap();
        let [a, b] = [Host::A, Host::B].map(|host| pair.shared(host));
        let drive = |all: &[String]| all.iter().find(|one| one.contains("shared.img")).cloned();
        assert!(drive(&a).is_some());
        assert_eq!(drive(&a), drive(&b));
        assert!(!a.contains(&"-qmp".to_owned()) && b.contains(&"-qmp".to_owned()));
    }

    #[test]
    fn scenarios_that_do_not_ask_for_the_disk_have_the_wire_alone() {
        let pair = Pair::new(false).unwrap();
        assert!(pair.shared(Host::A).is_empty() && pair.shared(Host::B).is_empty());
        assert!(pair.switch(PathBuf::from("orders")).is_none());
    }
}
