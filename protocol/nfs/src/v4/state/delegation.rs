//! Delegations: granting and recall (RFC 8881 §10.4). Revocation is in `revocation.rs`.

use super::State;
use crate::changes::ChangeGuard;
use crate::namespace::{Export, ExportId, FileHandle, FileKey, Object};
use crate::v4::tables::Tables;
use crate::v4::tables::delegation::{Delegation, GrantTimes};
use crate::v4::tables::ids::StateKey;
use crate::v4::tables::index::{Granted, IoCore};
use crate::v4::tables::owner::FileClient;
use crate::v4::tables::pending_work::PendingWork;
use crate::v4::tables::quota::{Bound, Quota};
use crate::v4::tables::session::RequestId;
use std::collections::BTreeSet;
use std::sync::Arc;
use zgate_nfs_wire::v4::{ClientId, Status};
use zgate_store::Attr;
use zgate_store::file_store::OpenFile;

/// Time after a recall during which no delegation is granted, in seconds: the
/// file is shared, and the delegation would be recalled again.
const QUIET_SECONDS: u64 = 10;

/// A delegation about to be granted.
pub(crate) struct NewDelegation<'a> {
    pub client: ClientId,
    pub object: &'a Object,
    /// Its key.
    pub file: FileKey,
    pub write: bool,
    pub attrs: bool,
    pub times: GrantTimes,
    pub change: u64,
    pub opened: &'a OpenFile,
    /// The request; `None` in minor version 0.
    pub granted_by: Option<RequestId>,
}

impl State {
    /// Returns whether a delegation may be granted: no other client, nor this one
    /// through another export, uses the file in a way that would cause an immediate
    /// recall.
    pub(crate) fn may_delegate(
        &self,
        tables: &Tables,
        file: &FileKey,
        client: ClientId,
        write: bool,
        now_seconds: u64,
    ) -> bool {
        let holder = FileClient::of(client, file);
        if self.changes.by_others(&file.id, holder.number(), now_seconds) {
            return false;
        }
        let Some(state) = tables.files.get(&file.id) else { return true };
        let settled = state.unfinished.iter().all(PendingWork::is_over);
        if state.no_delegation_before > now_seconds || !settled {
            return false;
        }
        // A write delegation is the only one: the first tells.
        let first = state.delegations.values().next().and_then(|key| tables.delegations.get(key));
        if first.is_some_and(|first| first.write || write)
            || state.delegations.contains_key(&holder)
        {
            return false;
        }
        if write { state.opens.only_by(holder) } else { state.opens.written_only_by(holder) }
    }

    /// Returns whether the delegation that the client has of the file is one for writing; `None`
    /// if it has none.
    pub(crate) fn own_delegation_writes(&self, file: &FileKey, client: ClientId) -> Option<bool> {
        let tables = self.lock();
        let key = tables.files.get(&file.id)?.delegations.get(&FileClient::of(client, file))?;
        tables.delegations.get(key).map(|held| held.write)
    }

    /// Grants a delegation.
    pub(crate) fn enter_delegation(
        &self,
        tables: &mut Tables,
        new: &NewDelegation<'_>,
    ) -> Option<StateKey> {
        let key = self.ids.state();
        let file = new.file;
        let client = tables.clients.get(&new.client)?;
        client.room_for_state().ok()?;
        let bound = self.bound(client);
        if bound == Bound::Share {
            // Delegations must not be in the way of opens: the host could have as
            // many files again.
            let held = client.host.held(Quota::Delegations);
            client.host_has_room(bound, Quota::Files, held + 1).ok()?;
        }
        let charge = client.take(bound, Quota::Delegations).ok()?;
        tables.hold_file(new.client, &file, bound).ok()?;
        let client = tables.clients.get_mut(&new.client)?;
        client.delegations.insert(key);
        client.held.delegations += 1;
        client.lease.want_attention();
        let place = (new.object.export.id, new.object.node);
        let core = Arc::new(IoCore::new(new.client, Arc::clone(&client.lease), place));
        let granted = Granted { file: Arc::clone(new.opened), uid: new.object.who().uid };
        core.grant(true, new.write, &granted, &mut tables.released);
        self.index.publish(key, 1, &core);
        let holder = FileClient::of(new.client, &file);
        tables.files.entry(file.id).or_default().delegations.insert(holder, key);
        let delegation = Delegation {
            key,
            seqid: 1,
            client: new.client,
            file,
            write: new.write,
            attrs: new.attrs,
            times: new.times,
            change: new.change,
            told_changes: None,
            recalled_seconds: None,
            returns_after_grace: false,
            recall: Arc::default(),
            granted_by: new.granted_by,
            core,
            fh: FileHandle::Node(file.export, new.object.node).to_fh(),
            charge,
        };
        tables.delegations.insert(key, delegation);
        if new.write {
            self.write_delegations.enter(&file.id);
        }
        Some(key)
    }

