//! Files of logical units in the state directory, for those whom others wait for: searches,
//! reloads, live commands. A disk that hangs keeps none of them longer than
//! [`STATE_PATIENCE`](crate::state_writer::STATE_PATIENCE), and only what needs it is not served.

use crate::state_dir::{StateDir, named};
use crate::state_writer::StateWriter;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Numbers of zvols: the names of targets, with the content of their files.
pub(super) type NumberTexts = Vec<(String, String)>;

/// Fate of numbers that are written too late, when they have been given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfLate {
    /// They stay: the next attempt finds them.
    Keep,
    /// They are replaced by those before: the settings that need them take no effect.
    PutBack,
}

/// The files, and the threads that read and write them.
#[derive(Debug)]
pub(crate) struct StateFiles {
    /// The directory, for those whom nobody waits for.
    pub(crate) dir: Arc<StateDir>,
    /// Reads and writes numbers and notes: each finds what was written before it.
    writer: StateWriter,
    /// Reads the rest, also while a write hangs.
    reader: StateWriter,
    known: Mutex<Known>,
}

/// Content of files that is on the disk for certain, for the time for which it does not answer.
#[derive(Debug, Default)]
struct Known {
    /// Numbers of the zvols of each target.
    numbers: BTreeMap<String, String>,
    /// Files that the note of each logical unit has.
    files: BTreeMap<String, BTreeSet<PathBuf>>,
}

impl StateFiles {
    /// Starts the threads.
    ///
    /// # Errors
    /// If they cannot be started.
    pub(crate) fn start(dir: Arc<StateDir>) -> io::Result<Self> {
        let [writer, reader] = ["zgate-luns", "zgate-reads"].map(StateWriter::start);
        Ok(Self { dir, writer: writer?, reader: reader?, known: Mutex::default() })
    }

