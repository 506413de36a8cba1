//! The place of an exported path: whether the directory that was opened is still
//! there. It may be removed, renamed, or covered by a file system that is mounted
//! there later; then the one at the path is to be served.

use std::fs::metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Looks in a row that must find another directory, or none: it may be replaced by
/// two renames.
const LOOKS: u32 = 2;

/// The place of one export.
#[derive(Debug)]
pub(crate) struct Place {
    path: PathBuf,
    /// Device and inode of the directory that is served; none: not known.
    served: Option<(u64, u64)>,
    elsewhere: AtomicU32,
    is_lost: AtomicBool,
}

impl Place {
    /// The place of a directory that was opened this moment. Blocks.
    pub(super) fn of(path: PathBuf) -> Self {
        let found = metadata(&path).ok();
        let served = found.map(|found| (found.dev(), found.ino()));
        Self { path, served, elsewhere: AtomicU32::new(0), is_lost: AtomicBool::new(false) }
    }

    /// Returns whether the directory that is served is no longer at its path.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    /// Looks at the path; true: the directory was lost just now. Blocks for as long
    /// as the storage does.
    pub(crate) fn look(&self) -> bool {
        if self.is_lost() {
            return false;
        }
        let elsewhere = match (metadata(&self.path), self.served) {
            (Ok(found), Some(served)) => (found.dev(), found.ino()) != served,
            (Err(error), _) => {
                matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
            }
            (Ok(_), None) => false,
        };
        if !elsewhere {
            self.elsewhere.store(0, Ordering::Relaxed);
            return false;
        }
        if self.elsewhere.fetch_add(1, Ordering::Relaxed) + 1 < LOOKS {
            return false;
        }
        self.is_lost.store(true, Ordering::Release);
        tracing::warn!(
            path = %self.path.display(),
            "the exported directory is not at its path any more: what is there is served instead"
        );
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_directory_is_lost_when_another_one_or_none_is_there_twice() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        for replaced in [true, false] {
            fs::create_dir_all(&path).unwrap();
            let place = Place::of(path.clone());
            assert!(!place.look() && !place.look());
            let away = dir.path().join("b");
            fs::rename(&path, &away).unwrap();
            assert!(!place.look());
            // It is back before the second look.
            fs::rename(&away, &path).unwrap();
            assert!(!place.look());
            fs::rename(&path, &away).unwrap();
            if replaced {
                fs::create_dir(&path).unwrap();
            }
            assert!(!place.look() && !place.is_lost());
            assert!(place.look() && place.is_lost());
            assert!(!place.look(), "once");
            fs::remove_dir(&away).unwrap();
        }
    }
}
