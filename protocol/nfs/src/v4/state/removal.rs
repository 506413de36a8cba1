//! State of removed clients.
//!
//! A client may hold hundreds of thousands of opens. Removing all of them under
//! one lock would stall the server, so they are removed in slices: the first at
//! once, the others in ticks, or when a request conflicts with one of them. The
//! client is fenced from the beginning: its lease is revoked, its sessions are
//! removed and its stateids are invalid.

use super::State;
use crate::limits::{MAX_SLICES_PER_TICK, MAX_STATES_PER_SLICE};
use crate::namespace::FileKey;
use crate::v4::tables::Tables;
use crate::v4::tables::ids::StateKey;
use crate::v4::tables::removed_client::RemovedClient;
use zgate_nfs_wire::v4::{ClientId, Status};

impl State {
    /// Removes all opens, locks and delegations of a client, or the first
    /// slice; the record stays. The caller has made sure that the client gets
    /// no new ones.
    pub(crate) fn drop_client_state(&self, tables: &mut Tables, id: ClientId, now_seconds: u64) {
        let Some(client) = tables.clients.get_mut(&id) else { return };
        if tables.removed_clients.contains_key(&id) {
            // An expired client of minor version 0 whose record is also
            // removed.
            self.remove_slice(tables, id, now_seconds);
            return;
        }
        let left = RemovedClient {
            opens: Default::default(),
            open_owners: std::mem::take(&mut client.open_owners).into_iter(),
            lock_owners: std::mem::take(&mut client.lock_owners).into_iter(),
            delegations: std::mem::take(&mut client.delegations).into_iter(),
            revoked: client.losses.take_revoked(),
            record_removal: client.record_removal.take(),
            minor_zero: client.minor_zero,
        };
        tables.removed_clients.insert(id, left);
        self.remove_slice(tables, id, now_seconds);
    }

    /// Removes one slice of a removed client's state. Returns whether nothing
    /// is left.
    pub(crate) fn remove_slice(&self, tables: &mut Tables, id: ClientId, now_seconds: u64) -> bool {
        let Some(mut left) = tables.removed_clients.remove(&id) else { return true };
        let mut removed = 0;
        while removed < MAX_STATES_PER_SLICE {
            removed += 1;
            if let Some(key) = left.opens.next() {
                // Its lock stateids are removed with it.
                removed += tables.opens.get(&key).map_or(0, |open| open.locks.len());
                self.remember_expired(tables, &left, key);
                hold_back(tables, &left, tables.opens.get(&key).map(|open| open.file));
                self.remove_open(tables, key, now_seconds);
            } else if let Some((_, owner)) = left.open_owners.next() {
                left.opens = owner.opens.into_iter();
            } else if let Some(key) = left.delegations.next() {
                self.remember_expired(tables, &left, key);
                hold_back(tables, &left, tables.delegations.get(&key).map(|held| held.file));
                self.remove_delegation(tables, key, now_seconds);
            } else if let Some(key) = left.revoked.next() {
                self.remember_expired(tables, &left, key);
            } else if left.lock_owners.next().is_none() {
                return true;
            }
        }
        tables.removed_clients.insert(id, left);
        false
    }

    fn remember_expired(&self, tables: &mut Tables, left: &RemovedClient, key: StateKey) {
        if !left.minor_zero {
            return;
        }
        if let Some(open) = tables.opens.get(&key) {
            for lock in &open.locks {
                tables.expired_stateids.add(*lock);
            }
        }
        tables.expired_stateids.add(key);
    }

    /// Checks whether a removed client still has state that could conflict: the
    /// request must be retried in that case.
    ///
    /// # Errors
    /// [`Status::Delay`].
    pub(crate) fn check_removed(tables: &Tables, id: ClientId) -> Result<(), Status> {
        if tables.removed_clients.contains_key(&id) { Err(Status::Delay) } else { Ok(()) }
    }
}

/// Delays the grant of a file to others until the record of the removed client
/// is deleted.
fn hold_back(tables: &mut Tables, left: &RemovedClient, file: Option<FileKey>) {
    if let (Some(removal), Some(file)) = (&left.record_removal, file) {
        State::await_before_giving(tables, file, removal.clone());
    }
}

impl State {
    /// Removes a bounded part of the state of removed clients; the tables are
    /// unlocked in between.
    pub(super) fn continue_removals(&self, now_seconds: u64) {
        for _ in 0..MAX_SLICES_PER_TICK {
            let mut tables = self.lock();
            let Some(id) = tables.removed_clients.first_key_value().map(|(id, _)| *id) else {
                return;
            };
            self.remove_slice(&mut tables, id, now_seconds);
        }
    }
}
