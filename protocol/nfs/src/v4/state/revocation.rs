//! State that is taken from a client although its lease is valid. The client may not know
//! that when the server restarts, and the server could not tell what is lost from what the
//! client still has: its record on stable storage is marked, and it may reclaim nothing until
//! it has acknowledged the loss (RFC 8881 §8.4.3, §10.2.1; RFC 7530 §9.6.3.4, §10.2.1).

use super::State;
use super::client::record_of;
use super::recovery::ClientRecord;
use crate::limits::{LEASES_OF_UNHEEDED_REVOCATIONS, MAX_UNRETURNED_PER_CLIENT};
use crate::v4::tables::Tables;
use crate::v4::tables::ids::StateKey;
use crate::v4::tables::pending_work::PendingWork;
use ahash::HashMap;
use std::collections::BTreeSet;
use std::net::IpAddr;
use zgate_nfs_wire::v4::{ClientId, Status};

impl State {
    /// Revokes a delegation that a client does not return; the client learns of
    /// it through SEQUENCE and TEST_STATEID. It may be cut off, and the server restart
    /// before it has: others get the file when stable storage knows that the client may
    /// not reclaim (RFC 8881 §10.2.1).
    pub(crate) fn revoke_delegation(&self, tables: &mut Tables, key: StateKey, now_seconds: u64) {
        let Some(holder) = self.take_delegation(tables, key, now_seconds) else { return };
        let Some(client) = tables.clients.get_mut(&holder) else { return };
        if client.minor_zero {
            client.losses.add_within(key, Status::Expired, MAX_UNRETURNED_PER_CLIENT);
            tables.expired_stateids.add_revoked(key, holder);
        } else {
            client.losses.add(key, Status::DelegRevoked);
            client.lease.note_news();
        }
    }

    /// Ends a delegation with its export. What its holder has in its cache it uses without a
    /// request, also if the export comes back with other content: a client with sessions is
    /// told. Its record is marked until it has acknowledged that, or was told in
    /// [`LEASES_OF_UNHEEDED_REVOCATIONS`] leases: its DELEGRETURN may have come too late, when
    /// the file handle was stale already.
    pub(super) fn end_delegation_with_export(
        &self,
        tables: &mut Tables,
        key: StateKey,
        now_seconds: u64,
    ) {
        if !tables.is_told_of_revocations(key) {
            self.remove_delegation(tables, key, now_seconds);
            return;
        }
        let Some(holder) = self.take_delegation(tables, key, now_seconds) else { return };
        if let Some(client) = tables.clients.get_mut(&holder) {
            client.losses.add_with_export(key, Status::DelegRevoked);
            client.lease.note_news();
        }
    }

    /// Removes a delegation from its holder, which is returned, and marks its record.
    fn take_delegation(
        &self,
        tables: &mut Tables,
        key: StateKey,
        now_seconds: u64,
    ) -> Option<ClientId> {
        let delegation = tables.delegations.get(&key)?;
        let (holder, file) = (delegation.client, delegation.file);
        if let Some(marking) = self.mark_record(tables, holder) {
            Self::await_before_giving(tables, file, marking);
        }
        self.remove_delegation(tables, key, now_seconds);
        Some(holder)
    }

    /// Takes opens from clients, with the locks under them. The clients have no way to say
    /// that they know: they may reclaim nothing after the next restart.
    pub(super) fn revoke_opens(
        &self,
        tables: &mut Tables,
        keys: &BTreeSet<StateKey>,
        now_seconds: u64,
    ) {
        // A client may have any number of these: its record changes once.
        let mut marks = HashMap::<ClientId, Option<PendingWork>>::default();
        for key in keys {
            let Some(open) = tables.opens.get(key) else { continue };
            let (holder, file) = (open.client, open.file);
            let marking = marks.entry(holder).or_insert_with(|| self.mark_record(tables, holder));
            if let Some(marking) = marking.clone() {
                Self::await_before_giving(tables, file, marking);
            }
            self.remove_open(tables, *key, now_seconds);
            if let Some(client) = tables.clients.get_mut(&holder) {
                client.losses.add_lasting();
            }
        }
    }

    /// Begins to note on stable storage that a client loses something although its lease
    /// is valid. The file may be granted to others when the returned work has ended. `None`:
    /// the client has lost all its state, and has no record.
    fn mark_record(&self, tables: &mut Tables, id: ClientId) -> Option<PendingWork> {
        let client = tables.clients.get_mut(&id).filter(|client| !client.lease.revoked())?;
        client.knows_the_rest |= !client.unrecorded;
        client.unrecorded = true;
        let record = ClientRecord { revoked: true, ..record_of(client) };
        Self::count_removal(tables, &record.name);
        Some(self.records.mark(record))
    }

    /// Notes that a client knows that one of its delegations was revoked; its record is
    /// written again with the last one. False if it is no revoked one of this client.
    pub(crate) async fn acknowledge(&self, id: ClientId, key: StateKey) -> bool {
        let (was_revoked, is_due) = {
            let mut tables = self.lock();
            let Some(client) = tables.clients.get_mut(&id) else { return false };
            let was_revoked = client.losses.acknowledge(key);
            (was_revoked, was_revoked && client.is_record_due())
        };
        if is_due && self.record_again(id).await.is_err() {
            self.begin_restoration(&mut self.lock(), id);
        }
        was_revoked
    }

    /// Has the record of a client written when storage takes it again. A restart before that
    /// takes from the client what it holds.
    fn begin_restoration(&self, tables: &mut Tables, id: ClientId) {
        let client = tables.clients.get_mut(&id);
        if let Some(client) = client.filter(|client| client.is_record_due()) {
            client.restoration = Some(self.records.restore(record_of(client)));
        }
    }

    /// To be called about once a second: notes which records have been restored, and goes on
    /// without the acknowledgement of clients that were told for long enough.
    pub(super) fn settle_losses(&self, tables: &mut Tables) {
        // In the order of their ids: storage does not see the order of a hash table.
        let mut unheeding = BTreeSet::new();
        for client in tables.clients.values_mut() {
            if client.restoration.take_if(|restoration| restoration.is_over()).is_some() {
                client.unrecorded = false;
            }
            if client.losses.forget_unheeded(LEASES_OF_UNHEEDED_REVOCATIONS) {
                unheeding.insert(client.id);
            }
        }
        for id in unheeding {
            self.begin_restoration(tables, id);
        }
    }

    /// The client of minor version 0 from which this delegation was revoked. Its stateid
    /// names the client; it must come from one of the client's hosts, since others may have
    /// seen it on its way.
    pub(crate) fn client_of_revoked(&self, key: StateKey, host: IpAddr) -> Option<ClientId> {
        let tables = self.lock();
        let id = tables.expired_stateids.revoked_from(key)?;
        let client = tables.clients.get(&id)?;
        client.hosts.contains(host).then_some(id)
    }
}