    /// Has those who need the files wait for so long from now on.
    pub(crate) fn set_patience(&self, patience: Duration) {
        for thread in [&self.writer, &self.reader] {
            thread.set_patience(patience);
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the stored numbers of a target's zvols; those that were stored last if the disk
    /// does not answer.
    ///
    /// # Errors
    /// The path and the reason.
    pub(super) fn lun_numbers(&self, target: &str) -> io::Result<String> {
        let (dir, name) = (Arc::clone(&self.dir), target.to_owned());
        match self.writer.within(move || dir.lun_numbers(&name), drop) {
            Ok(read) => {
                let text = read?;
                self.known().numbers.insert(target.to_owned(), text.clone());
                Ok(text)
            }
            Err(late) => {
                let known = self.known().numbers.get(target).cloned();
                known.ok_or_else(|| named(&self.dir.luns_path(target), "read", &late))
            }
        }
    }

    /// Saves the numbers of the zvols of these targets, of all or of none; on stable storage on
    /// return.
    ///
    /// # Errors
    /// The path and the reason.
    pub(super) fn put_lun_numbers(&self, changed: NumberTexts, if_late: IfLate) -> io::Result<()> {
        let Some((first, _)) = changed.first() else { return Ok(()) };
        let path = self.dir.luns_path(first);
        let (dir, new) = (Arc::clone(&self.dir), changed.clone());
        let work = move || -> io::Result<NumberTexts> {
            let before = match if_late {
                IfLate::Keep => NumberTexts::new(),
                IfLate::PutBack => numbers_before(&dir, &new)?,
            };
            put(&dir, &new)?;
            Ok(before)
        };
        // Not the directory itself, which its next user may open before this is dropped.
        let dir = Arc::downgrade(&self.dir);
        let put_back = move |stored: io::Result<NumberTexts>| {
            let (Ok(before), Some(dir)) = (stored, dir.upgrade()) else { return };
            if let Err(error) = put(&dir, &before) {
                tracing::error!(%error, "numbers of zvols of settings that took no effect stay");
            }
        };
        let stored = self.writer.within(work, put_back);
        stored.map_err(|late| named(&path, "write", &late))??;
        self.known().numbers.extend(changed);
        Ok(())
    }

    /// Writes a note that a logical unit may be served from the file at `path`; on stable
    /// storage on return.
    ///
    /// # Errors
    /// The path and the reason.
    pub(super) fn note_file(&self, name: &str, path: &Path) -> io::Result<()> {
        let (dir, unit, file) = (Arc::clone(&self.dir), name.to_owned(), path.to_owned());
        match self.writer.within(move || dir.note_file(&unit, &file), drop) {
            Ok(noted) => {
                noted?;
                let mut known = self.known();
                known.files.entry(name.to_owned()).or_default().insert(path.to_owned());
                Ok(())
            }
            Err(late) => {
                let is_noted = self.known().files.get(name).is_some_and(|all| all.contains(path));
                let error = || named(&self.dir.file_note(name), "write", &late);
                if is_noted { Ok(()) } else { Err(error()) }
            }
        }
    }

    /// Writes a note that a logical unit is served from the file at `path`, and no longer from
    /// another one: later, if the disk does not answer.
    ///
    /// # Errors
    /// The path and the reason.
    pub(super) fn settle_file(&self, name: &str, path: &Path) -> io::Result<()> {
        self.known().files.insert(name.to_owned(), BTreeSet::from([path.to_owned()]));
        let (dir, unit, file) = (Arc::clone(&self.dir), name.to_owned(), path.to_owned());
        let settled = self.writer.in_any_case(move || dir.settle_file(&unit, &file));
        settled.map_err(|late| named(&self.dir.file_note(name), "write", &late))?
    }

    /// Removes the note when the unit is no longer served: later, if the disk does not answer.
    ///
    /// # Errors
    /// The path and the reason; a missing note is not an error.
    pub(in crate::iscsi) fn forget_file(&self, name: &str) -> io::Result<()> {
        self.known().files.remove(name);
        let (dir, unit) = (Arc::clone(&self.dir), name.to_owned());
        let forgotten = self.writer.in_any_case(move || dir.forget_file(&unit));
        forgotten.map_err(|late| named(&self.dir.file_note(name), "remove", &late))?
    }

    /// Returns the saved persistent reservations of a logical unit.
    ///
    /// # Errors
    /// The path and the reason; a missing file means none.
    pub(super) fn reservations(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let (dir, unit) = (Arc::clone(&self.dir), name.to_owned());
        let read = self.reader.within(move || dir.reservations(&unit), drop);
        read.map_err(|late| named(&self.dir.reservations_path(name), "read", &late))?
    }

    /// Returns the geometry that a logical unit had.
    ///
    /// # Errors
    /// The path and the reason; a missing file means none.
    pub(super) fn geometry(&self, name: &str) -> io::Result<Option<String>> {
        let (dir, unit) = (Arc::clone(&self.dir), name.to_owned());
        let read = self.reader.within(move || dir.geometry(&unit), drop);
        read.map_err(|late| named(&self.dir.geometry_path(name), "read", &late))?
    }

    /// Lets writes, or writes and reads, hang until what this returns is dropped.
    #[cfg(test)]
    pub(in crate::iscsi) fn hang(&self, reads: bool) -> Vec<std::sync::mpsc::Sender<()>> {
        let reader = reads.then_some(&self.reader);
        std::iter::once(&self.writer).chain(reader).map(StateWriter::hang).collect()
    }
}

/// Returns the numbers that these targets have.
fn numbers_before(dir: &StateDir, new: &[(String, String)]) -> io::Result<NumberTexts> {
    new.iter().map(|(target, _)| Ok((target.clone(), dir.lun_numbers(target)?))).collect()
}

fn put(dir: &StateDir, numbers: &[(String, String)]) -> io::Result<()> {
    let numbers = numbers.iter().map(|(target, text)| (target.as_str(), text.as_str()));
    dir.put_lun_numbers(&numbers.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// Time limit for expected events.
    const LIMIT: Duration = Duration::from_secs(30);

    fn files(dir: &tempfile::TempDir) -> StateFiles {
        StateFiles::start(Arc::new(StateDir::open(dir.path()).unwrap())).unwrap()
    }

    fn numbers(text: &str) -> NumberTexts {
        vec![("a".to_owned(), text.to_owned())]
    }

    fn eventually(is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + LIMIT;
        while !is_so() {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_disk_that_hangs_keeps_nobody_waiting_and_takes_nothing_that_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let files = files(&dir);
        let [a, b] = ["/a", "/b"].map(Path::new);
        files.put_lun_numbers(numbers("1 7\n"), IfLate::Keep).unwrap();
        files.note_file("naa", a).unwrap();
        let hangs = files.hang(true);
        assert_eq!(files.lun_numbers("a").unwrap(), "1 7\n");
        files.note_file("naa", a).unwrap();
        let all = [
            files.lun_numbers("b").map(drop),
            files.put_lun_numbers(numbers("1 8\n"), IfLate::Keep),
            files.note_file("naa", b),
            files.settle_file("other", b),
            files.forget_file("gone"),
            files.reservations("naa").map(drop),
            files.geometry("naa").map(drop),
        ];
        for error in all.map(Result::unwrap_err) {
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            let place = dir.path().to_str().unwrap();
            for part in [place, "its disk has not answered", "; check that disk"] {
                assert!(error.to_string().contains(part), "{error}");
            }
        }
        drop(hangs);
        eventually(|| files.lun_numbers("b").is_ok() && files.geometry("naa").is_ok());
        // What was given up is not done, and what cannot be is done later.
        assert_eq!(files.dir.lun_numbers("a").unwrap(), "1 7\n");
        assert!(!files.dir.knows_file("naa", b).unwrap());
        assert!(files.dir.knows_file("other", b).unwrap());
    }

    #[test]
    fn a_start_waits_longer_for_a_slow_disk() {
        use crate::state_writer::START_STATE_PATIENCE;
        let dir = tempfile::tempdir().unwrap();
        let files = files(&dir);
        // It seems to hang for those who wait for as long as a search.
        let hangs = files.hang(false);
        assert_eq!(files.lun_numbers("a").unwrap_err().kind(), io::ErrorKind::TimedOut);
        files.set_patience(START_STATE_PATIENCE);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| files.lun_numbers("a"));
            std::thread::sleep(Duration::from_millis(50));
            drop(hangs);
            assert_eq!(waits.join().unwrap().unwrap(), "");
        });
    }

    #[test]
    fn numbers_of_settings_that_take_no_effect_are_put_back() {
        use rustix::fs::{CWD, Mode, mkfifoat};
        let dir = tempfile::tempdir().unwrap();
        let files = files(&dir);
        files.set_patience(Duration::from_millis(500));
        let path = files.dir.luns_path("a");
        // The file, which is read when somebody writes it.
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        let late = files.put_lun_numbers(numbers("1 8\n"), IfLate::PutBack).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        std::fs::write(&path, "1 7\n").unwrap();
        eventually(|| std::fs::metadata(&path).is_ok_and(|found| found.is_file()));
        eventually(|| files.dir.lun_numbers("a").unwrap() == "1 7\n");
        // It is not busy with what was late any more, and a disk may be slow.
        files.set_patience(LIMIT);
        files.put_lun_numbers(numbers("1 8\n"), IfLate::PutBack).unwrap();
        assert_eq!(files.lun_numbers("a").unwrap(), "1 8\n");
    }
}
