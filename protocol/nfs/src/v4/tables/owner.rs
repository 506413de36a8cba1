//! Open owners and lock owners.

use super::ids::StateKey;
use super::owner_seq::OwnerSeq;
use super::quota::Charge;
use std::collections::BTreeSet;
use std::sync::Arc;
use zgate_nfs_wire::v4::ClientId;

/// An owner's name within its client.
pub type OwnerName = Arc<[u8]>;

/// A lock owner, unique across all clients.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockOwnerId {
    /// The client; `None` for lock owners of other protocols.
    pub client: ClientId,
    /// The owner's name.
    pub name: OwnerName,
}

/// An open owner.
#[derive(Default)]
pub struct OpenOwner {
    /// Sequence number and replay (minor version 0).
    pub seq: OwnerSeq,
    /// OPEN_CONFIRM was received, or is not needed.
    pub confirmed: bool,
    /// Its opens.
    pub opens: BTreeSet<StateKey>,
    /// Its part of its host's quota.
    pub charge: Option<Charge>,
    /// The open closed last: a replayed CLOSE still names it.
    pub last_closed: Option<StateKey>,
    /// It has opened nothing since the last sweep (expiry.rs).
    pub idle: bool,
}

/// A lock owner.
#[derive(Default)]
pub struct LockOwner {
    /// Sequence number and replay (minor version 0).
    pub seq: OwnerSeq,
    /// Its lock stateids, one per file.
    pub states: BTreeSet<StateKey>,
    /// Its part of its host's quota.
    pub charge: Option<Charge>,
    /// It has locked nothing since the last sweep (expiry.rs).
    pub idle: bool,
}
