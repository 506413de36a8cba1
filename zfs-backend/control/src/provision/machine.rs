//! Examination of this machine's disks: actual sizes, and whether they are
//! empty.

use crate::tool::{Tool, ToolError};
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A device as found on the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Path of the device itself, with all links resolved.
    pub canonical: PathBuf,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Physical sector size in bytes; none for a file.
    pub sector_bytes: Option<u64>,
    /// Contents and users: partitions, mounts, other devices.
    pub occupants: Vec<String>,
}

/// Examines devices. The real one is [`SystemMachine`].
pub trait Machine {
    /// Examines one device.
    ///
    /// # Errors
    /// The fault, without the name of the device.
    fn look(&self, path: &Path) -> Result<Found, String>;
}

/// This machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemMachine;

impl Machine for SystemMachine {
    fn look(&self, path: &Path) -> Result<Found, String> {
        let canonical = fs::canonicalize(path).map_err(|error| not_there(&error))?;
        let metadata = fs::metadata(&canonical).map_err(|error| not_there(&error))?;
        if metadata.is_file() {
            return Ok(Found {
                canonical,
                size_bytes: metadata.len(),
                sector_bytes: None,
                occupants: Vec::new(),
            });
        }
        if !metadata.file_type().is_block_device() {
            return Err("is not a block device".to_owned());
        }
        let name = canonical.file_name().unwrap_or_default().to_owned();
        let sysfs = Path::new("/sys/class/block").join(&name);
        let number = |file: &str| -> Result<u64, String> {
            let text = fs::read_to_string(sysfs.join(file)).map_err(|error| error.to_string())?;
            text.trim().parse().map_err(|_| format!("{file} says {text:?}"))
        };
        Ok(Found {
            // In units of 512 bytes, regardless of the sector size.
            size_bytes: number("size")?.saturating_mul(512),
            // A partition has no attribute of its own.
            sector_bytes: number("queue/physical_block_size").ok(),
            occupants: occupants(&sysfs, &canonical),
            canonical,
        })
    }
}

fn not_there(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "does not exist".to_owned(),
        _ => error.to_string(),
    }
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn occupants(sysfs: &Path, device: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for name in names(sysfs) {
        if sysfs.join(&name).join("partition").exists() {
            found.push(format!("partition {name}"));
        }
    }
    found.extend(names(&sysfs.join("holders")).into_iter().map(|name| format!("used by {name}")));
    // The kernel grants an exclusive open only if nobody has mounted or claimed
    // the device.
    let flags = rustix::fs::OFlags::EXCL.bits().cast_signed();
    if let Err(error) = fs::OpenOptions::new().read(true).custom_flags(flags).open(device) {
        found.push(format!("cannot be opened exclusively: {error}"));
    }
    found
}

/// Lists signatures on a device: of file systems, partition tables and pools.
/// Empty: nothing was recognized.
///
/// # Errors
/// If a program is missing or fails; the device may then be in use.
pub(super) fn signatures(tool: &dyn Tool, path: &str) -> Result<Vec<String>, ToolError> {
    let mut found = Vec::new();
    let listed = tool.run("wipefs", &["--noheadings", "--output", "TYPE,OFFSET", path])?;
    for line in listed.lines().filter(|line| !line.trim().is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        found.push(format!("signature {}", words.join(" at ")));
    }
    match tool.run("blkid", &["--probe", "--output", "export", path]) {
        Ok(said) => {
            let words: Vec<&str> = said.lines().filter(|line| line.contains("TYPE=")).collect();
            found.push(format!("blkid: {}", words.join(" ")));
        }
        // 2: nothing was recognized (blkid(8)).
        Err(ToolError::Failed { status: Some(2), .. }) => {}
        Err(error) => return Err(error),
    }
    match tool.run("zdb", &["-l", path]) {
        Ok(_) => found.push("labels of a ZFS pool".to_owned()),
        // 2: no valid labels (zdb(8)).
        Err(ToolError::Failed { status: Some(2), .. }) => {}
        Err(error) => return Err(error),
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::Recorded;

    #[test]
    fn a_file_is_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        fs::File::create(&path).unwrap().set_len(4096).unwrap();
        let found = SystemMachine.look(&path).unwrap();
        assert_eq!((found.size_bytes, found.sector_bytes), (4096, None));
        assert_eq!(SystemMachine.look(&dir.path().join("x")).unwrap_err(), "does not exist");
        assert!(SystemMachine.look(Path::new("/dev/null")).unwrap_err().contains("not a block"));
    }

    #[test]
    fn what_is_on_a_device_is_named() {
        const WIPEFS: &str = "wipefs --noheadings --output TYPE,OFFSET /d";
        const BLKID: &str = "blkid --probe --output export /d";
        let empty = Recorded::default().then(WIPEFS, "").then_fail(BLKID, 2, "").then_fail(
            "zdb -l /d",
            2,
            "failed to unpack label 0",
        );
        assert_eq!(signatures(&empty, "/d").unwrap(), Vec::<String>::new());
        let full = Recorded::default()
            .then(WIPEFS, "xfs  0x0\n")
            .then(BLKID, "DEVNAME=/d\nUUID=1\nTYPE=xfs\n")
            .then("zdb -l /d", "version: 5000");
        let found = signatures(&full, "/d").unwrap();
        assert_eq!(found, ["signature xfs at 0x0", "blkid: TYPE=xfs", "labels of a ZFS pool"]);
        let unknown = Recorded::default().then(WIPEFS, "").then_fail(BLKID, 8, "ambivalent");
        assert!(signatures(&unknown, "/d").is_err());
    }
}
