//! Keeps live changes in a file of `conf_dir`: the new text is written beside
//! the file and synced, then renamed over it. Whoever reads the directory sees
//! the old or the new text, also after a power failure.

use crate::dir_lock::{DirLock, LockError};
use crate::iscsi::change::Keep;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use zgate_config::{ConfigFiles, Edit, LiveChange};

/// Mode of a new directory and of a new file: as the main file, they hold no
/// secrets.
const DIR_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;

/// Lock file of the directory; it begins with a dot, so that it is no part of
/// the configuration.
const LOCK: &str = ".lock";
/// Next step for a directory that another gateway uses.
const OTHER_DIR: &str =
    "stop it, or name a directory of this gateway's own in server.conf_dir of its configuration";

/// Lock on the directory that this gateway writes to.
#[derive(Debug, Default)]
pub(super) struct ConfDirLock(Option<(PathBuf, DirLock)>);

impl ConfDirLock {
    /// Locks the directory of the configuration with this main file, if it
    /// exists and can be written: a gateway that cannot write there changes
    /// nothing there either. The directory of earlier is released.
    ///
    /// # Errors
    /// The gateway that uses it, and the next step.
    pub(super) fn hold(&mut self, main: &Path) -> io::Result<()> {
        let files = ConfigFiles::read(main).map_err(invalid)?;
        self.hold_dir(files.dir())
    }

    fn hold_dir(&mut self, dir: &Path) -> io::Result<()> {
        if self.0.as_ref().is_some_and(|(held, _)| held == dir) {
            return Ok(());
        }
        match DirLock::take(dir, LOCK) {
            Ok(lock) => self.0 = Some((dir.to_owned(), lock)),
            Err(error @ LockError::Held(_)) => return Err(error.message(dir, OTHER_DIR)),
            Err(LockError::Io(error)) => {
                tracing::debug!(dir = %dir.display(), %error, "not locked");
                self.0 = None;
            }
        }
        Ok(())
    }
}

/// One change on its way into a file.
pub(super) struct Kept<'a> {
    main: &'a Path,
    lock: &'a mut ConfDirLock,
    change: &'a LiveChange,
    staged: Option<Staged>,
    /// File that has the change now.
    pub(super) file: Option<PathBuf>,
    /// Reason for which a power failure may undo the change.
    pub(super) doubt: Option<String>,
}

/// New text beside the file; removed when it is dropped.
struct Staged {
    edit: Edit,
    temporary: PathBuf,
}

impl Drop for Staged {
    fn drop(&mut self) {
        // After the rename there is no such file.
        let _ = fs::remove_file(&self.temporary);
    }
}

fn invalid(reason: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, reason.to_string())
}

/// Names the directory that cannot be written, and the next step.
fn unwritable(dir: &Path, error: &io::Error) -> io::Error {
    let dir = dir.display();
    let reason = format!(
        "cannot keep the change in {dir}: {error}; nothing has changed. Let the gateway write \
         there (a unit with ProtectSystem= needs ReadWritePaths={dir}), name another directory in \
         server.conf_dir, or pass --runtime-only: then the change lasts until the next reload or \
         restart"
    );
    io::Error::new(error.kind(), reason)
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

fn create_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(DIR_MODE).create(dir)?;
    dir.parent().map_or(Ok(()), sync_dir)
}

