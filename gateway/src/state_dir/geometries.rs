//! Geometries of logical units: what initiators were told of each when it was served last.
//! They only help a logical unit whose storage is late, so their number is bounded, and
//! the directory is made when the first one is written: a start needs no space for it.

use super::{StateDir, named, read_text, remove, sync_dir};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::SystemTime;

/// Most records: several for each logical unit of a large gateway. Those of disks that are
/// gone for good are not told from those whose pool is away.
const MAX_GEOMETRIES: usize = 16 << 10;

/// Most bytes that are read of a record, which has some 200: the rest of a damaged one is
/// not read.
const MAX_RECORD_BYTES: u64 = 4 << 10;

impl StateDir {
    fn geometries_dir(&self) -> PathBuf {
        self.path.join("geometries")
    }

    /// Returns the path of the geometry of a logical unit.
    pub(crate) fn geometry_path(&self, name: &str) -> PathBuf {
        self.geometries_dir().join(name)
    }

    /// Returns the geometry that a logical unit had.
    ///
    /// # Errors
    /// The path and the reason; a missing file means none.
    pub(crate) fn geometry(&self, name: &str) -> io::Result<Option<String>> {
        read_text(&self.geometry_path(name), MAX_RECORD_BYTES)
    }

    /// Saves the geometry of a logical unit that is served now; on stable storage on return.
    /// Of too many, those that were not served for the longest time are removed.
    ///
    /// # Errors
    /// The path and the reason.
    pub(crate) fn put_geometry(&self, name: &str, text: &str) -> io::Result<()> {
        self.put_geometry_among(name, text, MAX_GEOMETRIES)
    }

    fn put_geometry_among(&self, name: &str, text: &str, most: usize) -> io::Result<()> {
        let path = self.geometry_path(name);
        match fs::read(&path) {
            Ok(found) if found == text.as_bytes() => {
                let file = File::open(&path);
                let noted = file.and_then(|file| file.set_modified(SystemTime::now()));
                return noted.map_err(|error| named(&path, "write", &error));
            }
            Ok(_) => {}
            Err(_) => self.make_room(most)?,
        }
        self.replace(&path, text.as_bytes())
    }

    /// Makes the directory, and room for one more record in it.
    fn make_room(&self, most: usize) -> io::Result<()> {
        let dir = self.geometries_dir();
        if !dir.exists() {
            let made = DirBuilder::new().mode(0o700).create(&dir);
            made.and_then(|()| sync_dir(&self.path))
                .map_err(|error| named(&dir, "create", &error))?;
        }
        let entries = fs::read_dir(&dir).map_err(|error| named(&dir, "read", &error))?;
        let paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        let surplus = (paths.len() + 1).saturating_sub(most);
        if surplus == 0 {
            return Ok(());
        }
        let dated = |path: PathBuf| Some((fs::metadata(&path).ok()?.modified().ok()?, path));
        let mut records: Vec<(SystemTime, PathBuf)> = paths.into_iter().filter_map(dated).collect();
        records.sort_unstable();
        records.iter().take(surplus).try_for_each(|(_, path)| remove(path))
    }

    /// Removes the geometry of a logical unit that was removed.
    ///
    /// # Errors
    /// The path and the reason; a missing file is not an error.
    pub(crate) fn forget_geometry(&self, name: &str) -> io::Result<()> {
        remove(&self.geometry_path(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn of_too_many_geometries_those_not_served_for_the_longest_time_go() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        assert_eq!(state.geometry("1").unwrap(), None);
        let dated = |name: &str, seconds: u64| {
            let file = File::open(state.geometry_path(name)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
        };
        for (name, seconds) in [("1", 10), ("2", 20), ("3", 30)] {
            state.put_geometry_among(name, "old", 3).unwrap();
            dated(name, seconds);
        }
        // The first one comes into service again, as it was.
        state.put_geometry_among("1", "old", 3).unwrap();
        state.put_geometry_among("4", "new", 3).unwrap();
        let there = |name: &str| state.geometry(name).unwrap().is_some();
        assert_eq!(["1", "2", "3", "4"].map(there), [true, false, true, true]);
        // A change of one that is there needs no room.
        state.put_geometry_among("3", "new", 3).unwrap();
        assert_eq!(state.geometry("3").unwrap().as_deref(), Some("new"));
        assert!(there("1") && there("4"));
        let long = "x".repeat(1 << 20);
        state.put_geometry_among("4", &long, 3).unwrap();
        let read = state.geometry("4").unwrap().unwrap();
        assert!(read.len() as u64 == MAX_RECORD_BYTES, "{} bytes", read.len());
        for _ in 0..2 {
            state.forget_geometry("4").unwrap();
        }
        assert!(!there("4"));
    }
}
