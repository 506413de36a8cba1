//! Records of the clients that may reclaim after a restart: one file for each, named by a digest.

use super::{StateDir, digest_name, named, put_in_place, remove, sync_dir};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// Path and content of a client's record, or the error of reading it.
pub(crate) type ReadRecord = io::Result<(PathBuf, Vec<u8>)>;

/// A change of one client's record.
#[derive(Debug)]
pub(crate) enum RecordChange {
    /// Stores the record.
    Put {
        /// Name of the client.
        name: Vec<u8>,
        /// Content of the record.
        content: Vec<u8>,
    },
    /// Removes the record; a missing one counts as removed.
    Remove {
        /// Name of the client.
        name: Vec<u8>,
    },
}

impl StateDir {
    /// Changes clients' records, in this order; each is on stable storage if
    /// its result is `Ok`. The directory is synced once for all, if anything has changed.
    pub(crate) fn change_clients(&self, changes: &[RecordChange]) -> Vec<io::Result<()>> {
        let mut outcomes: Vec<_> =
            changes.iter().map(|change| self.change_client(change)).collect();
        if self.has_unsynced_clients.load(Ordering::Relaxed)
            && let Err(error) = self.sync_clients()
        {
            let unsynced = outcomes.iter_mut().filter(|outcome| outcome.is_ok());
            unsynced.for_each(|outcome| *outcome = Err(named(&self.clients_dir(), "sync", &error)));
        }
        outcomes
    }

    /// Changes one record; the directory is not synced. A record that is there stays: those of
    /// all clients that come back after a restart, which wait for them.
    fn change_client(&self, change: &RecordChange) -> io::Result<()> {
        match change {
            RecordChange::Put { name, content } => {
                let path = self.client_path(name);
                if fs::read(&path).is_ok_and(|found| found == *content) {
                    return Ok(());
                }
                self.has_unsynced_clients.store(true, Ordering::Relaxed);
                put_in_place(&path, content).map_err(|error| named(&path, "write", &error))
            }
            RecordChange::Remove { name } => {
                self.has_unsynced_clients.store(true, Ordering::Relaxed);
                remove(&self.client_path(name))
            }
        }
    }

    fn clients_dir(&self) -> PathBuf {
        self.path.join("clients")
    }

    /// Syncs the directory of clients' records. Each has been synced before it got its name.
    fn sync_clients(&self) -> io::Result<()> {
        sync_dir(&self.clients_dir())?;
        self.has_unsynced_clients.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Returns all records. Called before any is changed.
    ///
    /// # Errors
    /// The path and the reason, if the directory cannot be read.
    pub(crate) fn clients(&self) -> io::Result<Vec<ReadRecord>> {
        let dir = self.clients_dir();
        // Now, and not when the first client waits for its record. If it fails, that one tells.
        let _ = self.sync_clients();
        let mut records = Vec::new();
        for entry in fs::read_dir(&dir).map_err(|error| named(&dir, "read", &error))? {
            let path = match entry {
                Ok(entry) => entry.path(),
                Err(error) => {
                    records.push(Err(named(&dir, "read", &error)));
                    continue;
                }
            };
            if path.extension().is_none() {
                let raw = fs::read(&path).map_err(|error| named(&path, "read", &error));
                records.push(raw.map(|raw| (path, raw)));
            }
        }
        Ok(records)
    }

    fn client_path(&self, name: &[u8]) -> PathBuf {
        self.clients_dir().join(digest_name(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_record_that_is_there_is_not_written_again() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        let put = |content: &[u8]| {
            let change = RecordChange::Put { name: b"a".to_vec(), content: content.to_vec() };
            state.change_clients(&[change]).remove(0).unwrap();
            fs::metadata(state.client_path(b"a")).unwrap().ino()
        };
        let first = put(b"record");
        // A file that takes its place is another one as long as this one is open.
        let _kept = File::open(state.client_path(b"a")).unwrap();
        assert!(!state.has_unsynced_clients.load(Ordering::Relaxed));
        assert_eq!(put(b"record"), first);
        assert!(!state.has_unsynced_clients.load(Ordering::Relaxed), "nothing is to be synced");
        assert_ne!(put(b"another"), first);
    }

    #[test]
    fn records_of_a_gateway_that_was_killed_count_once_they_are_synced() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        assert!(state.has_unsynced_clients.load(Ordering::Relaxed));
        state.clients().unwrap();
        assert!(!state.has_unsynced_clients.load(Ordering::Relaxed));
        let put = || [RecordChange::Put { name: b"a".to_vec(), content: b"record".to_vec() }];
        let clients = state.clients_dir();
        // Without the directory neither is there a record, nor can anything be synced.
        fs::remove_dir_all(&clients).unwrap();
        assert!(state.change_clients(&put())[0].is_err());
        assert!(state.has_unsynced_clients.load(Ordering::Relaxed));
        fs::create_dir(&clients).unwrap();
        fs::write(state.client_path(b"a"), b"record").unwrap();
        assert!(state.change_clients(&put())[0].is_ok());
        assert!(!state.has_unsynced_clients.load(Ordering::Relaxed), "it was there, not synced");
    }
}
