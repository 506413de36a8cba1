//! Stable storage for what must survive a restart: which clients may reclaim
//! (RFC 8881 §8.4.2.1). The order of changes and who waits for them is in
//! `records.rs`, the grace period in `grace.rs`.

use zgate_store::{StoreError, StoreResult};

/// A client's record on stable storage.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientRecord {
    /// co_ownerid or nfs_client_id4.id.
    pub name: Vec<u8>,
    /// Minor version 0: it will send no RECLAIM_COMPLETE.
    pub minor_zero: bool,
}

/// The records of the start before this one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptRecords {
    /// Those that could be read.
    pub records: Vec<ClientRecord>,
    /// There are others that could not: not every client is known that held
    /// state.
    pub damaged: bool,
}

/// Hears once what became of a change: on stable storage, or the storage's
/// error. One that is dropped unheard says [`StoreError::Io`].
pub struct Completion(Option<Box<dyn FnOnce(StoreResult<()>) + Send>>);

impl Completion {
    /// Calls `tell` with the outcome, on whatever thread it is known.
    pub fn new(tell: impl FnOnce(StoreResult<()>) + Send + 'static) -> Self {
        Self(Some(Box::new(tell)))
    }

    /// Reports the outcome.
    pub fn report(mut self, outcome: StoreResult<()>) {
        if let Some(tell) = self.0.take() {
            tell(outcome);
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if let Some(tell) = self.0.take() {
            tell(Err(StoreError::Io));
        }
    }
}

/// Stable storage for client records. `put` and `remove` return at once, and
/// report when the change is durable. There is one change of a client at a time.
pub trait RecoveryStore: Send + Sync {
    /// The records of the start before this one; called once, before any
    /// change.
    fn load(&self) -> KeptRecords;

    /// Begins to keep a record.
    fn put(&self, record: ClientRecord, done: Completion);

    /// Begins to drop a record; a missing one is dropped already.
    fn remove(&self, name: Vec<u8>, done: Completion);
}

/// Keeps nothing: for tests and servers without a state directory.
#[derive(Debug, Default)]
pub struct NoRecovery;

impl RecoveryStore for NoRecovery {
    fn load(&self) -> KeptRecords {
        KeptRecords::default()
    }
    fn put(&self, _: ClientRecord, done: Completion) {
        done.report(Ok(()));
    }
    fn remove(&self, _: Vec<u8>, done: Completion) {
        done.report(Ok(()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_completion_that_is_dropped_reports_a_failure_and_one_that_is_not_reports_once() {
        let (tell, told) = mpsc::channel();
        let completion = || {
            let tell = tell.clone();
            Completion::new(move |outcome| tell.send(outcome).unwrap())
        };
        drop(completion());
        completion().report(Ok(()));
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [Err(StoreError::Io), Ok(())]);
    }
}
