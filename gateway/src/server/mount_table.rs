//! The mount table, read by a thread of its own: ZFS keeps its readers waiting while a file
//! system is suspended, as for a rollback. Where the pool hangs, that is for ever.

use super::limits::MOUNT_TABLE_PATIENCE;
use crate::observe::throttle::warn_seldom;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use zgate_io::mountinfo::{self, MountLine};

/// Reader of the mount table, which may block its thread for ever.
pub(super) type MountReader = dyn Fn() -> io::Result<Vec<MountLine>> + Send + Sync;

/// The mount table of a process.
pub(super) struct MountTable {
    reader: Arc<MountReader>,
    /// Time limit of a read.
    patience: Duration,
    /// Thread of a read that was late. While it waits, no other read begins.
    late: Mutex<Option<JoinHandle<()>>>,
}

impl MountTable {
    /// The table of this process.
    pub(super) fn of_this_process() -> Self {
        Self::with(Arc::new(mountinfo::read), MOUNT_TABLE_PATIENCE)
    }

    /// A table with this reader and this time limit of a read.
    pub(super) fn with(reader: Arc<MountReader>, patience: Duration) -> Self {
        Self { reader, patience, late: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the table; one caller at a time. None: it is not read in time, or an earlier read
    /// still waits. That one is not waited for again: it may have read what is older than this
    /// call.
    pub(super) fn read(&self) -> Option<io::Result<Vec<MountLine>>> {
        let mut late = self.lock();
        if is_waiting(&late) {
            return None;
        }
        let (done, read) = mpsc::channel();
        let reader = Arc::clone(&self.reader);
        let work = move || {
            // Nobody receives it after the time limit.
            let _ = done.send(reader());
        };
        let thread = match Builder::new().name("zgate-mountinfo".to_owned()).spawn(work) {
            Ok(thread) => thread,
            Err(error) => {
                warn_seldom!(%error, "cannot start the thread that reads the mount table");
                return None;
            }
        };
        let answer = read.recv_timeout(self.patience);
        *late = answer.is_err().then_some(thread);
        if answer.is_err() {
            warn_seldom!(
                seconds = self.patience.as_secs(),
                "the mount table is not read in time, as while ZFS keeps a file system of a pool \
                 that hangs suspended: until it is, NFS clients of all exports are told of each \
                 rollback; see `zpool status`"
            );
        }
        answer.ok()
    }

    /// Returns whether a read that was late still waits: another one would not begin.
    pub(super) fn is_waiting(&self) -> bool {
        is_waiting(&self.lock())
    }
}

fn is_waiting(late: &Option<JoinHandle<()>>) -> bool {
    late.as_ref().is_some_and(|thread| !thread.is_finished())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// Time limit for what must happen.
    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn a_read_that_hangs_is_the_only_one_and_the_next_begins_when_it_has_ended() {
        let ((begins, begun), (end, ends)) = (mpsc::channel(), mpsc::channel::<()>());
        let ends = Mutex::new(ends);
        let reader = move || -> io::Result<Vec<MountLine>> {
            begins.send(()).unwrap();
            // The other end is dropped.
            let _ = ends.lock().unwrap().recv();
            Ok(Vec::new())
        };
        let mut table = MountTable::with(Arc::new(reader), Duration::ZERO);
        assert!(!table.is_waiting());
        for _ in 0..3 {
            assert!(table.read().is_none() && table.is_waiting());
        }
        begun.recv_timeout(PATIENCE).unwrap();
        assert!(begun.try_recv().is_err(), "one read waits");
        drop(end);
        let deadline = Instant::now() + PATIENCE;
        while table.is_waiting() {
            assert!(Instant::now() < deadline, "the read has not ended");
            std::thread::yield_now();
        }
        table.patience = PATIENCE;
        for _ in 0..3 {
            assert!(table.read().is_some_and(|read| read.is_ok()) && !table.is_waiting());
        }
        assert_eq!(begun.try_iter().count(), 3);
    }

    #[test]
    fn a_table_that_cannot_be_read_is_not_late() {
        let refused = || io::Error::from(io::ErrorKind::PermissionDenied);
        let reader = move || -> io::Result<Vec<MountLine>> { Err(refused()) };
        let table = MountTable::with(Arc::new(reader), PATIENCE);
        assert!(table.read().is_some_and(|read| read.is_err()) && !table.is_waiting());
    }
}
