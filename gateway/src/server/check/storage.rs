//! Storage that can never be used as configured: the gateway refuses to start with it, in
//! contrast to what is only absent now. Storage that hangs is absent, and so is a disk that
//! another logical unit has.

use super::{boxed, problem, results};
use crate::exports::absent::Fault;
use crate::exports::attempts::Work;
use crate::exports::exposed;
use crate::exports::limits::{NAME_PATIENCE, START_PATIENCE};
use crate::exports::settings::check_directory;
use crate::iscsi::luns::examine::examine;
use crate::state_dir;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use zgate_block::Identity;
use zgate_config::{Config, LunConfig, Place, Problem};
use zgate_control::{Tool, ToolError};

/// Time limit of `zpool version`, in seconds: it asks no pool.
pub(super) const VERSION_SECONDS: u64 = NAME_PATIENCE.as_secs();

/// Time limit of `zfs list` for the state directory, in seconds: less than the check waits
/// for this look, so that the list is known to be what takes long.
const LIST_SECONDS: u64 = NAME_PATIENCE.as_secs() - 1;

/// A look for the storage of one place.
struct Look {
    place: Place,
    /// The logical unit, if it is one.
    disk: Option<Disk>,
    /// Returns the device or file that was found, if it is that of a logical unit.
    work: Work<Option<Identity>>,
}

/// A logical unit among others, which may have the same device or file.
struct Disk {
    unit: String,
    path: PathBuf,
    read_only: bool,
}

impl Disk {
    /// Returns whether both are served at the same time: who only reads shares the lock of a
    /// file, but nobody shares a device.
    fn shares(&self, other: &Self, identity: Identity) -> bool {
        self.read_only && other.read_only && matches!(identity, Identity::File(..))
    }
}

/// Returns what keeps the gateway from starting: directories and disks of the wrong kind or
/// size, and exports that would serve the state directory.
pub(super) fn unusable(config: &Config) -> Vec<Problem> {
    let (places, work): (Vec<_>, Vec<_>) = checks(config).into_iter().unzip();
    let results = places.into_iter().zip(results(work, START_PATIENCE));
    let wrong = results.filter_map(|(place, result)| match result {
        Err(Fault { reason, next_step, absent: false }) => Some(problem(place, reason, &next_step)),
        _ => None,
    });
    wrong.collect()
}

fn checks(config: &Config) -> Vec<(Place, Work<()>)> {
    let state_dir = &config.server.state_dir;
    let path = state_dir.clone();
    let place = Place::root("server").key("state_dir");
    let mut checks = vec![(place, boxed(move || fault_of_state_dir(state_dir::examine(&path))))];
    for (index, export) in config.exports.iter().enumerate() {
        let Some(path) = export.path.clone() else { continue };
        let state_dir = state_dir.clone();
        let place = Place::root("export").item(index).key("path");
        checks.push((place, boxed(move || exposed::refuse(&path, &state_dir))));
    }
    for (place, _, lun) in luns(config) {
        checks.push((place, boxed(move || examine(&lun).map(drop))));
    }
    checks
}

/// Returns the place, the name and the configuration of each logical unit whose storage is
/// opened here. In standby, files of the state directory stand for all of them.
fn luns(config: &Config) -> Vec<(Place, String, LunConfig)> {
    let mut luns = Vec::new();
    if config.iscsi.standby {
        return luns;
    }
    for (index, target) in config.targets.iter().enumerate() {
        let place = Place::root("target").item(index);
        for (index, lun) in target.luns.iter().enumerate() {
            let unit = format!("target {} lun {}", target.name, lun.number);
            luns.push((place.key("lun").item(index).key("path"), unit, lun.clone()));
        }
    }
    luns
}

/// Returns the directories and disks that are absent now, and disks that another logical
/// unit has: the gateway serves one of the two, and starts without the other.
pub(super) fn absent(config: &Config) -> Vec<Problem> {
    let looks = looks(config).into_iter();
    let (names, work): (Vec<_>, Vec<_>) =
        looks.map(|look| ((look.place, look.disk), look.work)).unzip();
    let (mut found, mut owners) = (Vec::new(), HashMap::<Identity, Disk>::new());
    for ((place, disk), result) in names.into_iter().zip(results(work, START_PATIENCE)) {
        let (identity, disk) = match (result, disk) {
            (Err(Fault { reason, next_step, .. }), _) => {
                found.push(problem(place, reason, &next_step));
                continue;
            }
            (Ok(Some(identity)), Some(disk)) => (identity, disk),
            _ => continue,
        };
        match owners.get(&identity) {
            Some(other) if disk.shares(other, identity) => {}
            Some(other) => {
                let (path, unit) = (disk.path.display(), &other.unit);
                let reason = format!("{path} is the same device or file as that of {unit}");
                found.push(problem(place, reason, "give each LUN its own"));
            }
            None => {
                owners.insert(identity, disk);
            }
        }
    }
    found
}

