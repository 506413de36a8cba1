//! The lock of the tables.

use super::Tables;
use super::released::{self, Released};
use std::ops::{Deref, DerefMut};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering};

/// The locked tables. When it is dropped, it is noted for those who take no lock whether any
/// file has state, the tables are unlocked, and then the files are closed that were released
/// meanwhile.
pub struct HeldTables<'t> {
    // The order of the fields is the order in which they are dropped.
    tables: MutexGuard<'t, Tables>,
    has_files: &'t AtomicBool,
    _closed_last: Released,
}

impl<'t> HeldTables<'t> {
    /// Holds the tables.
    #[must_use]
    pub fn new(tables: MutexGuard<'t, Tables>, has_files: &'t AtomicBool) -> Self {
        released::note_locked();
        Self { tables, has_files, _closed_last: Released::default() }
    }
}

impl Deref for HeldTables<'_> {
    type Target = Tables;

    fn deref(&self) -> &Tables {
        &self.tables
    }
}

impl DerefMut for HeldTables<'_> {
    fn deref_mut(&mut self) -> &mut Tables {
        &mut self.tables
    }
}

impl Drop for HeldTables<'_> {
    fn drop(&mut self) {
        let has_files = !self.tables.files.is_empty();
        if self.has_files.load(Ordering::Relaxed) != has_files {
            self.has_files.store(has_files, Ordering::Release);
        }
        self._closed_last = std::mem::take(&mut self.tables.released);
        released::note_unlocked();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex, TryLockError};

    struct File {
        tables: Arc<Mutex<Tables>>,
        closed_unlocked: Arc<AtomicBool>,
    }

    impl Drop for File {
        fn drop(&mut self) {
            let is_locked = matches!(self.tables.try_lock(), Err(TryLockError::WouldBlock));
            self.closed_unlocked.store(!is_locked, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_released_file_is_closed_after_the_tables_are_unlocked() {
        let tables = Arc::<Mutex<Tables>>::default();
        let closed_unlocked = Arc::<AtomicBool>::default();
        let file =
            File { tables: Arc::clone(&tables), closed_unlocked: Arc::clone(&closed_unlocked) };
        let has_files = AtomicBool::new(true);
        let mut held = HeldTables::new(tables.lock().unwrap(), &has_files);
        held.released.add(Arc::new(file));
        held.released.add(Arc::new(()));
        assert!(!closed_unlocked.load(Ordering::Relaxed), "it is still open");
        drop(held);
        assert!(closed_unlocked.load(Ordering::Relaxed));
        assert!(tables.lock().unwrap().released.is_empty());
        assert!(!has_files.load(Ordering::Relaxed), "no file has state");
    }
}
