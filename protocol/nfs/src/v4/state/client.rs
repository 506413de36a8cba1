//! Creates, confirms and removes client records.

use super::State;
use super::grace::Registrant;
use super::recovery::{ClientRecord, Shown};
use crate::runtime::Call;
use crate::v4::tables::Tables;
use crate::v4::tables::client::{Client, HeldStates, SoughtRoom};
use crate::v4::tables::client_hosts::ClientHosts;
use crate::v4::tables::lease::Lease;
use crate::v4::tables::losses::Losses;
use crate::v4::tables::owner_seq::OwnerSeq;
use crate::v4::tables::session::Session;
use ahash::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use zgate_nfs_wire::v4::{ClientId, Status, Verifier};

impl State {
    /// Adds a new, unconfirmed record under its name; replaces an older
    /// unconfirmed one. One of the same incarnation of the client passes its time of
    /// registration on: clients repeat EXCHANGE_ID before each CREATE_SESSION.
    ///
    /// # Errors
    /// [`Status::Delay`] or [`Status::Resource`] if there are too many clients,
    /// or too many of the host; [`Status::Delay`] while grace keeps the name for
    /// another caller.
    pub(crate) fn add_client(
        &self,
        tables: &mut Tables,
        call: &Call,
        name: &[u8],
        verifier: Verifier,
        minor_zero: bool,
        now_seconds: u64,
    ) -> Result<ClientId, Status> {
        let by = Registrant::of(call, verifier);
        self.grace.check_owner(name, &by, now_seconds)?;
        let mut registered_seconds = now_seconds;
        if let Some(old) = tables.by_name.get(name).and_then(|slot| slot.unconfirmed) {
            let same = tables.clients.get(&old);
            let same = same.filter(|o| o.verifier == verifier && o.principal == by.principal);
            registered_seconds = same.map_or(now_seconds, |same| same.registered_seconds);
            self.drop_client(tables, old, now_seconds);
        }
        let host = self.hosts.account(call.peer.address);
        let charge = self.charge_client(tables, &host, name, minor_zero, now_seconds)?;
        let id = self.ids.client();
        let may_reclaim = self.grace.may_reclaim(name, &by, now_seconds);
        let client = Client {
            id,
            name: name.to_vec(),
            verifier,
            principal: by.principal,
            assurance: by.assurance,
            machine_credential: false,
            minor_zero,
            registered_seconds,
            confirmed: false,
            record_removals: 0,
            record_begun: false,
            record_removal: None,
            unrecorded: false,
            knows_the_rest: false,
            restoration: None,
            lease: Arc::new(Lease::new(now_seconds)),
            sessions: Vec::new(),
            create_sequence: OwnerSeq::default(),
            first_create_sequence: 1,
            open_owners: HashMap::default(),
            lock_owners: HashMap::default(),
            held: HeldStates::default(),
            host,
            charge,
            delegations: HashSet::default(),
            sought_room: SoughtRoom::default(),
            losses: Losses::default(),
            reclaim_complete: false,
            may_reclaim,
            callback: None,
            callback_update: None,
            probe: Arc::default(),
            silent_until_seconds: AtomicU64::new(0),
            confirm_verifier: self.ids.verifier(),
            hosts: ClientHosts::new(call.peer.address),
            address: call.peer.address.to_string(),
            implementation: String::new(),
        };
        tables.clients.insert(id, client);
        tables.by_name.entry(name.to_vec()).or_default().unconfirmed = Some(id);
        Ok(id)
    }

    /// Confirms a record and removes the earlier one of the same name with all
    /// its state: the client has restarted.
    pub(crate) fn confirm_client(&self, tables: &mut Tables, id: ClientId, now_seconds: u64) {
        let Some(client) = tables.clients.get_mut(&id) else { return };
        client.confirmed = true;
        client.lease.renew(now_seconds);
        let name = client.name.clone();
        let slot = tables.by_name.entry(name).or_default();
        let before = slot.confirmed.replace(id).filter(|old| *old != id);
        if slot.unconfirmed == Some(id) {
            slot.unconfirmed = None;
        }
        if let Some(old) = before {
            self.drop_client(tables, old, now_seconds);
        }
    }

