//! Files with state.

use super::ids::StateKey;
use super::owner::{FileClient, LockOwnerId};
use super::pending_work::PendingWork;
use super::quota::Charge;
use super::ranges::{Range, RangeTable};
use super::shares::OpenIndex;
use crate::namespace::ExportId;
use std::collections::BTreeMap;
use zgate_nfs_wire::v4::LockType;

/// A blocked lock whose client requested a notification.
#[derive(Debug)]
pub struct Waiter {
    /// The lock owner.
    pub owner: LockOwnerId,
    /// The range.
    pub range: Range,
    /// The lock type.
    pub kind: LockType,
    /// The file handle, for the callback.
    pub fh: zgate_nfs_wire::v4::Fh,
    /// Start of the wait, in seconds.
    pub since_seconds: u64,
    /// Its part of its host's quota.
    pub charge: Charge,
}

/// A file with state.
#[derive(Default)]
pub struct FileState {
    /// Its opens.
    pub opens: OpenIndex,
    /// Its delegations; a client has at most one through each export.
    pub delegations: BTreeMap<FileClient, StateKey>,
    /// Clients that have it open or delegated, each with its part of its host's
    /// quota of files.
    pub holders: BTreeMap<FileClient, Charge>,
    /// Its parts of the total number of files: each export opens it by itself. Few
    /// files have more than one.
    pub held: Vec<(ExportId, Charge)>,
    /// Byte-range locks.
    pub ranges: RangeTable<LockOwnerId>,
    /// Its lock stateids, by owner and open: what an owner locks under one open has one
    /// (RFC 8881 §8.2.1).
    pub lock_states: BTreeMap<(LockOwnerId, StateKey), StateKey>,
    /// Blocked locks, in order of arrival.
    pub waiters: Vec<Waiter>,
    /// No delegations before this second: one was recalled recently.
    pub no_delegation_before: u64,
    /// Work that must end before any state of the file is granted: see
    /// `state/settled.rs`.
    pub unfinished: Vec<PendingWork>,
}

impl FileState {
    /// Releases a client's part of the quota of files, unless it still holds
    /// this one.
    pub fn let_go(&mut self, client: FileClient) {
        if !self.opens.has(client) && !self.delegations.contains_key(&client) {
            self.holders.remove(&client);
        }
        let export = client.export;
        let next = self.holders.range(FileClient::first_of(export)..).next();
        if next.is_none_or(|(holder, _)| holder.export != export) {
            self.held.retain(|(other, _)| *other != export);
        }
    }

    /// The lock stateids of an owner, in the order of its opens.
    pub fn lock_states_of(&self, owner: &LockOwnerId) -> impl Iterator<Item = StateKey> {
        let all = (owner.clone(), StateKey::LEAST)..=(owner.clone(), StateKey::GREATEST);
        self.lock_states.range(all).map(|(_, key)| *key)
    }

    /// True if a client holds it through the export.
    #[must_use]
    pub fn is_held_through(&self, export: ExportId) -> bool {
        self.held.iter().any(|(other, _)| *other == export)
    }

    /// True if the record can be dropped.
    #[must_use]
    pub fn is_idle(&self, now_seconds: u64) -> bool {
        self.is_held_by_nobody()
            && self.no_delegation_before <= now_seconds
            && self.unfinished.iter().all(PendingWork::is_over)
    }

    /// True if no client holds state of it, and work of former holders is still
    /// running.
    pub(super) fn is_unfinished(&self) -> bool {
        self.is_held_by_nobody() && !self.unfinished.iter().all(PendingWork::is_over)
    }

    fn is_held_by_nobody(&self) -> bool {
        self.opens.is_empty()
            && self.delegations.is_empty()
            && self.ranges.is_empty()
            && self.waiters.is_empty()
    }
}
