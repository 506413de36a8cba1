//! The lock of the tables.

use super::Tables;
use super::released::{self, Released};
use std::ops::{Deref, DerefMut};
use std::sync::MutexGuard;

/// The locked tables. When it is dropped, they are unlocked, and then the files are closed
/// that were released meanwhile.
pub struct HeldTables<'t> {
    // The order of the fields is the order in which they are dropped.
    tables: MutexGuard<'t, Tables>,
    _closed_last: Released,
}

impl<'t> HeldTables<'t> {
    /// Holds the tables.
    #[must_use]
    pub fn new(tables: MutexGuard<'t, Tables>) -> Self {
        released::note_locked();
        Self { tables, _closed_last: Released::default() }
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
        self._closed_last = std::mem::take(&mut self.tables.released);
        released::note_unlocked();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
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
        let mut held = HeldTables::new(tables.lock().unwrap());
        held.released.add(Arc::new(file));
        held.released.add(Arc::new(()));
        assert!(!closed_unlocked.load(Ordering::Relaxed), "it is still open");
        drop(held);
        assert!(closed_unlocked.load(Ordering::Relaxed));
        assert!(tables.lock().unwrap().released.is_empty());
    }
}
