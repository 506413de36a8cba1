//! Disks of this machine, as a layout describes them.

use super::check::is_partition;
use super::machine::{Machine, signatures};
use crate::tool::Tool;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Directory of names that do not change between boots.
pub(super) const BY_ID: &str = "/dev/disk/by-id";

/// A disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Disk {
    /// Preferred name below `/dev/disk/by-id`.
    pub path: PathBuf,
    /// Current name in the kernel.
    pub device: PathBuf,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Physical sector size in bytes.
    pub sector_bytes: u64,
    /// Contents and users of the disk; if empty, it may be used for a pool.
    pub occupants: Vec<String>,
}

/// Lists all whole disks that have a name by id, in the order of their names.
///
/// # Errors
/// If the directory of names cannot be read.
pub fn disks(tool: &dyn Tool, machine: &dyn Machine) -> io::Result<Vec<Disk>> {
    Ok(among(names_in(Path::new(BY_ID))?, tool, machine))
}

/// udev makes the directory with the first name: without one there is none.
fn names_in(directory: &Path) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string());
    }
    Ok(names)
}

/// Ranks a name for people: model and serial number before a world wide name.
fn rank(name: &str) -> usize {
    let told = ["ata-", "nvme-", "virtio-", "scsi-", "usb-", "mmc-"];
    let bare = ["nvme-eui.", "nvme-nvme.", "nvme-uuid.", "wwn-"];
    if bare.iter().any(|prefix| name.starts_with(prefix)) {
        return told.len() + 1;
    }
    told.iter().position(|prefix| name.starts_with(prefix)).unwrap_or(told.len())
}

fn among(names: Vec<String>, tool: &dyn Tool, machine: &dyn Machine) -> Vec<Disk> {
    let mut best: BTreeMap<PathBuf, (usize, String, Disk)> = BTreeMap::new();
    // Logical volumes, encrypted volumes and volumes of pools are not disks.
    let made = |name: &str| ["dm-", "lvm-", "md-"].iter().any(|prefix| name.starts_with(prefix));
    for name in names.into_iter().filter(|name| !is_partition(name) && !made(name)) {
        let path = Path::new(BY_ID).join(&name);
        let Ok(found) = machine.look(&path) else { continue };
        let Some(sector_bytes) = found.sector_bytes else { continue };
        let disk = Disk {
            path,
            device: found.canonical.clone(),
            size_bytes: found.size_bytes,
            sector_bytes,
            occupants: found.occupants,
        };
        let candidate = (rank(&name), name, disk);
        match best.get(&found.canonical) {
            Some(known) if (known.0, &known.1) <= (candidate.0, &candidate.1) => {}
            _ => drop(best.insert(found.canonical, candidate)),
        }
    }
    let mut disks: Vec<Disk> = best.into_values().map(|(_, _, disk)| disk).collect();
    disks.sort_by(|a, b| a.path.cmp(&b.path));
    for disk in &mut disks {
        match signatures(tool, &disk.path.display().to_string()) {
            Ok(found) => disk.occupants.extend(found),
            Err(error) => disk.occupants.push(format!("unknown: {error}")),
        }
    }
    disks
}

/// Prints the disk as an entry of a layout, without a name.
impl fmt::Display for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state =
            if self.occupants.is_empty() { "empty".into() } else { self.occupants.join(", ") };
        writeln!(f, "# {}: {state}", self.device.display())?;
        writeln!(f, "path = \"{}\"", self.path.display())?;
        writeln!(f, "size = {}", self.size_bytes)?;
        writeln!(f, "sector_bytes = {}", self.sector_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provision::Found;
    use crate::tool::Recorded;

    #[test]
    fn a_machine_without_names_by_id_has_no_disks_to_offer() {
        let here = tempfile::tempdir().unwrap();
        assert_eq!(names_in(&here.path().join("by-id")).unwrap(), Vec::<String>::new());
        std::fs::write(here.path().join("nvme-MODEL_S1"), "").unwrap();
        assert_eq!(names_in(here.path()).unwrap(), ["nvme-MODEL_S1"]);
        assert!(names_in(&here.path().join("nvme-MODEL_S1")).is_err());
    }

    struct Names;

    impl Machine for Names {
        fn look(&self, path: &Path) -> Result<Found, String> {
            let name = path.file_name().unwrap().to_str().unwrap();
            let canonical = match name {
                "nvme-eui.01" | "nvme-MODEL_S1" | "nvme-MODEL_S1_1" => "/dev/nvme0n1",
                "ata-DISK_1" | "wwn-0x5" => "/dev/sda",
                "usb-reader" => return Err("is not there".to_owned()),
                _ => "/dev/dm-0",
            };
            Ok(Found {
                canonical: canonical.into(),
                size_bytes: 4096,
                sector_bytes: Some(512),
                occupants: Vec::new(),
            })
        }
    }

    #[test]
    fn each_disk_once_by_its_best_name() {
        let ask = |tool: Recorded, path: &str, wipefs: &str| {
            tool.then(&format!("wipefs --noheadings --output TYPE,OFFSET {path}"), wipefs)
                .then_fail(&format!("blkid --probe --output export {path}"), 2, "")
                .then_fail(&format!("zdb -l {path}"), 2, "")
        };
        let tool = ask(Recorded::default(), "/dev/disk/by-id/ata-DISK_1", "gpt 0x200\n");
        let tool = ask(tool, "/dev/disk/by-id/nvme-MODEL_S1", "");
        let names = [
            "nvme-eui.01",
            "nvme-MODEL_S1_1",
            "nvme-MODEL_S1",
            "wwn-0x5",
            "ata-DISK_1",
            "ata-DISK_1-part1",
            "dm-name-root",
            "usb-reader",
        ];
        let found = among(names.map(str::to_owned).to_vec(), &tool, &Names);
        assert!(tool.is_done());
        assert_eq!(found.len(), 2);
        assert_eq!(
            found[1].to_string(),
            "# /dev/nvme0n1: empty\npath = \"/dev/disk/by-id/nvme-MODEL_S1\"\nsize = 4096\nsector_bytes = 512\n"
        );
        assert_eq!(found[0].occupants, ["signature gpt at 0x200"]);
    }
}