fn looks(config: &Config) -> Vec<Look> {
    let mut looks: Vec<Look> = Vec::new();
    for (index, export) in config.exports.iter().enumerate() {
        let Some(path) = export.path.clone() else { continue };
        looks.push(Look {
            place: Place::root("export").item(index).key("path"),
            disk: None,
            work: Box::new(move || check_directory(&path).map(|()| None)),
        });
    }
    for (place, unit, lun) in luns(config) {
        let disk = Disk { unit, path: lun.path.clone(), read_only: lun.read_only };
        looks.push(Look {
            place,
            disk: Some(disk),
            work: Box::new(move || match examine(&lun) {
                // Not absent, but wrong.
                Err(fault) if !fault.absent => Ok(None),
                found => found,
            }),
        });
    }
    looks
}

/// Returns the fault that a look at the state directory has found.
fn fault_of_state_dir(found: io::Result<()>) -> Result<(), Fault> {
    found.map_err(|error| {
        let reason = error.to_string();
        match error.kind() {
            io::ErrorKind::NotFound => Fault::absent(reason, "mount it, or correct state_dir"),
            _ => Fault { next_step: "correct state_dir".to_owned(), ..Fault::wrong(reason) },
        }
    })
}

/// Returns the fault of a state directory that is not there, and may be on a file system
/// that is not mounted: on this machine the gateway does not start before it is, but the
/// configuration may be right, as that of the machine that waits in a pair is. Also tells
/// that ZFS, which knows its datasets, has not answered in time.
#[must_use]
pub fn missing_state_dir(config: &Config) -> Option<Problem> {
    let path = config.server.state_dir.clone();
    let look = move || {
        let asked = state_dir::examine(&path);
        doubt_of_mount(&path, asked.and_then(|()| state_dir::ask_for_mount(&path, LIST_SECONDS)))
    };
    told(results(vec![Box::new(look) as Work<Option<Fault>>], NAME_PATIENCE).pop()?)
}

/// Returns the fault of a state directory whose mount is missing as an error, and that of
/// one of which this is not known as a value.
fn doubt_of_mount(
    path: &Path,
    asked: io::Result<Option<ToolError>>,
) -> Result<Option<Fault>, Fault> {
    match asked {
        Ok(Some(error)) if error.is_late() => Ok(Some(Fault::absent(
            format!(
                "could not ask ZFS within {LIST_SECONDS} s whether a dataset belongs at {}",
                path.display()
            ),
            "see `zpool status`, and check again",
        ))),
        Ok(_) => Ok(None),
        Err(error) => match fault_of_state_dir(Err(error)) {
            Err(fault) if fault.absent => Err(fault),
            _ => Ok(None),
        },
    }
}

/// Tells the result of a look at the state directory, and what a start does.
fn told(found: Result<Option<Fault>, Fault>) -> Option<Problem> {
    let (Fault { reason, next_step, .. }, start) = match found {
        Ok(None) => return None,
        Ok(Some(unknown)) => (unknown, "asks it for longer, and starts without an answer"),
        Err(missing) => (missing, "does not start before it is there"),
    };
    let place = Place::root("server").key("state_dir");
    Some(problem(place, format!("{reason}; the gateway {start}"), &next_step))
}

