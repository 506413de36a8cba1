//! Room for what a quota refuses.
//!
//! A client that may not open one more file is asked for its delegations of files
//! that it has not open: it keeps them for speed only. Clients with an expired
//! lease lose what they keep by courtesy, their sessions with it, the longest silent
//! first.

use super::State;
use crate::limits::MAX_STATES_PER_SLICE;
use crate::v4::tables::Tables;
use crate::v4::tables::client::{Client, SoughtRoom};
use crate::v4::tables::ids::StateKey;
use crate::v4::tables::quota::{Bound, Charge, HostAccount, Quota};
use crate::v4::tables::reply_memory;
use crate::v4::tables::session::Channel;
use std::sync::Arc;
use zgate_nfs_wire::v4::{ClientId, Status};

/// Most delegations of a client that are recalled at a time because it needs room.
const MAX_RECALLS_FOR_ROOM: usize = 16;
/// Most clients that lose their state at a time because others need room.
const MAX_EXPIRED_FOR_ROOM: usize = 64;

/// Amount that a request asks for, and its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Need {
    quota: Quota,
    amount: usize,
    bound: Bound,
}

impl Need {
    /// Something new.
    fn of(quota: Quota, amount: usize) -> Self {
        Self { quota, amount, bound: Bound::Share }
    }

    fn fits(&self, host: &HostAccount) -> bool {
        host.has_room_within(self.bound, self.quota, self.amount)
    }

    fn is_for_session(&self) -> bool {
        matches!(self.quota, Quota::Sessions | Quota::ReplyBytes)
    }

    /// Returns whether the end of this client would give some of it back.
    fn is_held_by(&self, client: &Client) -> bool {
        match self.quota {
            Quota::Clients => true,
            Quota::Sessions | Quota::ReplyBytes => !client.sessions.is_empty(),
            _ => client.has_state(),
        }
    }

    /// The last search for clients that hold some of it.
    fn sought<'t>(&self, tables: &'t mut Tables) -> &'t mut SoughtRoom {
        if self.is_for_session() { &mut tables.sought_sessions } else { &mut tables.sought_room }
    }
}

impl State {
    /// Bound of the state that the client asks for. In grace, one that may reclaim
    /// gets nothing but what it had before the restart: its host's share, which
    /// depends on who came back first, must not take that from it.
    pub(crate) fn bound(&self, client: &Client) -> Bound {
        let reclaims = client.may_reclaim && !client.reclaim_complete && self.grace.active();
        if reclaims { Bound::Total } else { Bound::Share }
    }

    /// Checks that the client's host may have `amount` more, and makes room if it
    /// may not.
    ///
    /// # Errors
    /// [`Status::Delay`] if there may be room later; otherwise the status for a client
    /// that holds too much, or [`Status::StaleClientid`].
    pub(crate) fn need_room(
        &self,
        tables: &mut Tables,
        id: ClientId,
        (quota, amount): (Quota, usize),
        now_seconds: u64,
    ) -> Result<(), Status> {
        let client = tables.clients.get(&id).ok_or(Status::StaleClientid)?;
        let need = Need { quota, amount, bound: self.bound(client) };
        let host = Arc::clone(&client.host);
        if need.fits(&host) {
            return Ok(());
        }
        let refused = client.too_much();
        if quota == Quota::Files && self.recall_unused(tables, id, now_seconds) {
            return Err(Status::Delay);
        }
        let is_coming = self.end_courtesy(tables, &host, need, Some(id), now_seconds);
        match need.fits(&host) {
            true => Ok(()),
            false if is_coming => Err(Status::Delay),
            false => Err(refused),
        }
    }

    /// Charges a host for one more client of this name, and makes room if there is
    /// none.
    ///
    /// # Errors
    /// [`Status::Delay`], or [`Status::Resource`] if there are too many clients.
    pub(super) fn charge_client(
        &self,
        tables: &mut Tables,
        host: &Arc<HostAccount>,
        name: &[u8],
        minor_zero: bool,
        now_seconds: u64,
    ) -> Result<Charge, Status> {
        if let Some(charge) = host.take(Quota::Clients, 1) {
            return Ok(charge);
        }
        // The new client may be the restarted one, whose record goes when it is
        // confirmed.
        let own = tables.by_name.get(name).and_then(|slot| slot.confirmed);
        let need = Need::of(Quota::Clients, 1);
        let is_coming = self.end_courtesy(tables, host, need, own, now_seconds);
        // Minor version 0 has a status for it (RFC 7530 §16.33); in later ones the
        // client must wait (RFC 8881 §15.1.1.3).
        let refused = if minor_zero && !is_coming { Status::Resource } else { Status::Delay };
        host.take(Quota::Clients, 1).ok_or(refused)
    }

