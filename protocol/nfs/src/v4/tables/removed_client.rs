//! State of removed clients that is still to be removed.

use super::ids::StateKey;
use super::losses::Revoked;
use super::owner::{LockOwner, OpenOwner, OwnerName};
use super::pending_work::PendingWork;
use std::collections::{btree_set, hash_map, hash_set};

/// The state of a client still to be removed.
pub struct RemovedClient {
    pub(in crate::v4) opens: btree_set::IntoIter<StateKey>,
    pub(in crate::v4) open_owners: hash_map::IntoIter<OwnerName, OpenOwner>,
    pub(in crate::v4) lock_owners: hash_map::IntoIter<OwnerName, LockOwner>,
    pub(in crate::v4) delegations: hash_set::IntoIter<StateKey>,
    /// Stateids that had been revoked before.
    pub(in crate::v4) revoked: hash_map::IntoKeys<StateKey, Revoked>,
    /// The removal of its record, if its lease expired: until that is durable,
    /// none of its state is granted to others (RFC 8881 §8.4.3).
    pub(in crate::v4) record_removal: Option<PendingWork>,
    /// Minor version 0: its stateids are remembered (see [`super::expired_stateids`]).
    pub(in crate::v4) minor_zero: bool,
}