/// Returns the entries that name datasets, if ZFS is not installed.
pub(super) fn without_zfs(config: &Config, tool: &dyn Tool) -> Vec<Problem> {
    let exports = config.exports.iter().enumerate();
    let exports = exports.filter(|(_, export)| export.dataset.is_some());
    let exports = exports.map(|(index, _)| Place::root("export").item(index));
    let volumes = config.targets.iter().enumerate().flat_map(|(index, target)| {
        let volumes = Place::root("target").item(index).key("volumes");
        (0..target.volumes.len()).map(move |index| volumes.item(index))
    });
    let parents = Place::root("volumes").key("parent");
    let parents = (0..config.volumes.parents.len()).map(|index| parents.item(index));
    let places: Vec<Place> = exports.chain(volumes).chain(parents).collect();
    if places.is_empty() {
        return Vec::new();
    }
    match tool.run("zpool", &["version"]) {
        Err(error) if error.is_missing() => {
            let next_step = "install ZFS, or set a path instead of a dataset";
            let fault = |place: Place| problem(place.key("dataset"), error.to_string(), next_step);
            places.into_iter().map(fault).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{lines, parsed};
    use super::*;
    use std::fs::File;

    const TARGET: &str = "[iscsi]\nlisten = [\"127.0.0.1:3260\"]\n\
        [[target]]\nname = \"iqn.2026-11.test:a\"\nallow_any_initiator = true\n";

    fn lun(number: u16, path: &Path, keys: &str) -> String {
        format!("[[target.lun]]\nnumber = {number}\npath = {path:?}\n{keys}\n")
    }

    fn file(path: PathBuf, bytes: u64) -> PathBuf {
        File::create(&path).unwrap().set_len(bytes).unwrap();
        path
    }

    #[test]
    fn disks_that_no_start_would_open_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let found = |lun: &str| lines(&unusable(&parsed(&format!("{TARGET}{lun}"))));
        let (empty, short) = (file(at("empty"), 0), file(at("short"), 100));
        let (disk, block) = (file(at("disk"), 8192), file(at("block"), 1024));
        for (lun, part) in [
            (lun(0, dir.path(), ""), "is a directory, not a block device"),
            (lun(0, Path::new("/dev/null"), ""), "is a character device"),
            (lun(0, &empty, ""), "has 0 bytes: less than one block"),
            (lun(0, &short, ""), "has 100 bytes: less than one block"),
            (lun(0, &block, "block_bytes = 4096"), "less than one block of 4096"),
        ] {
            let said = found(&lun);
            assert!(said.starts_with("target.lun.path: ") && said.contains(part), "{said}");
            assert!(said.trim_end().ends_with("correct path, size or direct, or what is there"));
        }
        // What is away, or will be created, is not wrong.
        for lun in [
            lun(0, &disk, ""),
            lun(0, &empty, "size = \"1MiB\""),
            lun(0, &at("new"), "size = \"1MiB\""),
            lun(0, Path::new("/dev/zvol/no-such-pool/vm"), ""),
            lun(0, Path::new("/no-such-pool/disk"), "size = \"1MiB\""),
        ] {
            assert_eq!(found(&lun), "");
        }
    }

    #[test]
    fn one_file_is_not_two_disks_whatever_its_names_are() {
        let dir = tempfile::tempdir().unwrap();
        let (disk, link) = (file(dir.path().join("disk"), 8192), dir.path().join("link"));
        let other = file(dir.path().join("other"), 8192);
        std::os::unix::fs::symlink(&disk, &link).unwrap();
        let (writes, reads) = ("", "read_only = true");
        let found = |first: &str, second: &str| {
            let luns = [lun(0, &disk, first), lun(1, &other, ""), lun(2, &link, second)].concat();
            let config = parsed(&format!("{TARGET}{luns}"));
            assert_eq!(lines(&unusable(&config)), "", "the gateway starts with the other disks");
            lines(&absent(&config))
        };
        let part =
            "link is the same device or file as that of target iqn.2026-11.test:a lun 0; give";
        for (first, second) in [(writes, writes), (writes, reads), (reads, writes)] {
            let said = found(first, second);
            assert!(said.starts_with("target.lun.path: ") && said.contains(part), "{said}");
            assert_eq!(said.lines().count(), 1, "{said}");
        }
        assert_eq!(found(reads, reads), "", "both are served");
    }

    #[test]
    fn disks_that_only_read_share_a_file_and_no_device() {
        let disk = |read_only| Disk { unit: String::new(), path: PathBuf::new(), read_only };
        let (file, device) = (Identity::File(1, 0, 0), Identity::Device(1, 0));
        assert!(disk(true).shares(&disk(true), file));
        assert!(!disk(true).shares(&disk(true), device));
        assert!(!disk(true).shares(&disk(false), file));
    }

    #[test]
    fn a_disk_in_standby_is_not_that_of_another_unit() {
        let dir = tempfile::tempdir().unwrap();
        let (disk, link) = (file(dir.path().join("disk"), 8192), dir.path().join("link"));
        std::os::unix::fs::symlink(&disk, &link).unwrap();
        let luns = [lun(0, &disk, ""), lun(1, &link, "")].concat();
        let mut config = parsed(&format!("{TARGET}{luns}"));
        config.iscsi.standby = true;
        assert_eq!(lines(&absent(&config)), "");
    }

    #[test]
    fn a_standby_misses_no_disk_of_the_other_machine() {
        let elsewhere = lun(0, Path::new("/dev/zvol/no-such-pool/vm"), "size = \"1MiB\"");
        let mut config = parsed(&format!("{TARGET}{elsewhere}"));
        assert!(lines(&absent(&config)).starts_with("target.lun.path: "));
        config.iscsi.standby = true;
        assert_eq!(lines(&absent(&config)), "");
    }

    #[test]
    fn an_export_of_the_state_directory_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let (state, data) = (dir.path().join("state"), dir.path().join("data"));
        for path in [&state, &data] {
            std::fs::create_dir(path).unwrap();
        }
        let found = |export: &Path| {
            let text = format!(
                "[server]\nstate_dir = {state:?}\n[[export]]\npath = {export:?}\npseudo = \"/e\"\n"
            );
            lines(&unusable(&parsed(&text)))
        };
        let said = found(dir.path());
        assert!(said.starts_with("export.path: ") && said.contains("signs file handles"), "{said}");
        assert_eq!(found(&data), "");
        assert_eq!(found(&dir.path().join("absent")), "");
    }

    #[test]
    fn a_standby_opens_no_disk_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let text = format!("{TARGET}{}", lun(0, dir.path(), "size = \"1MiB\""));
        let mut config = parsed(&text);
        config.iscsi.standby = true;
        assert_eq!(lines(&unusable(&config)), "");
    }

    #[test]
    fn a_state_directory_is_wrong_or_only_missing() {
        let dir = tempfile::tempdir().unwrap();
        // An empty directory may be a mount point.
        let taken = file(dir.path().join("file"), 0);
        let at = |path: &Path| parsed(&format!("[server]\nstate_dir = {path:?}\n"));
        let both = |config: &Config| {
            let missing: Vec<_> = missing_state_dir(config).into_iter().collect();
            (lines(&unusable(config)), lines(&missing))
        };
        let none = (String::new(), String::new());
        assert_eq!(both(&at(&dir.path().join("new"))), none);
        let (wrong, missing) = both(&at(&taken));
        assert!(wrong.contains("server.state_dir: ") && missing.is_empty(), "{wrong}{missing}");
        // Its pool may be away: the same configuration is right on another machine.
        let (wrong, missing) = both(&at(Path::new("/no-such-pool/zgate")));
        assert!(wrong.is_empty() && missing.contains("may not be mounted"), "{wrong}{missing}");
        assert!(missing.contains("the gateway does not start before it is there"), "{missing}");
    }

    #[test]
    fn a_state_directory_is_not_missing_because_zfs_is_late() {
        let said = |asked| {
            let problem = told(doubt_of_mount(Path::new("/tank/zgate"), asked));
            lines(&problem.into_iter().collect::<Vec<_>>())
        };
        let command = || "zfs list".to_owned();
        for late in [
            ToolError::TimedOut { command: command(), seconds: LIST_SECONDS },
            ToolError::Blocked { command: command(), waiting: 1 },
        ] {
            let said = said(Ok(Some(late)));
            let wanted = "could not ask ZFS within 4 s whether a dataset belongs at /tank/zgate; \
                          the gateway asks it for longer, and starts without an answer";
            assert!(said.starts_with("server.state_dir: ") && said.contains(wanted), "{said}");
        }
        let broken = ToolError::Answer { command: command(), reason: String::new() };
        assert_eq!(said(Ok(Some(broken))), "", "a start says it");
        assert_eq!(said(Ok(None)), "");
    }

    /// A machine with ZFS, or without.
    struct Machine {
        has_zfs: bool,
    }

    impl Tool for Machine {
        fn run(&self, program: &str, arguments: &[&str]) -> Result<String, ToolError> {
            assert_eq!((program, arguments), ("zpool", &["version"][..]));
            if self.has_zfs {
                return Ok("zfs-2.3.0\n".to_owned());
            }
            let source = io::ErrorKind::NotFound.into();
            Err(ToolError::Start { program: program.to_owned(), source })
        }
    }

    #[test]
    fn datasets_need_zfs() {
        let config = parsed("[[export]]\ndataset = \"zfast/m/**\"\npseudo = \"/m\"\n");
        let said = lines(&without_zfs(&config, &Machine { has_zfs: false }));
        assert!(said.starts_with("export.dataset: cannot run zpool"), "{said}");
        assert!(said.contains("path instead of a dataset"), "{said}");
        assert_eq!(lines(&without_zfs(&config, &Machine { has_zfs: true })), "");
        let config = parsed("[[export]]\npath = \"/srv\"\npseudo = \"/m\"\n");
        assert_eq!(lines(&without_zfs(&config, &Machine { has_zfs: false })), "");
    }
}
