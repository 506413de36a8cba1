//! Exports that would serve the state directory: a client could read the secret that signs
//! file handles, and change the records of other clients.

use super::absent::Fault;
use std::fs::{canonicalize, metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Returns whether a directory is the state directory, or contains it or the place where it
/// would be made: also by a symbolic link, or by another mount of the same directory. Blocks
/// for as long as the storage does.
#[must_use]
pub fn exposes(dir: &Path, state_dir: &Path) -> bool {
    let identity = |path: &Path| metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let Some(served) = identity(dir) else { return false };
    let there = state_dir.ancestors().find_map(|above| canonicalize(above).ok());
    there.is_some_and(|there| there.ancestors().any(|above| identity(above) == Some(served)))
}

/// Refuses to export such a directory. Blocks for as long as the storage does.
///
/// # Errors
/// The configuration is wrong.
pub(crate) fn refuse(dir: &Path, state_dir: &Path) -> Result<(), Fault> {
    if !exposes(dir, state_dir) {
        return Ok(());
    }
    let (dir, state_dir) = (dir.display(), state_dir.display());
    let reason = format!(
        "{dir} contains the state directory {state_dir}: clients could read the secret that \
         signs file handles"
    );
    let next_step = "export directories beside it, or set state_dir to a place outside";
    Err(Fault { next_step: next_step.to_owned(), ..Fault::wrong(reason) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::create_dir_all;

    #[test]
    fn a_directory_exposes_what_is_below_it_by_any_name() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        create_dir_all(at("pool/zgate/state/clients")).unwrap();
        create_dir_all(at("pool/data")).unwrap();
        std::os::unix::fs::symlink(at("pool"), at("link")).unwrap();
        let state = at("pool/zgate/state");
        for exposed in ["", "pool", "pool/zgate", "pool/zgate/state", "link", "link/zgate"] {
            assert!(exposes(&at(exposed), &state), "{exposed}");
            assert!(exposes(&at(exposed), &at("link/zgate/state")), "{exposed}");
        }
        assert!(exposes(Path::new("/"), &state));
        for apart in ["pool/data", "absent", "pool/zgate/state/clients"] {
            assert!(!exposes(&at(apart), &state), "{apart}");
        }
        // It will be made there.
        assert!(exposes(&at("pool/data"), &at("pool/data/new/state")));
        assert!(!exposes(&at("pool/data"), &at("pool/new/state")));
        let fault = refuse(&at("pool"), &state).unwrap_err();
        assert!(!fault.absent && fault.to_string().contains("contains the state directory"));
    }
}
