//! Delegations and their recalls.

use super::ids::StateKey;
use super::index::IoCore;
use super::owner::FileClient;
use super::quota::Charge;
use super::session::RequestId;
use crate::namespace::FileKey;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use zgate_nfs_wire::v4::{ClientId, Fh};
use zgate_store::Timestamp;

/// Time after which an unacknowledged recall is sent again, in seconds: longer
/// than the timeout of a callback. It is a new call in another slot then: no
/// call is repeated in its slot while the connection lasts (RFC 8881
/// §2.10.6.2).
pub(in crate::v4) const RECALL_AGAIN_SECONDS: u64 = 6;

/// A delegation.
pub struct Delegation {
    /// Its stateid.
    pub key: StateKey,
    /// The seqid of the stateid.
    pub seqid: u32,
    /// The client.
    pub client: ClientId,
    /// The file.
    pub file: FileKey,
    /// Write delegation (otherwise read).
    pub write: bool,
    /// With delegated time stamps (RFC 9754).
    pub attrs: bool,
    /// Times at which it was granted.
    pub times: GrantTimes,
    /// The change attribute at which it was granted, for CB_GETATTR.
    pub change: u64,
    /// Number of times that others were told of a change in the holder's cache; none while it
    /// has told of none.
    pub told_changes: Option<u64>,
    /// Start of its recall, in seconds.
    pub recalled_seconds: Option<u64>,
    /// It was recalled when it was taken back in grace, because its client could not be called:
    /// the lease in which it has to be returned begins with the end of grace.
    pub returns_after_grace: bool,
    /// State of its recall.
    pub recall: Arc<Recall>,
    /// The request whose answer brings it to the client; `None` in minor version 0.
    pub granted_by: Option<RequestId>,
    /// Its open files.
    pub core: Arc<IoCore>,
    /// The file handle, for callbacks.
    pub fh: Fh,
    /// Its part of its host's quota.
    pub charge: Charge,
}

impl Delegation {
    /// The client, through the export of the file.
    #[must_use]
    pub fn holder(&self) -> FileClient {
        FileClient::of(self.client, &self.file)
    }

    /// True if `client` holds it, and accesses the file through the same export: it
    /// knows then that it changes what it has in its cache.
    #[must_use]
    pub fn is_own(&self, client: Option<ClientId>, file: &FileKey) -> bool {
        Some(self.client) == client && self.file.export == file.export
    }
}

/// Times at which a delegation was granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrantTimes {
    /// The server's clock.
    pub now: Timestamp,
    /// The file's mtime.
    pub mtime: Timestamp,
}

/// State of the recall of one delegation.
#[derive(Debug, Default)]
pub struct Recall {
    /// The client acknowledged it, or there is nothing to recall any more.
    settled: AtomicBool,
    /// Number of calls without an answer.
    in_flight: AtomicU32,
    pub(in crate::v4) sent_seconds: AtomicU64,
}

impl Recall {
    /// Stops further calls.
    pub fn settle(&self) {
        self.settled.store(true, Ordering::Release);
    }

    pub(in crate::v4) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    /// True if the recall must be sent again.
    pub(in crate::v4) fn is_due(&self, now_seconds: u64) -> bool {
        !self.is_settled()
            && self.in_flight.load(Ordering::Acquire) == 0
            && now_seconds >= self.sent_seconds.load(Ordering::Acquire) + RECALL_AGAIN_SECONDS
    }

    /// Begins a call.
    pub(in crate::v4) fn begin(self: &Arc<Self>) -> CallInFlight {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        CallInFlight(Arc::clone(self))
    }
}

/// A call that waits for its answer, until dropped.
pub(in crate::v4) struct CallInFlight(pub(in crate::v4) Arc<Recall>);

impl Drop for CallInFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}
