//! Exclusive use of a device or file, and the name of its other user.

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;
use zgate_io::mountinfo::{self, MountLine};

/// Time for which an exclusive open is retried: udev locks a device while it
/// examines it, and the kernel keeps the files of a killed process open until
/// its io_uring has been torn down.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(20);

/// Reason for which a lock was not taken.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Another process holds it.
    Held,
    /// Locking failed.
    Failed(io::Error),
}

/// Takes the advisory lock (flock(2)) of an open file or device: shared for
/// reading only, else exclusive. It ends with the descriptor.
pub(crate) fn lock(fd: &OwnedFd, shared: bool) -> Result<(), Refusal> {
    let wanted = if shared {
        FlockOperation::NonBlockingLockShared
    } else {
        FlockOperation::NonBlockingLockExclusive
    };
    let mut waited = Duration::ZERO;
    loop {
        match flock(fd, wanted) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if waited < PATIENCE => {
                std::thread::sleep(PAUSE);
                waited += PAUSE;
            }
            Err(Errno::WOULDBLOCK) => return Err(Refusal::Held),
            Err(errno) => return Err(Refusal::Failed(errno.into())),
        }
    }
}

/// Opens, and retries while an exclusive user may be about to close.
pub(crate) fn open_when_free<T>(
    mut open: impl FnMut() -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    let mut waited = Duration::ZERO;
    loop {
        match open() {
            Err(Errno::BUSY) if waited < PATIENCE => {
                std::thread::sleep(PAUSE);
                waited += PAUSE;
            }
            answer => return answer,
        }
    }
}

/// Describes the user of a device that cannot be opened exclusively, as far as
/// Linux reports it.
pub(crate) fn device_user(device: u64, sysfs_folder: &Path) -> String {
    let mounts = mountinfo::read().unwrap_or_default();
    if let Some(place) = mount_of(&mounts, device) {
        return format!("it is mounted on {}", String::from_utf8_lossy(place));
    }
    let holders = fs::read_dir(sysfs_folder.join("holders")).into_iter().flatten().flatten();
    let names: Vec<_> =
        holders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    if !names.is_empty() {
        return format!("it is a part of {}", names.join(", "));
    }
    "another process has opened it exclusively, or one of its partitions is in use".to_owned()
}

/// Returns where a device is mounted.
fn mount_of(mounts: &[MountLine], device: u64) -> Option<&[u8]> {
    mounts.iter().find(|mount| mount.device == device).map(|mount| &mount.point[..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_found_by_its_device() {
        let mounts = mountinfo::parse(
            b"22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
              90 22 7:3 / /mnt/backup rw - ext4 /dev/loop3 rw\n",
        );
        let of = |major, minor| mount_of(&mounts, rustix::fs::makedev(major, minor));
        assert_eq!(of(7, 3), Some(&b"/mnt/backup"[..]));
        assert_eq!(of(254, 0), Some(&b"/"[..]));
        assert_eq!(of(7, 30), None);
    }
}
