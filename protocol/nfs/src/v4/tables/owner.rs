//! Open owners and lock owners.

use super::ids::StateKey;
use super::owner_seq::OwnerSeq;
use super::quota::Charge;
use crate::namespace::{ExportId, FileKey};
use std::collections::BTreeSet;
use std::sync::Arc;
use zgate_nfs_wire::v4::ClientId;

/// An owner's name within its client.
pub type OwnerName = Arc<[u8]>;

/// A client as it uses a file through one export. Through another one the file has
/// other handles: the client takes it for another file (unique_handles, RFC 8881
/// §5.8.1.10), with opens, locks and a cache of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileClient {
    /// The export.
    pub export: ExportId,
    /// The client.
    pub client: ClientId,
}

impl FileClient {
    /// A client of the export of `file`.
    #[must_use]
    pub fn of(client: ClientId, file: &FileKey) -> Self {
        Self { export: file.export, client }
    }

    /// The least of an export, in their order.
    #[must_use]
    pub fn first_of(export: ExportId) -> Self {
        Self { export, client: ClientId(0) }
    }

    /// A number by which it is known while it changes files, see
    /// [`crate::changes::Changes`]. Clients of one export differ if the lower halves of
    /// their ids do.
    #[must_use]
    pub fn number(&self) -> u64 {
        /// An odd factor, which spreads small numbers of exports over all bits.
        const SPREAD: u32 = 0x9e37_79b9;
        self.client.0 ^ u64::from(self.export.0.wrapping_mul(SPREAD))
    }
}

/// A lock owner, unique across all clients. What it locks through different exports
/// is locked by different owners: neither is released with the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockOwnerId {
    /// The client.
    pub client: ClientId,
    /// The export.
    pub export: ExportId,
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
    /// Its lock stateids, one per open under which it has locked.
    pub states: BTreeSet<StateKey>,
    /// Its part of its host's quota.
    pub charge: Option<Charge>,
    /// It has locked nothing since the last sweep (expiry.rs).
    pub idle: bool,
}
