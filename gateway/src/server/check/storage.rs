//! Storage that can never be used as configured: the gateway refuses to start with it, in
//! contrast to what is only absent now. Storage that hangs is absent.

use super::{attempted, boxed, problem, results};
use crate::exports::absent::Fault;
use crate::exports::attempts::Work;
use crate::exports::exposed;
use crate::exports::limits::{NAME_PATIENCE, START_PATIENCE};
use crate::iscsi::luns::examine::examine;
use crate::state_dir;
use std::collections::HashMap;
use std::io;
use std::path::Path;
use zgate_block::Identity;
use zgate_config::{Config, Place, Problem};
use zgate_control::Tool;

/// Time limit of `zpool version`, in seconds: it asks no pool.
pub(super) const VERSION_SECONDS: u64 = NAME_PATIENCE.as_secs();

/// A check of one place.
struct StorageCheck {
    place: Place,
    /// Name of the entry, for messages about another one.
    owner: String,
    /// Returns the device or file that no other entry may have, if there is one.
    work: Work<Option<Identity>>,
}

/// Returns what keeps the gateway from starting: directories and disks of the wrong kind or
/// size, disks that are one, and exports that would serve the state directory.
pub(super) fn unusable(config: &Config) -> Vec<Problem> {
    let checks = checks(config).into_iter();
    let (names, work): (Vec<_>, Vec<_>) =
        checks.map(|check| ((check.place, check.owner), check.work)).unzip();
    let (mut found, mut owners) = (Vec::new(), HashMap::new());
    for ((place, owner), result) in names.into_iter().zip(results(work, START_PATIENCE)) {
        match result {
            Err(Fault { reason, next_step, absent: false }) => {
                found.push(problem(place, reason, &next_step));
            }
            Ok(Some(identity)) => match owners.get(&identity) {
                Some(other) => {
                    let reason = format!("{other} has the same device or file");
                    found.push(problem(place, reason, "give each LUN its own"));
                }
                None => {
                    owners.insert(identity, owner);
                }
            },
            _ => {}
        }
    }
    found
}

fn checks(config: &Config) -> Vec<StorageCheck> {
    let state_dir = &config.server.state_dir;
    let path = state_dir.clone();
    let mut checks = vec![StorageCheck {
        place: Place::root("server").key("state_dir"),
        owner: String::new(),
        work: Box::new(move || check_state_dir(&path).map(|()| None)),
    }];
    for (index, export) in config.exports.iter().enumerate() {
        let Some(path) = export.path.clone() else { continue };
        let state_dir = state_dir.clone();
        checks.push(StorageCheck {
            place: Place::root("export").item(index).key("path"),
            owner: String::new(),
            work: Box::new(move || exposed::refuse(&path, &state_dir).map(|()| None)),
        });
    }
    // In standby, files of the state directory stand for the disks.
    let targets = config.targets.iter().enumerate().filter(|_| !config.iscsi.standby);
    for (index, target) in targets {
        let place = Place::root("target").item(index);
        for (index, lun) in target.luns.iter().enumerate() {
            let lun = lun.clone();
            checks.push(StorageCheck {
                place: place.key("lun").item(index).key("path"),
                owner: format!("target {} lun {}", target.name, lun.number),
                work: Box::new(move || examine(&lun)),
            });
        }
    }
    checks
}

/// Looks at the place of the state directory. Blocks.
fn check_state_dir(path: &Path) -> Result<(), Fault> {
    state_dir::examine(path).and_then(|()| state_dir::find_mounted(path)).map_err(|error| {
        let reason = error.to_string();
        match error.kind() {
            io::ErrorKind::NotFound => Fault::absent(reason, "mount it, or correct state_dir"),
            _ => Fault { next_step: "correct state_dir".to_owned(), ..Fault::wrong(reason) },
        }
    })
}

/// Returns the fault of a state directory that is not there, and may be on a file system
/// that is not mounted: on this machine the gateway does not start before it is, but the
/// configuration may be right, as that of the machine that waits in a pair is.
#[must_use]
pub fn missing_state_dir(config: &Config) -> Option<Problem> {
    let (path, place) = (config.server.state_dir.clone(), Place::root("server").key("state_dir"));
    let look = move || match check_state_dir(&path) {
        Err(fault) if fault.absent => Err(fault),
        _ => Ok(()),
    };
    attempted(vec![(place, boxed(look))], NAME_PATIENCE).pop()
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
    use std::path::PathBuf;
    use zgate_control::ToolError;

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
        let luns = [lun(0, &disk, ""), lun(1, &other, ""), lun(2, &link, "")].concat();
        let said = lines(&unusable(&parsed(&format!("{TARGET}{luns}"))));
        let other = "target iqn.2026-11.test:a lun 0 has the same device or file";
        assert!(said.contains(other) && said.lines().count() == 1, "{said}");
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
