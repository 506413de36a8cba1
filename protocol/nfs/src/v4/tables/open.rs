//! Opens and lock stateids.

use super::ids::StateKey;
use super::index::IoCore;
use super::owner::{FileClient, LockOwnerId, OwnerName};
use super::quota::Charge;
use super::shares::Share;
use crate::namespace::FileKey;
use std::collections::BTreeSet;
use std::sync::Arc;
use zgate_nfs_wire::v4::ClientId;

/// One owner's open of one file.
pub struct Open {
    /// Its stateid.
    pub key: StateKey,
    /// The seqid of the stateid.
    pub seqid: u32,
    /// The client.
    pub client: ClientId,
    /// The owner.
    pub owner: OwnerName,
    /// The file.
    pub file: FileKey,
    /// OPEN4_SHARE_ACCESS bits.
    pub access: u32,
    /// OPEN4_SHARE_DENY bits.
    pub deny: u32,
    /// Each (access, deny) of an OPEN so far, for OPEN_DOWNGRADE: bit `a*4+d`.
    pub history: u16,
    /// The open files.
    pub core: Arc<IoCore>,
    /// Lock stateids created from it.
    pub locks: BTreeSet<StateKey>,
    /// Its part of its host's quota.
    pub charge: Charge,
}

impl Open {
    /// The client, through the export of the file.
    #[must_use]
    pub fn holder(&self) -> FileClient {
        FileClient::of(self.client, &self.file)
    }

    /// Its share bits.
    #[must_use]
    pub fn share(&self) -> Share {
        Share::new(self.access, self.deny)
    }
}

/// One lock owner's stateid for one open.
pub struct LockState {
    /// Its stateid.
    pub key: StateKey,
    /// The seqid of the stateid.
    pub seqid: u32,
    /// The owner.
    pub owner: LockOwnerId,
    /// The open from which it was created.
    pub open: StateKey,
    /// The file.
    pub file: FileKey,
    /// Its part of its host's quota.
    pub charge: Charge,
    /// The part for the ranges that its owner has locked in the file, if it is the owner's first
    /// stateid there.
    pub ranges: Charge,
}
