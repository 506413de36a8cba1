//! The local file of a copy that is not complete.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A partial copy of one version of a file. It is locked as long as this
/// exists: another copy to the same target would mix its bytes with these.
#[derive(Debug)]
pub(super) struct Part {
    file: File,
    path: PathBuf,
    /// Length of the complete file.
    size: u64,
    /// Bytes that an interrupted copy has left.
    have: u64,
}

impl Part {
    /// Opens the part of a copy to `to`, of the version with that change
    /// attribute and length. A part of another version is not resumed.
    ///
    /// # Errors
    /// Its path and the reason: another copy writes it.
    pub(super) fn open(to: &Path, change: u64, size: u64) -> Result<Self, String> {
        let path = PathBuf::from(format!("{}.{change:016x}.partial", to.display()));
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        let opened = OpenOptions::new().create(true).write(true).truncate(false).open(&path);
        let file = opened.map_err(failed)?;
        let is_ours = match file.try_lock() {
            Ok(()) => is_at(&file, &path).map_err(failed)?,
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        };
        if !is_ours {
            let reason = "another copy writes it, or has just completed it";
            return Err(format!("{}: {reason}; wait for its end, then try again", path.display()));
        }
        let mut have = file.metadata().map_err(failed)?.len();
        if have > size {
            // It is not a part of this version.
            file.set_len(0).map_err(failed)?;
            have = 0;
        }
        Ok(Self { file, path, size, have })
    }

    /// Returns the number of bytes that an interrupted copy has left.
    pub(super) fn have(&self) -> u64 {
        self.have
    }

    /// Writes a piece at its place.
    ///
    /// # Errors
    /// Its path and the reason.
    pub(super) fn write(&self, piece: &[u8], at: u64) -> Result<(), String> {
        self.file.write_all_at(piece, at).map_err(|error| self.failed(&error))
    }

    /// Gives the complete file its name.
    ///
    /// # Errors
    /// Its path and the reason: it does not have the length of the file.
    pub(super) fn finish(self, to: &Path) -> Result<(), String> {
        self.file.sync_all().map_err(|error| self.failed(&error))?;
        let has = self.file.metadata().map_err(|error| self.failed(&error))?.len();
        if has != self.size {
            let reason = format!("{has} bytes, not the {} of the file", self.size);
            return Err(format!("{}: {reason}; remove it, then try again", self.path.display()));
        }
        fs::rename(&self.path, to).map_err(|error| format!("{}: {error}", to.display()))
    }

    fn failed(&self, error: &io::Error) -> String {
        format!("{}: {error}", self.path.display())
    }
}

/// Returns whether a path still names an open file: the copy that had the lock
/// before may have given it another name.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let open = file.metadata()?;
    match fs::metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (open.dev(), open.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_copy_to_the_same_target_is_refused_and_later_resumes() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("a.gguf");
        let first = Part::open(&to, 7, 5).unwrap();
        first.write(b"he", 0).unwrap();
        let refused = Part::open(&to, 7, 5).unwrap_err();
        assert!(refused.contains("0007.partial: another copy writes it"), "{refused}");
        // A part of another version is another file.
        assert_eq!(Part::open(&to, 8, 5).unwrap().have(), 0);
        drop(first);
        let second = Part::open(&to, 7, 5).unwrap();
        assert_eq!(second.have(), 2);
        second.write(b"llo", 2).unwrap();
        second.finish(&to).unwrap();
        assert_eq!(fs::read(&to).unwrap(), b"hello");
    }

    #[test]
    fn a_part_of_another_length_gets_no_name() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("a.gguf");
        let part = Part::open(&to, 7, 5).unwrap();
        part.write(b"hell", 0).unwrap();
        let refused = part.finish(&to).unwrap_err();
        assert!(refused.contains("4 bytes, not the 5 of the file"), "{refused}");
        assert!(!to.exists());
        // One that is longer than the file does not belong to it.
        let part = Part::open(&to, 7, 3).unwrap();
        assert_eq!(part.have(), 0);
        part.write(b"abc", 0).unwrap();
        part.finish(&to).unwrap();
        assert_eq!(fs::read(&to).unwrap(), b"abc");
    }

    #[test]
    fn a_file_that_was_renamed_before_it_was_locked_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let (part, to) = (dir.path().join("part"), dir.path().join("to"));
        let file = File::create(&part).unwrap();
        assert!(is_at(&file, &part).unwrap());
        fs::rename(&part, &to).unwrap();
        assert!(!is_at(&file, &part).unwrap());
        File::create(&part).unwrap();
        assert!(!is_at(&file, &part).unwrap(), "it is the part of another copy");
    }
}
