//! Long calls on the workers for short ones.

use super::{Workers, on_this_worker};
use crate::continuation;
use crate::queue::{Queues, StoreSlot};
use std::cell::Cell;
use std::io;

thread_local! {
    /// Set from the first long call of a worker's job until the job has ended.
    static IN_LONG_CALL: Cell<bool> = const { Cell::new(false) };
}

impl Workers {
    /// Runs `work`, which may take long, on this thread under the process's own identity, if
    /// a worker of this pool continues the caller on the store and short calls do not need
    /// that worker: another one is free, and none is in a long call. The other requests that
    /// wait for this worker are sent to their cores.
    ///
    /// # Errors
    /// The work, which has not run.
    pub(crate) fn run_long_here<T, W: FnOnce() -> T>(
        &self,
        store: StoreSlot,
        work: W,
    ) -> Result<io::Result<T>, W> {
        let is_here = continuation::is_at(self.shared.kind.at(store));
        if !is_here || !self.begin_long_call(store) {
            return Err(work);
        }
        continuation::send_others_home();
        Ok(on_this_worker(None, work))
    }

    fn begin_long_call(&self, store: StoreSlot) -> bool {
        if IN_LONG_CALL.get() {
            return true;
        }
        let mut pool = self.shared.lock();
        let has_idle_thread = pool.threads > pool.queues.busy_workers();
        let begins = has_idle_thread && pool.queues.begin_long_call(store);
        drop(pool);
        IN_LONG_CALL.set(begins);
        begins
    }
}

/// Records that a job of the store has ended on this worker. Returns whether the store was
/// considered hanging.
pub(super) fn end_job<J>(queues: &mut Queues<J>, store: StoreSlot) -> bool {
    if !IN_LONG_CALL.replace(false) {
        return queues.end(store);
    }
    queues.end_long_call(store);
    false
}
