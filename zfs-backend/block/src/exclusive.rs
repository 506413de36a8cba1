//! Being the only user of what lies below, and naming the other one.

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// How long what somebody else holds is waited for: udev locks a device while it
/// looks at it, and the kernel keeps the files of a killed process open until its
/// io_uring has been taken apart.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(20);

/// Why a lock was not taken.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Somebody else holds it.
    Held,
    /// The system cannot lock here.
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

/// Opens, waiting for an exclusive user who may be on the way out.
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

/// Who uses a device that cannot be opened exclusively, as far as Linux tells.
pub(crate) fn device_user(numbers: &str, sysfs_folder: &Path) -> String {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    if let Some(place) = mount_of(&mounts, numbers) {
        return format!("it is mounted on {place}");
    }
    let holders = fs::read_dir(sysfs_folder.join("holders")).into_iter().flatten().flatten();
    let names: Vec<_> =
        holders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    if !names.is_empty() {
        return format!("it is a part of {}", names.join(", "));
    }
    "another process has opened it exclusively, or one of its partitions is in use".to_owned()
}

/// Where a device (`major:minor`) is mounted (proc_pid_mountinfo(5): the third
/// field is the device, the fifth the place).
fn mount_of<'a>(mountinfo: &'a str, numbers: &str) -> Option<&'a str> {
    mountinfo.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(2);
        (fields.next()? == numbers).then(|| fields.nth(1)).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_found_by_its_device() {
        let text = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
                    90 22 7:3 / /mnt/backup rw - ext4 /dev/loop3 rw\n";
        assert_eq!(mount_of(text, "7:3"), Some("/mnt/backup"));
        assert_eq!(mount_of(text, "254:0"), Some("/"));
        assert_eq!(mount_of(text, "7:30"), None);
    }
}
