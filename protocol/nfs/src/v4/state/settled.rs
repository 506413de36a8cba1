//! Waits for work that must end before the state of a client is granted to
//! another one.

use super::State;
use crate::limits::{FIRST_PAUSE_MILLISECONDS, SETTLE_WAIT_MILLISECONDS};
use crate::namespace::FileKey;
use crate::v4::failure::Failure;
use crate::v4::tables::Tables;
use crate::v4::tables::pending_work::PendingWork;
use zgate_nfs_wire::v4::Status;

impl State {
    /// Delays all grants of `file` until the work has ended.
    pub(crate) fn await_before_giving(tables: &mut Tables, file: FileKey, work: PendingWork) {
        if work.is_over() {
            return;
        }
        let state = tables.files.entry(file.id).or_default();
        state.unfinished.retain(|other| !other.is_over());
        // A client's opens of one file all wait for the same removal.
        if !state.unfinished.iter().any(|other| other.is(&work)) {
            state.unfinished.push(work);
        }
    }

    /// Checks that all state of `file` that was taken from clients, or returned
    /// by them, may be granted to others.
    ///
    /// # Errors
    /// [`Status::Delay`] while requests under that state are still running in
    /// the backend, or a client that lost it could still reclaim it after a
    /// restart (RFC 8881 §8.4.3).
    pub(crate) fn check_settled(tables: &mut Tables, file: &FileKey) -> Result<(), Status> {
        let Some(state) = tables.files.get_mut(&file.id) else { return Ok(()) };
        if state.unfinished.is_empty() {
            return Ok(());
        }
        state.unfinished.retain(|work| !work.is_over());
        if state.unfinished.is_empty() { Ok(()) } else { Err(Status::Delay) }
    }

    fn is_settled(&self, file: &FileKey) -> bool {
        Self::check_settled(&mut self.lock(), file).is_ok()
    }

    /// Retries, for at most [`SETTLE_WAIT_MILLISECONDS`], an operation that
    /// failed with NFS4ERR_DELAY because work on `file` has not ended: this
    /// usually takes milliseconds, but clients retry after seconds.
    ///
    /// # Errors
    /// Error of the last attempt.
    pub(crate) async fn when_settled<T>(
        &self,
        file: &FileKey,
        mut attempt: impl FnMut() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let (mut pause, mut waited, mut was_settled) = (FIRST_PAUSE_MILLISECONDS, 0, false);
        loop {
            let result = attempt();
            let delayed = matches!(&result, Err(failure) if failure.status == Status::Delay);
            if !delayed || was_settled || waited >= SETTLE_WAIT_MILLISECONDS {
                return result;
            }
            was_settled = self.is_settled(file);
            if !was_settled {
                self.runtime.sleep(pause).await;
                waited += pause;
                pause *= 2;
            }
        }
    }
}