/// Returns the present text of a file; none if it does not exist.
fn present(file: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl Staged {
    fn write(edit: Edit) -> io::Result<Self> {
        let dir = edit.file.parent().unwrap_or(Path::new("/"));
        let name = edit.file.file_name().unwrap_or_default().to_string_lossy();
        // Not read as a configuration: it begins with a dot.
        let temporary = dir.join(format!(".{name}.new"));
        let _ = fs::remove_file(&temporary);
        let mut file =
            OpenOptions::new().create_new(true).write(true).mode(FILE_MODE).open(&temporary)?;
        let staged = Self { edit, temporary };
        if let Ok(old) = fs::metadata(&staged.edit.file) {
            file.set_permissions(old.permissions())?;
        }
        file.write_all(staged.edit.after.as_bytes())?;
        file.sync_all()?;
        Ok(staged)
    }

    fn dir(&self) -> &Path {
        self.edit.file.parent().unwrap_or(Path::new("/"))
    }
}

impl<'a> Kept<'a> {
    /// A change that the files of the configuration with this main file are to
    /// keep.
    pub(super) fn new(main: &'a Path, lock: &'a mut ConfDirLock, change: &'a LiveChange) -> Self {
        Self { main, lock, change, staged: None, file: None, doubt: None }
    }
}

impl Keep for Kept<'_> {
    fn stage(&mut self) -> io::Result<()> {
        let files = ConfigFiles::read(self.main).map_err(invalid)?;
        let Some(edit) = files.edit(self.change).map_err(invalid)? else { return Ok(()) };
        create_dir(files.dir()).map_err(|error| unwritable(files.dir(), &error))?;
        self.lock.hold_dir(files.dir())?;
        let staged = Staged::write(edit).map_err(|error| unwritable(files.dir(), &error))?;
        self.staged = Some(staged);
        Ok(())
    }

    fn publish(&mut self) -> io::Result<()> {
        let Some(staged) = self.staged.take() else { return Ok(()) };
        let Edit { file, before, .. } = &staged.edit;
        if present(file)? != *before {
            let reason = format!("{} was edited meanwhile; try again", file.display());
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, reason));
        }
        fs::rename(&staged.temporary, file).map_err(|error| unwritable(staged.dir(), &error))?;
        // The file has the change: from here on it must take effect, too.
        self.file = Some(file.clone());
        self.doubt = sync_dir(staged.dir()).err().map(|error| {
            let dir = staged.dir().display();
            format!("cannot sync {dir}: {error}; a power failure may undo the change")
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIN: &str = "[iscsi]\nlisten = [\"127.0.0.1:3260\"]\n[[target]]\n\
        name = \"iqn.2026-11.test:a\"\n";

    fn add(number: u16) -> LiveChange {
        let lun = format!("number = {number}\npath = \"/luns/{number}\"\n");
        let target = "iqn.2026-11.test:a".to_owned();
        LiveChange::AddLun { target, lun: toml::from_str(&lun).unwrap() }
    }

    fn scratch() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let main = dir.path().join("zgate.toml");
        fs::write(&main, MAIN).unwrap();
        (dir, main)
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).into_iter().flatten();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name != LOCK).collect()
    }

    fn numbers(main: &Path) -> Vec<u16> {
        let config = zgate_config::load(main).unwrap();
        config.targets[0].luns.iter().map(|lun| lun.number).collect()
    }

    #[test]
    fn nothing_is_seen_before_the_whole_is_there() {
        let (dir, main) = scratch();
        let mut lock = ConfDirLock::default();
        let parts = dir.path().join("conf.d");
        let change = add(7);
        let mut kept = Kept::new(&main, &mut lock, &change);
        kept.stage().unwrap();
        // A crash here leaves the old configuration.
        assert_eq!(names(&parts), [".live.toml.new"]);
        assert_eq!(numbers(&main), Vec::<u16>::new());
        kept.publish().unwrap();
        assert_eq!((names(&parts), numbers(&main)), (vec!["live.toml".to_owned()], vec![7]));
        assert_eq!(kept.file, Some(parts.join("live.toml")));
        // What a crash left behind is in nobody's way.
        fs::write(parts.join(".live.toml.new"), "half a fi").unwrap();
        assert_eq!(numbers(&main), [7]);
        let change = add(8);
        let mut kept = Kept::new(&main, &mut lock, &change);
        kept.stage().unwrap();
        kept.publish().unwrap();
        assert_eq!((names(&parts).len(), numbers(&main)), (1, vec![7, 8]));
    }

    #[test]
    fn a_change_that_does_not_take_place_leaves_nothing() {
        let (dir, main) = scratch();
        let mut lock = ConfDirLock::default();
        let change = add(7);
        let mut kept = Kept::new(&main, &mut lock, &change);
        kept.stage().unwrap();
        drop(kept);
        assert_eq!(names(&dir.path().join("conf.d")), Vec::<String>::new());
    }

    #[test]
    fn an_edit_by_hand_at_the_same_time_is_not_lost() {
        let (dir, main) = scratch();
        let mut lock = ConfDirLock::default();
        let change = add(7);
        let mut kept = Kept::new(&main, &mut lock, &change);
        kept.stage().unwrap();
        let file = dir.path().join("conf.d/live.toml");
        fs::write(&file, "# mine\n").unwrap();
        let said = kept.publish().unwrap_err().to_string();
        assert!(said.contains("edited meanwhile"), "{said}");
        assert_eq!(fs::read_to_string(file).unwrap(), "# mine\n");
    }

    #[test]
    fn the_mode_of_the_file_stays() {
        use std::os::unix::fs::PermissionsExt;
        let (dir, main) = scratch();
        let mut lock = ConfDirLock::default();
        let file = dir.path().join("conf.d/live.toml");
        fs::create_dir(file.parent().unwrap()).unwrap();
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let change = add(7);
        let mut kept = Kept::new(&main, &mut lock, &change);
        kept.stage().and_then(|()| kept.publish()).unwrap();
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_named_with_the_next_step() {
        let (dir, main) = scratch();
        let mut lock = ConfDirLock::default();
        // Nobody can create a directory here, root neither.
        std::os::unix::fs::symlink("/proc/nosuch/x", dir.path().join("conf.d")).unwrap();
        let change = add(7);
        let said = Kept::new(&main, &mut lock, &change).stage().unwrap_err().to_string();
        for part in ["conf.d", "nothing has changed", "ReadWritePaths=", "--runtime-only"] {
            assert!(said.contains(part), "{part} is missing in {said}");
        }
    }

    #[test]
    fn two_gateways_do_not_write_to_one_directory() {
        let (dir, main) = scratch();
        let other = dir.path().join("other.toml");
        fs::copy(&main, &other).unwrap();
        // Without the directory there is nothing to lock yet.
        let (mut lock, mut others) = (ConfDirLock::default(), ConfDirLock::default());
        lock.hold(&main).unwrap();
        others.hold(&other).unwrap();
        let change = add(7);
        let mut kept = Kept::new(&main, &mut lock, &change);
        kept.stage().and_then(|()| kept.publish()).unwrap();
        for said in [
            others.hold(&other).unwrap_err(),
            Kept::new(&other, &mut others, &add(8)).stage().unwrap_err(),
        ] {
            let said = said.to_string();
            for part in ["conf.d", &std::process::id().to_string(), "server.conf_dir"] {
                assert!(said.contains(part), "{part} is missing in {said}");
            }
        }
        assert_eq!(numbers(&main), [7]);
        // The lock goes with a directory that a reload names.
        let moved = dir.path().join("moved");
        fs::create_dir(&moved).unwrap();
        let text = format!("[server]\nconf_dir = \"{}\"\n{MAIN}", moved.display());
        fs::write(&main, text).unwrap();
        lock.hold(&main).unwrap();
        others.hold(&other).unwrap();
    }
}