    /// Checks that the client may have one more session, and makes room if it may
    /// not; also for the replies of its channel, without which the session becomes a
    /// small one.
    ///
    /// # Errors
    /// [`Status::Delay`] if there may be room later, otherwise [`Status::Nospc`]
    /// (RFC 8881 §18.36.4), or [`Status::StaleClientid`].
    pub(crate) fn need_session(
        &self,
        tables: &mut Tables,
        id: ClientId,
        channel: &Channel,
        now_seconds: u64,
    ) -> Result<(), Status> {
        let client = tables.clients.get(&id).ok_or(Status::StaleClientid)?;
        let host = Arc::clone(&client.host);
        let session = Need::of(Quota::Sessions, 1);
        let replies = Need::of(Quota::ReplyBytes, reply_memory::asked_bytes(channel));
        let mut is_coming = false;
        for need in [session, replies] {
            if !need.fits(&host) {
                is_coming |= self.end_courtesy(tables, &host, need, Some(id), now_seconds);
            }
        }
        match session.fits(&host) {
            true => Ok(()),
            false if is_coming => Err(Status::Delay),
            false => Err(Status::Nospc),
        }
    }

    /// Removes the state of clients with an expired lease, but not of `except`,
    /// until `host` has room; their records, too, if that is what it needs. Returns
    /// whether more may become free. The clients are looked at once a second: there
    /// are many, and a host that holds too much may ask often.
    fn end_courtesy(
        &self,
        tables: &mut Tables,
        host: &HostAccount,
        need: Need,
        except: Option<ClientId>,
        now_seconds: u64,
    ) -> bool {
        let sought = *need.sought(tables);
        if sought.at_seconds == now_seconds {
            return sought.is_coming;
        }
        let needs_records = need.quota == Quota::Clients;
        let mut expired: Vec<(u64, ClientId)> = tables
            .clients
            .values()
            .filter(|client| client.confirmed && Some(client.id) != except)
            .filter(|client| need.is_held_by(client))
            .filter(|client| client.lease.expired(now_seconds, self.lease_seconds))
            .map(|client| (client.lease.renewed_seconds(), client.id))
            .collect();
        expired.sort_unstable();
        let (mut ended, mut states) = (0, 0);
        for (_, id) in &expired {
            let is_enough = ended == MAX_EXPIRED_FOR_ROOM || states >= MAX_STATES_PER_SLICE;
            if is_enough || need.fits(host) {
                break;
            }
            ended += 1;
            states += tables.clients.get(id).map_or(0, |client| client.held.all());
            self.expire_client(tables, *id, now_seconds);
            if needs_records {
                self.drop_client(tables, *id, now_seconds);
            }
        }
        // Sessions end at once, whatever state is left.
        let is_left = !need.is_for_session() && !tables.removed_clients.is_empty();
        let is_coming = ended < expired.len() || is_left;
        *need.sought(tables) = SoughtRoom { at_seconds: now_seconds, is_coming };
        is_coming
    }

    /// Recalls some delegations of files that the client has not open. Returns
    /// whether any is on its way back. The client's delegations are looked at once
    /// a second: it may hold many, and ask often.
    fn recall_unused(&self, tables: &mut Tables, id: ClientId, now_seconds: u64) -> bool {
        let Some(client) = tables.clients.get(&id) else { return false };
        let sought = client.sought_room;
        if sought.at_seconds == now_seconds {
            return sought.is_coming;
        }
        let (mut unused, mut coming) = (Vec::<StateKey>::new(), 0);
        for key in &client.delegations {
            if unused.len() + coming >= MAX_RECALLS_FOR_ROOM {
                break;
            }
            let Some(delegation) = tables.delegations.get(key) else { continue };
            let (file, holder) = (&delegation.file, delegation.holder());
            if tables.files.get(&file.id).is_some_and(|file| file.opens.has(holder)) {
                continue;
            }
            if delegation.recalled_seconds.is_some() {
                coming += 1;
            } else {
                unused.push(*key);
            }
        }
        let is_coming = coming + unused.len() > 0;
        if let Some(client) = tables.clients.get_mut(&id) {
            client.sought_room = SoughtRoom { at_seconds: now_seconds, is_coming };
        }
        for key in unused {
            self.begin_recall(tables, key, now_seconds);
        }
        is_coming
    }
}
