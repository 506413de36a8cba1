//! Stable storage for the clients that may reclaim after a restart (RFC 8881
//! §8.4.2.1). The order of changes and their waiters are in `records.rs`, the
//! grace period in `grace.rs`.

use crate::assurance::Assurance;
use zgate_nfs_wire::v4::Verifier;
use zgate_store::{StoreError, StoreResult};

/// Proofs that a client has given over TLS when it registered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shown {
    /// The assurance of the connection.
    pub assurance: Assurance,
    /// The client's verifier, which its host knows: it may come back over a connection
    /// that is protected less.
    pub verifier: Verifier,
}

impl Shown {
    /// Returns what a client shows by a connection; `None` in the clear.
    #[must_use]
    pub fn of(assurance: &Assurance, verifier: Verifier) -> Option<Self> {
        let is_clear = *assurance == Assurance::default();
        (!is_clear).then(|| Self { assurance: assurance.clone(), verifier })
    }
}

/// A client's record on stable storage.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientRecord {
    /// co_ownerid or nfs_client_id4.id.
    pub name: Vec<u8>,
    /// Minor version 0: it will send no RECLAIM_COMPLETE.
    pub minor_zero: bool,
    /// The Kerberos principal that registered it: no other may reclaim in its place.
    /// `None`: anybody may who knows the name.
    pub principal: Option<String>,
    /// Proofs that it has given over TLS: nobody may reclaim in its place who does not show as
    /// much, nor know its verifier. `None`: nothing.
    pub shown: Option<Shown>,
    /// It has lost a delegation, or more, although its lease was valid, and may not know: it may
    /// reclaim nothing (RFC 8881 §8.4.3, §10.2.1; RFC 7530 §9.6.3.4, §10.2.1). The grace
    /// period is for it as well: what it holds besides is nobody else's before its lease
    /// is over.
    pub revoked: bool,
}

/// Records of the previous server start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptRecords {
    /// Readable records.
    pub records: Vec<ClientRecord>,
    /// Some records could not be read: not all clients with state are known.
    pub damaged: bool,
}

/// Callback for the result of a change: durable, or the storage's error.
/// Dropping it without a call reports [`StoreError::Io`].
pub struct Completion(Option<Box<dyn FnOnce(StoreResult<()>) + Send>>);

impl Completion {
    /// Calls `tell` with the result, on any thread.
    pub fn new(tell: impl FnOnce(StoreResult<()>) + Send + 'static) -> Self {
        Self(Some(Box::new(tell)))
    }

    /// Reports the result.
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
    /// Records of the previous server start; called once, before any change.
    fn load(&self) -> KeptRecords;

    /// Begins to write a record.
    fn put(&self, record: ClientRecord, done: Completion);

    /// Begins to remove a record; a missing one counts as removed.
    fn remove(&self, name: Vec<u8>, done: Completion);
}

/// Stores nothing: for tests and servers without a state directory.
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