    /// Removes a record with all its state.
    pub(crate) fn drop_client(&self, tables: &mut Tables, id: ClientId, now_seconds: u64) {
        if let Some(client) = tables.clients.get(&id) {
            client.lease.revoke();
        }
        self.drop_client_state(tables, id, now_seconds);
        let Some(client) = tables.clients.remove(&id) else { return };
        for session in &client.sessions {
            self.sessions.remove(session.id);
        }
        self.back.forget(id);
        self.copies.forget_client(id, &client.host);
        if let Some(slot) = tables.by_name.get_mut(&client.name) {
            if slot.confirmed == Some(id) {
                slot.confirmed = None;
            }
            if slot.unconfirmed == Some(id) {
                slot.unconfirmed = None;
            }
            if slot.confirmed.is_none() && slot.unconfirmed.is_none() {
                tables.by_name.remove(&client.name);
            }
        }
    }

    /// The confirmed minor-0 client, after renewal of its lease.
    ///
    /// # Errors
    /// [`Status::StaleClientid`] if there is none, [`Status::Expired`] if its
    /// lease has expired and it lost its state.
    pub(crate) fn minor_zero_client<'t>(
        &self,
        tables: &'t mut Tables,
        id: ClientId,
        now_seconds: u64,
    ) -> Result<&'t mut Client, Status> {
        match tables.clients.get_mut(&id) {
            Some(client) if client.confirmed && client.minor_zero => {
                if client.lease.revoked() {
                    return Err(Status::Expired);
                }
                client.lease.renew(now_seconds);
                Ok(client)
            }
            _ => Err(Status::StaleClientid),
        }
    }

    /// Writes the record of a client that is about to be confirmed to stable
    /// storage, if it takes the place of one that is there: that of a client that
    /// reclaims, or has restarted. It must be there before the client may rely on
    /// reclaiming after a restart (RFC 8881 §8.4.2.1, RFC 7530 §9.6.3.4). No lock is
    /// held in the meantime, so the caller must check all conditions again.
    ///
    /// Any other client gets its record before it can hold something
    /// ([`Self::record_again`]). It may be one that lost everything and does not know it
    /// yet: with a record it could reclaim, after a restart that comes now, what others
    /// have got meanwhile. Nor does the record of one that may never be confirmed take the
    /// place of a mark ([`Self::mark_record`]).
    ///
    /// # Errors
    /// [`Status::StaleClientid`], or [`Status::Delay`] if stable storage does not
    /// accept it.
    pub(crate) async fn keep_record(&self, id: ClientId) -> Result<RecordKept, Status> {
        let (write, kept) = {
            let mut tables = self.lock();
            let client = tables.clients.get_mut(&id).ok_or(Status::StaleClientid)?;
            let kept = RecordKept { record_removals: client.record_removals };
            if client.confirmed {
                return Ok(kept);
            }
            // Once grace ends, the record that it would reclaim under is removed.
            client.may_reclaim &= self.grace.is_running();
            let (name, may_reclaim) = (client.name.clone(), client.may_reclaim);
            let before = confirmed_of(&tables, &name);
            let is_marked = before.is_some_and(|before| !before.knows_its_losses());
            let replaces = may_reclaim && !is_marked || is_recorded(before);
            let client = tables.clients.get_mut(&id).ok_or(Status::StaleClientid)?;
            client.unrecorded = !replaces;
            if !replaces {
                return Ok(kept);
            }
            client.record_begun = true;
            (self.records.begin(record_of(client))?, kept)
        };
        self.records.kept(&*self.runtime, write).await?;
        Ok(kept)
    }

    /// Writes the record of a client that has none: it registered outside of grace, or
    /// lost its record at the end of it, or by the loss of a delegation. What the client
    /// has reclaimed until then, and what it gets from now on, it may reclaim after a
    /// restart. A client that does not know yet what it has lost goes on without it, until it
    /// acknowledges that ([`Self::acknowledge`]). No lock is held in the meantime.
    ///
    /// # Errors
    /// [`Status::StaleClientid`], [`Status::Expired`] if the client has lost its state, or
    /// [`Status::Delay`] if stable storage does not accept it, or the record was removed
    /// meanwhile.
    pub(crate) async fn record_again(&self, id: ClientId) -> Result<(), Status> {
        let (name, write, kept) = {
            let mut tables = self.lock();
            let client = tables.clients.get_mut(&id).ok_or(Status::StaleClientid)?;
            if !client.unrecorded {
                return Ok(());
            }
            client.may_hold_state()?;
            client.knows_the_rest = true;
            if !client.knows_its_losses() {
                return Ok(());
            }
            let kept = RecordKept { record_removals: client.record_removals };
            (client.name.clone(), self.records.begin(record_of(client))?, kept)
        };
        self.records.kept(&*self.runtime, write).await?;
        let mut tables = self.lock();
        if let Some(client) = tables.clients.get_mut(&id) {
            kept.still_counts(client)?;
            client.unrecorded = false;
            return Ok(());
        }
        // The client was removed meanwhile. The record may be that of a later one.
        if tables.by_name.get(&name).is_none_or(|slot| slot.confirmed.is_none()) {
            // The removal need not be awaited: the client's state is gone, and a
            // request for it has waited for its storage.
            let _ = self.forget_record(&mut tables, &name);
        }
        Err(Status::StaleClientid)
    }

    /// Counts a removal of the record of this name, or its mark: what is being written of it
    /// meanwhile does not count.
    pub(super) fn count_removal(tables: &mut Tables, name: &[u8]) {
        let slot = tables.by_name.get(name).copied().unwrap_or_default();
        for id in [slot.confirmed, slot.unconfirmed].into_iter().flatten() {
            if let Some(client) = tables.clients.get_mut(&id) {
                client.record_removals += 1;
                client.restoration = None;
            }
        }
    }

    /// Ends the reclaims of a client whose record has been written again, if it was
    /// removed. One that does not know what it has lost goes on without a record.
    ///
    /// # Errors
    /// [`Status::StaleClientid`], [`Status::CompleteAlready`], or [`Status::Delay`] if
    /// grace has ended since the record was looked at, and has taken it: the client
    /// retries, and nothing else would write its record again.
    pub fn complete_reclaims(&self, id: ClientId, now_seconds: u64) -> Result<(), Status> {
        let mut tables = self.lock();
        let client = tables.clients.get_mut(&id).ok_or(Status::StaleClientid)?;
        if client.unrecorded && client.knows_its_losses() {
            return Err(Status::Delay);
        }
        if std::mem::replace(&mut client.reclaim_complete, true) {
            return Err(Status::CompleteAlready);
        }
        client.knows_the_rest = true;
        // Also of one that may reclaim nothing: the period was for it, too.
        self.grace.completed(&client.name, now_seconds);
        Ok(())
    }

    /// Returns whether a call over a connection that is not bound to the
    /// session yet may use it: the session's client admits it.
    pub(crate) fn may_use(&self, session: &Session, call: &Call) -> bool {
        let mut tables = self.lock();
        tables.clients.get_mut(&session.client).is_some_and(|client| client.admits(call))
    }

    /// As [`Self::may_use`], for SEQUENCE, which binds the connection: not where the
    /// client has reserved BIND_CONN_TO_SESSION for its machine. It would bind for
    /// anybody what that operation refuses (RFC 8881 §2.10.8.3, §18.34.3).
    pub(crate) fn is_bound_by_use(&self, session: &Session, call: &Call) -> bool {
        let mut tables = self.lock();
        let client = tables.clients.get_mut(&session.client);
        client.is_some_and(|client| !client.machine_credential && client.admits(call))
    }
}

