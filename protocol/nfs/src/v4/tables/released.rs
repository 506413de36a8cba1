//! Files that a change of the tables takes from clients.
//!
//! To close a file, a store may wait for its storage: it looks whether the file has a name
//! left, and ZFS answers that after a rollback, or when a suspended pool is back. All requests,
//! to all stores, wait for the tables: no file is closed under their lock.

use std::any::Any;
use std::cell::Cell;
use std::sync::Arc;

/// Files to be closed when the tables are unlocked.
#[derive(Default)]
pub struct Released(Vec<Arc<dyn Any + Send + Sync>>);

impl Released {
    /// Keeps a file, or a record that has files, until then.
    pub fn add(&mut self, files: Arc<dyn Any + Send + Sync>) {
        self.0.push(files);
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

thread_local! {
    /// Number of tables that this thread has locked; counted in debug builds.
    static LOCKED: Cell<usize> = const { Cell::new(0) };
}

/// Notes that this thread has locked tables.
pub(super) fn note_locked() {
    if cfg!(debug_assertions) {
        LOCKED.set(LOCKED.get() + 1);
    }
}

/// Notes that this thread is about to unlock tables.
pub(super) fn note_unlocked() {
    if cfg!(debug_assertions) {
        LOCKED.set(LOCKED.get() - 1);
    }
}

/// Panics in debug builds if this thread has locked tables: what is dropped belongs in
/// [`Released`].
pub(super) fn check_unlocked() {
    debug_assert!(LOCKED.get() == 0, "files are closed under the lock of the tables");
}