    /// Notes the attributes of a file that have been read since it was delegated.
    pub(crate) fn note_attributes(&self, key: StateKey, attr: &Attr) {
        if let Some(delegation) = self.lock().delegations.get_mut(&key) {
            delegation.change = attr.change;
            delegation.times.mtime = attr.mtime;
        }
    }

    /// Removes a delegation. Changes under it that the backend has not
    /// completed must end before the file is granted to others.
    pub(crate) fn remove_delegation(&self, tables: &mut Tables, key: StateKey, now_seconds: u64) {
        let Some(delegation) = tables.delegations.remove(&key) else { return };
        if delegation.write {
            self.write_delegations.leave(&delegation.file.id);
        }
        delegation.recall.settle();
        self.index.remove(key);
        tables.recalled.remove(&key);
        if let Some(running) = delegation.core.end() {
            Self::await_before_giving(tables, delegation.file, running);
        }
        if let Some(client) = tables.clients.get_mut(&delegation.client) {
            client.delegations.remove(&key);
            client.held.delegations -= 1;
        }
        let holder = delegation.holder();
        if let Some(file) = tables.files.get_mut(&delegation.file.id) {
            file.delegations.remove(&holder);
            file.let_go(holder);
        }
        tables.tidy_file(&delegation.file.id, now_seconds);
        tables.released.add(delegation.core);
    }

    /// Recalls the delegations that conflict with an access: write delegations,
    /// and also read delegations if the access is a modification. Delegations
    /// of `except` stay, unless it has them through another export than that of the
    /// access.
    ///
    /// # Errors
    /// [`Status::Delay`] during a recall, or while state taken from other
    /// clients is not released.
    pub(crate) fn recall_conflicting(
        &self,
        file: &FileKey,
        modifies: bool,
        except: Option<ClientId>,
        now_seconds: u64,
    ) -> Result<(), Status> {
        self.recall_standing(&mut self.lock(), file, modifies, except, now_seconds)
    }

    /// Like [`Self::recall_conflicting`], for a caller that holds the tables:
    /// the result is valid as long as they are held.
    ///
    /// # Errors
    /// [`Status::Delay`].
    pub(crate) fn recall_standing(
        &self,
        tables: &mut Tables,
        file: &FileKey,
        modifies: bool,
        except: Option<ClientId>,
        now_seconds: u64,
    ) -> Result<(), Status> {
        let Some(state) = tables.files.get(&file.id) else { return Ok(()) };
        if state.delegations.is_empty() && state.unfinished.is_empty() {
            return Ok(());
        }
        let standing: Vec<(StateKey, ClientId)> = state
            .delegations
            .values()
            .filter_map(|key| tables.delegations.get(key))
            .filter(|d| !d.is_own(except, file) && (modifies || d.write))
            .map(|d| (d.key, d.client))
            .collect();
        let mut waiting = false;
        for (key, holder) in standing {
            if self.give_up_if_expired(tables, holder, now_seconds) {
                Self::check_removed(tables, holder)?;
                continue;
            }
            waiting = true;
            self.begin_recall(tables, key, now_seconds);
        }
        if waiting { Err(Status::Delay) } else { Self::check_settled(tables, file) }
    }

    /// Starts the recall of one delegation, unless started before.
    pub(crate) fn begin_recall(&self, tables: &mut Tables, key: StateKey, now_seconds: u64) {
        let Some(delegation) = tables.delegations.get_mut(&key) else { return };
        if delegation.recalled_seconds.is_some() {
            return;
        }
        delegation.recalled_seconds = Some(now_seconds);
        let file = delegation.file.id;
        tables.recalled.insert(key);
        let quiet_until = now_seconds + QUIET_SECONDS;
        if let Some(state) = tables.files.get_mut(&file)
            && state.no_delegation_before < quiet_until
        {
            state.no_delegation_before = quiet_until;
            tables.revisits.entry(quiet_until).or_default().push(file);
        }
        self.send_recall(tables, key, now_seconds);
    }