/// Proof that a client's record was written to stable storage, with the state
/// at that time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordKept {
    record_removals: u32,
}

impl RecordKept {
    /// Checks that the record still exists: that of an earlier client of the
    /// same name may have been removed since.
    ///
    /// # Errors
    /// [`Status::Delay`]: the client must retry.
    pub(crate) fn still_counts(self, client: &Client) -> Result<(), Status> {
        if client.record_removals == self.record_removals { Ok(()) } else { Err(Status::Delay) }
    }
}

/// The confirmed client of this name.
fn confirmed_of<'t>(tables: &'t Tables, name: &[u8]) -> Option<&'t Client> {
    tables.clients.get(&tables.by_name.get(name)?.confirmed?)
}

/// Returns whether a confirmed client has a record under which it may reclaim, or gets it as
/// soon as storage takes it.
fn is_recorded(confirmed: Option<&Client>) -> bool {
    confirmed.is_some_and(|client| {
        (!client.unrecorded || client.restoration.is_some()) && !client.lease.revoked()
    })
}

/// Returns the record of a client for stable storage.
pub(super) fn record_of(client: &Client) -> ClientRecord {
    ClientRecord {
        name: client.name.clone(),
        minor_zero: client.minor_zero,
        principal: client.principal.proven().map(str::to_owned),
        shown: Shown::of(&client.assurance, client.verifier),
        revoked: false,
    }
}
