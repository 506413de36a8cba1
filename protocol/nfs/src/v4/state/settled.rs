//! Waits for work that must end before the state of a client is granted to
//! another one, and for the end of grace.

use super::State;
use crate::limits::{
    FIRST_PAUSE_MILLISECONDS, GRACE_PAUSE_MILLISECONDS, GRACE_WAIT_MILLISECONDS,
    SETTLE_WAIT_MILLISECONDS,
};
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

    /// Waits for the end of grace, for at most [`GRACE_WAIT_MILLISECONDS`], with `bytes` of data,
    /// unless others wait with as much as may be held: clients that are connected reclaim within a
    /// second as a rule, but NFSv3 clients retry after five. The period counts from the first one
    /// that waits, too.
    pub(crate) async fn end_of_grace(&self, bytes: usize) {
        let Some(_waiter) = self.grace_waiters.enter(bytes) else { return };
        let mut waited = 0;
        while self.grace.delays(self.runtime.now().seconds()) && waited < GRACE_WAIT_MILLISECONDS {
            self.runtime.sleep(GRACE_PAUSE_MILLISECONDS).await;
            waited += GRACE_PAUSE_MILLISECONDS;
        }
    }
}
