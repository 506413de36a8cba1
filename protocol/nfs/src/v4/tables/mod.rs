//! Records of clients and their state: what the rules in `state` work on.
//!
//! [`Tables`] is behind one mutex. READ and WRITE do not take it: they find
//! their session in [`session::SessionTable`] and their open file in
//! [`index::IoIndex`], both sharded.

pub mod callback_path;
pub mod client;
pub mod client_hosts;
pub mod delegation;
pub mod expired_stateids;
pub mod file;
pub mod held;
pub mod ids;
pub mod index;
mod interval_tree;
pub mod lease;
pub mod losses;
pub mod open;
pub mod owner;
pub mod owner_seq;
pub mod pending_work;
pub mod quota;
pub mod ranges;
pub mod released;
pub mod removed_client;
pub mod reply_memory;
pub mod session;
pub mod shares;
pub mod write_delegations;

use crate::namespace::{ExportId, FileId, FileKey};
use crate::runtime::Call;
use ahash::{HashMap, HashSet};
use client::{Client, NameSlot, SoughtRoom};
use delegation::Delegation;
use expired_stateids::ExpiredStateids;
use file::FileState;
use ids::StateKey;
use open::{LockState, Open};
use owner::{FileClient, OwnerName};
use quota::{Bound, Quota};
use released::Released;
use removed_client::RemovedClient;
use std::collections::{BTreeMap, BTreeSet};
use zgate_nfs_wire::v4::{ClientId, Status};

/// All tables.
#[derive(Default)]
pub struct Tables {
    /// Clients, confirmed or not.
    pub clients: HashMap<ClientId, Client>,
    /// Records by the client's own name.
    pub by_name: HashMap<Vec<u8>, NameSlot>,
    /// Files with any state.
    pub files: HashMap<FileId, FileState>,
    /// Opens.
    pub opens: HashMap<StateKey, Open>,
    /// Lock stateids.
    pub locks: HashMap<StateKey, LockState>,
    /// Delegations.
    pub delegations: HashMap<StateKey, Delegation>,
    /// Stateids that were removed with their minor-0 clients, or revoked from them.
    pub expired_stateids: ExpiredStateids,
    /// Removed clients with more state than is removed at once.
    pub removed_clients: BTreeMap<ClientId, RemovedClient>,
    /// Delegations being recalled.
    pub recalled: BTreeSet<StateKey>,
    /// Files with blocked locks.
    pub waited_for: HashSet<FileId>,
    /// Files to be checked for being idle, by second.
    pub revisits: BTreeMap<u64, Vec<FileId>>,
    /// Owners of minor version 0 by the open each closed last. May name removed
    /// owners.
    pub last_closed: HashMap<StateKey, (ClientId, OwnerName)>,
    /// The last search for clients with an expired lease.
    pub sought_room: SoughtRoom,
    /// The last one for those with sessions.
    pub sought_sessions: SoughtRoom,
    /// Exports whose content was replaced in the grace period that is still active.
    pub replaced_in_grace: BTreeSet<ExportId>,
    /// Files of removed opens and delegations, to be closed when the tables are unlocked.
    pub released: Released,
}

/// Type of the state of a stateid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateKind {
    /// An open.
    Open,
    /// A lock stateid.
    Lock,
    /// A delegation.
    Delegation,
}

impl Tables {
    /// Type, client and seqid of a stateid.
    #[must_use]
    pub fn find(&self, key: StateKey) -> Option<(StateKind, ClientId, u32)> {
        self.find_any(key).filter(|(_, client, _)| !self.removed_clients.contains_key(client))
    }

    /// Like `find`, also for clients of which only state is left.
    #[must_use]
    pub fn find_any(&self, key: StateKey) -> Option<(StateKind, ClientId, u32)> {
        if let Some(open) = self.opens.get(&key) {
            return Some((StateKind::Open, open.client, open.seqid));
        }
        if let Some(lock) = self.locks.get(&key) {
            return Some((StateKind::Lock, lock.owner.client, lock.seqid));
        }
        self.delegations.get(&key).map(|d| (StateKind::Delegation, d.client, d.seqid))
    }

    /// The client of minor version 1 and above with this id, if the call may
    /// act for it; otherwise `refused`.
    pub(crate) fn client_of_caller(
        &mut self,
        id: ClientId,
        call: &Call,
        refused: Status,
    ) -> Result<&mut Client, Status> {
        let client = self.clients.get_mut(&id).filter(|client| !client.minor_zero);
        let client = client.ok_or(Status::StaleClientid)?;
        if client.admits(call) { Ok(client) } else { Err(refused) }
    }

    /// True if a client of the export has the file open or delegated: no additional
    /// descriptors are needed for others.
    #[must_use]
    pub fn is_held(&self, file: &FileKey) -> bool {
        self.files.get(&file.id).is_some_and(|state| state.is_held_through(file.export))
    }

    /// Charges the client's host for a file that the client is about to open or
    /// to get a delegation for. A file held by other clients of the export needs no
    /// additional descriptors: it may always be opened.
    ///
    /// # Errors
    /// As [`Client::room_for_state`].
    pub fn hold_file(&mut self, id: ClientId, file: &FileKey, bound: Bound) -> Result<(), Status> {
        let client = self.clients.get(&id).ok_or(Status::StaleClientid)?;
        let holder = FileClient::of(id, file);
        match self.files.get(&file.id) {
            Some(state) if state.holders.contains_key(&holder) => return Ok(()),
            Some(state) if state.is_held_through(file.export) => {}
            _ => client.host_has_room(bound, Quota::Files, 1)?,
        }
        let own = client.host.charge_own(Quota::Files, 1);
        let state = self.files.entry(file.id).or_default();
        if !state.is_held_through(file.export) {
            let total = client.host.charge_total(Quota::Files, 1);
            state.held.reserve_exact(1);
            state.held.push((file.export, total));
        }
        state.holders.insert(holder, own);
        Ok(())
    }

    /// Charges the host of a lock stateid's owner for the ranges that the owner has locked in
    /// the file. It is charged once, with the first of the owner's stateids there. To be called
    /// after each change of those.
    pub fn count_ranges(&mut self, key: StateKey) {
        let Some(lock) = self.locks.get(&key) else { return };
        let owner = lock.owner.clone();
        let Some(file) = self.files.get(&lock.file.id) else { return };
        let held = file.ranges.held_by(&owner);
        // The second may have been the first until now.
        for (at, of_owner) in file.lock_states_of(&owner).take(2).enumerate() {
            if let Some(lock) = self.locks.get_mut(&of_owner) {
                lock.ranges.set(if at == 0 { held } else { 0 });
            }
        }
    }

    /// True if the client of this delegation hears of revocations by SEQUENCE: one with
    /// sessions.
    #[must_use]
    pub fn is_told_of_revocations(&self, delegation: StateKey) -> bool {
        let holder = self.delegations.get(&delegation).map(|held| held.client);
        let holder = holder.and_then(|client| self.clients.get(&client));
        holder.is_some_and(|client| !client.minor_zero)
    }

    /// Drops a file's record when it has no state any more.
    pub fn tidy_file(&mut self, file: &FileId, now_seconds: u64) {
        let Some(state) = self.files.get(file) else { return };
        if state.is_idle(now_seconds) {
            self.files.remove(file);
        } else if state.is_unfinished() {
            // There is no notification of the backend's completion: checked
            // again a second later.
            self.revisits.entry(now_seconds + 1).or_default().push(*file);
        }
    }
}