    /// Recalls for a change without an open: all delegations except those of
    /// `caller`. No other client gets one until the returned value is dropped.
    ///
    /// # Errors
    /// [`Status::Delay`].
    pub(crate) fn recall_before_change(
        &self,
        file: &FileKey,
        caller: Option<ClientId>,
        now_seconds: u64,
    ) -> Result<ChangeGuard, Status> {
        let by = caller.map(|client| FileClient::of(client, file).number());
        let changing = self.changes.begin(&file.id, by, now_seconds);
        self.recall_conflicting(file, true, caller, now_seconds)?;
        Ok(changing)
    }

    /// Returns whether no delegation of the file conflicts with another protocol's
    /// access; starts the recall of those that do.
    pub(crate) fn admits_foreign(
        &self,
        tables: &mut Tables,
        file: &FileKey,
        modifies: bool,
        now_seconds: u64,
    ) -> bool {
        let Some(state) = tables.files.get(&file.id) else { return true };
        let standing: Vec<(StateKey, ClientId)> = state
            .delegations
            .values()
            .filter_map(|key| tables.delegations.get(key))
            .filter(|d| modifies || d.write)
            .map(|d| (d.key, d.client))
            .collect();
        let mut free = true;
        for (key, holder) in standing {
            if !self.give_up_if_expired(tables, holder, now_seconds) {
                free = false;
                self.begin_recall(tables, key, now_seconds);
            } else if tables.removed_clients.contains_key(&holder) {
                free = false;
            }
        }
        free && Self::check_settled(tables, file).is_ok()
    }
}

impl State {
    /// Recalls all delegations in some exports. It looks at every delegation: for rare
    /// changes only.
    pub(crate) fn recall_all(&self, exports: &BTreeSet<ExportId>, now_seconds: u64) {
        let mut tables = self.lock();
        let held = tables.delegations.values();
        // In the order of their keys: no client sees the order of a hash table.
        let held: BTreeSet<StateKey> =
            held.filter(|held| exports.contains(&held.file.export)).map(|held| held.key).collect();
        for key in held {
            if let Some(delegation) = tables.delegations.get_mut(&key)
                && std::mem::take(&mut delegation.returns_after_grace)
            {
                // What its client has in its cache may be wrong by now.
                delegation.recalled_seconds = Some(now_seconds);
            }
            self.begin_recall(&mut tables, key, now_seconds);
        }
    }

    /// Notes that files of some exports have other content than clients know: what these reclaim
    /// there in this grace period is recalled at once.
    pub(crate) fn note_replaced(&self, exports: &BTreeSet<ExportId>) {
        let mut tables = self.lock();
        if self.grace.active() {
            tables.replaced_in_grace.extend(exports);
        }
    }

    /// True if any file is delegated: otherwise names need not be looked up
    /// before they change.
    #[must_use]
    pub fn has_delegations(&self) -> bool {
        !self.lock().delegations.is_empty()
    }

    /// Begins the change of a name that need not be looked up: no file is
    /// delegated, or there is no client except `caller`. Until it ends, no
    /// other client is granted a delegation of any file. `None` if the name
    /// must be looked up, so that the file's delegations are recalled. Those of a file
    /// that another export serves as well may be of that export, and of `caller`.
    pub(crate) fn begin_change_of_name(
        &self,
        export: &Export,
        caller: Option<ClientId>,
    ) -> Option<ChangeGuard> {
        if !export.delegations && !export.shares_files {
            return Some(ChangeGuard::uncounted());
        }
        // Before the check of the tables: a later request for a delegation
        // finds this change.
        let by = caller.map(|client| FileClient { export: export.id, client }.number());
        let changing = self.changes.begin_of_name(by);
        let tables = self.lock();
        let alone = || !export.shares_files && tables.clients.keys().all(|id| Some(*id) == caller);
        (tables.delegations.is_empty() || alone()).then_some(changing)
    }
}
