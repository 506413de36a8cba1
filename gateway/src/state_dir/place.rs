//! The place of the state directory: whether it is sure to be on the file system that it
//! belongs to, and its making.

use super::named;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

/// Directory of the system's disk that the service manager makes for gateways: no mount of
/// a pool can be missing there.
const SYSTEM_DIR: &str = "/var/lib/zgate";
/// Directories for temporary files: no mount of a pool can be missing there either.
pub(super) const TEMPORARY_DIRS: [&str; 2] = ["/tmp", "/var/tmp"];
/// statfs(2): `f_type` of ZFS.
const ZFS_MAGIC: u64 = 0x2fc1_2fc1;

/// Makes the directory of a new gateway, if the file system that it belongs to is sure to be
/// mounted: otherwise an empty directory would hide the state, and clients would find
/// another server, which has no grace period for them. In the directories `temporary`
/// nothing is expected to be mounted.
pub(super) fn make(path: &Path, temporary: &[&Path]) -> io::Result<()> {
    if path.exists() {
        return Ok(());
    }
    refuse_unmounted(path, temporary)?;
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| named(path, "create", &error))
}

/// Refuses the place of a new directory if the file system that it belongs to may not be
/// mounted.
fn refuse_unmounted(path: &Path, temporary: &[&Path]) -> io::Result<()> {
    let is_local = |dir: &&Path| path.starts_with(dir);
    if !temporary.iter().chain(&[Path::new(SYSTEM_DIR)]).any(is_local) && may_miss_mount(path) {
        let reason = format!(
            "state directory: {0} does not exist, and the file system that it belongs to may not \
             be mounted: mount it; for a new gateway `install -d -m 700 {0}`",
            path.display()
        );
        return Err(io::Error::new(io::ErrorKind::NotFound, reason));
    }
    Ok(())
}

/// Tells without making anything whether a gateway could use the directory, or make it.
/// Blocks for as long as the storage does.
///
/// # Errors
/// `NotADirectory` where something else is there; `NotFound` where the file system that the
/// directory belongs to may not be mounted, and no gateway starts until it is.
pub(crate) fn examine(path: &Path) -> io::Result<()> {
    let there = path.ancestors().find_map(|place| Some((place, fs::metadata(place).ok()?)));
    match there {
        Some((place, found)) if !found.is_dir() => {
            Err(named(place, "use", &io::ErrorKind::NotADirectory.into()))
        }
        Some((place, _)) if place == path => Ok(()),
        _ => refuse_unmounted(path, &TEMPORARY_DIRS.map(Path::new)),
    }
}

/// Returns whether a file system that belongs at this path, or above it, may not be mounted:
/// the nearest directory that exists is that of the whole system (a pool that is not
/// imported), or it is empty and nothing is mounted there (a mount point), or it lies on ZFS,
/// where a directory in between would be a dataset.
fn may_miss_mount(path: &Path) -> bool {
    let Some(nearest) = path.ancestors().skip(1).find(|dir| dir.exists()) else { return true };
    let Some(above) = nearest.parent() else { return true };
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
    let is_empty = fs::read_dir(nearest).is_ok_and(|mut entries| entries.next().is_none());
    let is_mounted = device(above) != device(nearest);
    let is_parent = path.parent() == Some(nearest);
    (is_empty && !is_mounted) || (!is_parent && is_on_zfs(nearest))
}

fn is_on_zfs(dir: &Path) -> bool {
    rustix::fs::statfs(dir).is_ok_and(|found| found.f_type.cast_unsigned() == ZFS_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_the_directory_is_examined_without_making_it() {
        let dir = tempfile::tempdir().unwrap();
        let (state, file) = (dir.path().join("state"), dir.path().join("file"));
        fs::write(&file, "").unwrap();
        examine(dir.path()).unwrap();
        examine(&state).unwrap();
        assert!(!state.exists());
        for place in [file.clone(), file.join("state")] {
            let error = examine(&place).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotADirectory, "{error}");
            assert!(error.to_string().contains("set state_dir to a directory"), "{error}");
        }
        let error = examine(Path::new("/no-such-pool/zgate")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
    }

    #[test]
    fn a_directory_whose_dataset_may_not_be_mounted_is_not_made() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("tank");
        let state = root.join("zgate/state");
        let refused = |state: &Path| {
            let said = make(state, &[]).unwrap_err().to_string();
            let wanted = format!("`install -d -m 700 {}`", state.display());
            assert!(said.contains("may not be mounted") && said.contains(&wanted), "{said}");
            assert!(!state.exists());
        };
        // The pool is not imported.
        refused(Path::new("/no-such-pool/zgate/state"));
        fs::create_dir(&root).unwrap();
        refused(&state);
        // The dataset is not mounted; its mount point is there.
        fs::create_dir(root.join("zgate")).unwrap();
        refused(&state);
        make(&state, &[dir.path()]).unwrap();
        assert!(state.exists(), "nothing is mounted among temporary files");
        fs::remove_dir(&state).unwrap();
        fs::write(root.join("zgate/zgate.toml"), "").unwrap();
        make(&state, &[]).unwrap();
        assert!(state.exists());
    }
}
