//! Disks of iSCSI targets, as sysfs shows them. The identifier of a disk is what its target
//! says, and another target may say the same: a disk counts only as that of the target whose
//! session it came with.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

/// Returns the names of the paths to a disk that came with sessions with a target. `naa` is
/// its identifier, with `naa.` before the digits.
pub(super) fn paths(sys: &Path, target: &str, naa: &str) -> Vec<String> {
    let is_its = |name: &String| {
        let found = read(&sys.join("block").join(name).join("device/wwid"));
        found.is_some_and(|found| found.eq_ignore_ascii_case(naa)) && is_of(sys, name, target)
    };
    block_devices(sys, "sd").into_iter().filter(is_its).collect()
}

/// Returns the name of the multipath device of a disk, unless data could reach another target
/// than this by one of its paths.
pub(super) fn multipath(sys: &Path, target: &str, naa: &str) -> Option<String> {
    map(sys, naa, |path| is_of(sys, path, target))
}

/// Returns the name of the multipath device of a disk, also if paths of it are gone: it has them
/// until multipathd sees that. None if a path that is there is of another target than this.
pub(super) fn left_multipath(sys: &Path, target: &str, naa: &str) -> Option<String> {
    let is_gone = |path: &str| !sys.join("block").join(path).exists();
    map(sys, naa, |path| is_gone(path) || is_of(sys, path, target))
}

/// Returns the name of the multipath device with an identifier, if all its paths are such.
fn map(sys: &Path, naa: &str, is_its_path: impl Fn(&str) -> bool) -> Option<String> {
    let digits = naa.strip_prefix("naa.").unwrap_or(naa).to_ascii_lowercase();
    let uuid = format!("mpath-3{digits}");
    let is_its = |name: &String| {
        let dir = sys.join("block").join(name);
        let found = read(&dir.join("dm/uuid"));
        found.is_some_and(|found| found.eq_ignore_ascii_case(&uuid))
            && names(&dir.join("slaves")).iter().all(|path| is_its_path(path))
    };
    block_devices(sys, "dm-").into_iter().find(is_its)
}

/// Returns whether a disk came with a session with a target. Its device is below that of its
/// session: `…/host3/session1/target3:0:0/3:0:0:0`.
fn is_of(sys: &Path, disk: &str, target: &str) -> bool {
    let Ok(device) = fs::canonicalize(sys.join("block").join(disk).join("device")) else {
        return false;
    };
    let mut parts = device.iter().rev().filter_map(|part| part.to_str());
    let Some(session) = parts.find(|part| is_session(part)) else { return false };
    let found = read(&sys.join("class/iscsi_session").join(session).join("targetname"));
    found.is_some_and(|found| found == target)
}

fn is_session(part: &str) -> bool {
    let number = part.strip_prefix("session");
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

fn block_devices(sys: &Path, prefix: &str) -> Vec<String> {
    let mut all = names(&sys.join("block"));
    all.retain(|name| name.starts_with(prefix));
    all
}

/// Returns whether other block devices lie on the one of this name.
pub(super) fn has_holders(sys: &Path, device: &OsStr) -> bool {
    !names(&sys.join("block").join(device).join("holders")).is_empty()
}

fn names(dir: &Path) -> Vec<String> {
    let Ok(all) = fs::read_dir(dir) else { return Vec::new() };
    let names = all.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

fn read(file: &Path) -> Option<String> {
    fs::read_to_string(file).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    const NAA: &str = "naa.6000000000000000a";
    const OWN: &str = "iqn.2026-11.io.zgate:own";
    const FOREIGN: &str = "iqn.2026-11.org.example:foreign";

    /// Makes a disk with the identifier, behind a session of its own.
    fn add(sys: &Path, disk: &str, session: &str, target: &str) {
        let device = sys.join("devices/platform/host3").join(session).join("target3:0:0/3:0:0:0");
        fs::create_dir_all(&device).unwrap();
        fs::write(device.join("wwid"), format!("{NAA}\n")).unwrap();
        let block = sys.join("block").join(disk);
        fs::create_dir_all(&block).unwrap();
        symlink(&device, block.join("device")).unwrap();
        let class = sys.join("class/iscsi_session").join(session);
        fs::create_dir_all(&class).unwrap();
        fs::write(class.join("targetname"), format!("{target}\n")).unwrap();
    }

    #[test]
    fn a_disk_of_another_target_with_the_same_identifier_is_not_the_volumes() {
        let dir = tempfile::tempdir().unwrap();
        let sys = dir.path();
        add(sys, "sda", "session1", FOREIGN);
        assert!(paths(sys, OWN, NAA).is_empty());
        add(sys, "sdb", "session12", OWN);
        assert_eq!(paths(sys, OWN, NAA), ["sdb"]);
        assert_eq!(paths(sys, FOREIGN, NAA), ["sda"]);
        assert!(paths(sys, OWN, "naa.6000000000000000b").is_empty());
        // A disk of this machine, with no session.
        fs::create_dir_all(sys.join("block/sdc/device")).unwrap();
        fs::write(sys.join("block/sdc/device/wwid"), NAA).unwrap();
        assert_eq!(paths(sys, OWN, NAA), ["sdb"]);
    }

    #[test]
    fn a_multipath_device_with_a_path_to_another_target_is_not_the_volumes() {
        let dir = tempfile::tempdir().unwrap();
        let sys = dir.path();
        add(sys, "sda", "session1", OWN);
        add(sys, "sdb", "session2", OWN);
        add(sys, "sdc", "session3", FOREIGN);
        let map = sys.join("block/dm-0");
        fs::create_dir_all(map.join("dm")).unwrap();
        fs::create_dir_all(map.join("slaves")).unwrap();
        fs::write(map.join("dm/uuid"), "mpath-36000000000000000a\n").unwrap();
        for path in ["sda", "sdb"] {
            fs::write(map.join("slaves").join(path), "").unwrap();
        }
        assert_eq!(multipath(sys, OWN, NAA).as_deref(), Some("dm-0"));
        fs::write(map.join("slaves/sdc"), "").unwrap();
        assert_eq!(multipath(sys, OWN, NAA), None);
        assert_eq!(left_multipath(sys, OWN, NAA), None);
    }

    #[test]
    fn a_multipath_device_whose_paths_are_gone_is_left_of_the_volumes() {
        let dir = tempfile::tempdir().unwrap();
        let sys = dir.path();
        add(sys, "sda", "session1", OWN);
        let map = sys.join("block/dm-0");
        fs::create_dir_all(map.join("dm")).unwrap();
        fs::create_dir_all(map.join("slaves")).unwrap();
        fs::write(map.join("dm/uuid"), "mpath-36000000000000000a\n").unwrap();
        // The kernel leaves the link to a disk that is gone as long as the device has the path.
        for path in ["sda", "sdb"] {
            symlink(sys.join("block").join(path), map.join("slaves").join(path)).unwrap();
        }
        assert_eq!(multipath(sys, OWN, NAA), None);
        assert_eq!(left_multipath(sys, OWN, NAA).as_deref(), Some("dm-0"));
        fs::remove_dir_all(sys.join("block/sda")).unwrap();
        assert_eq!(left_multipath(sys, OWN, NAA).as_deref(), Some("dm-0"));
        add(sys, "sdc", "session3", FOREIGN);
        fs::write(map.join("slaves/sdc"), "").unwrap();
        assert_eq!(left_multipath(sys, OWN, NAA), None);
    }
}
