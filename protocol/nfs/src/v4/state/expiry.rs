//! Timeouts: expiry of leases, unanswered recalls, end of grace.

use super::State;
use crate::namespace::{FileKey, Namespace};
use crate::v4::tables::Tables;
use crate::v4::tables::pending_work::PendingWork;
use std::collections::BTreeSet;
use zgate_nfs_wire::v4::ClientId;

/// Time for which an expired client keeps its state without a conflict, in
/// seconds (a day: a laptop may sleep overnight).
const COURTESY_SECONDS: u64 = 24 * 3600;
/// Time for which a blocked lock is remembered, in seconds; clients retry more
/// often than that.
const WAITER_SECONDS: u64 = 120;

impl State {
    /// If the client's lease has expired, removes its state and returns true:
    /// courtesy ends with the first conflict (RFC 8881 §8.4.2.4).
    pub(crate) fn give_up_if_expired(
        &self,
        tables: &mut Tables,
        client: ClientId,
        now_seconds: u64,
    ) -> bool {
        let Some(record) = tables.clients.get(&client) else {
            self.remove_slice(tables, client, now_seconds);
            return true;
        };
        if record.lease.revoked() {
            // Only its record is left (minor version 0).
            self.remove_slice(tables, client, now_seconds);
            return true;
        }
        if !record.lease.expired(now_seconds, self.lease_seconds) {
            return false;
        }
        self.expire_client(tables, client, now_seconds);
        true
    }

    /// Removes all state of a client with an expired lease. Minor version 0
    /// keeps the bare record, so that RENEW answers NFS4ERR_EXPIRED (RFC 7530
    /// §16.28.3); later versions lose their sessions. None of its state is
    /// granted to others while it could reclaim it after a restart (RFC 8881
    /// §8.4.3).
    pub(crate) fn expire_client(&self, tables: &mut Tables, id: ClientId, now_seconds: u64) {
        let Some(record) = tables.clients.get(&id) else { return };
        let name = record.name.clone();
        let removal = self.forget_record(tables, &name);
        let Some(record) = tables.clients.get_mut(&id) else { return };
        record.record_removal = Some(removal);
        if record.minor_zero {
            record.lease.revoke();
            self.drop_client_state(tables, id, now_seconds);
        } else {
            self.drop_client(tables, id, now_seconds);
        }
    }

    /// Begins the removal of the record of a client that lost its state or
    /// left.
    pub(crate) fn forget_record(&self, tables: &mut Tables, name: &[u8]) -> PendingWork {
        Self::count_removal(tables, name);
        self.records.forget(name)
    }
}

impl State {
    /// Removes state of clients in exports that `new` no longer has, or whose
    /// root is another directory now: what was open may lie outside. They
    /// learn of it at the next use: the file handle is stale. Exports that
    /// cannot be opened now keep theirs: their clients are told to wait, and
    /// expect to go on.
    ///
    /// Records are marked for delegations alone, and until their clients are told
    /// ([`Self::end_delegation_with_export`]). An export that is gone has nothing to reclaim,
    /// and a mark that lasts would keep the client from reclaiming what it has in others.
    pub(crate) fn close_vanished(&self, old: &Namespace, new: &Namespace, now_seconds: u64) {
        let mut tables = self.lock();
        let vanished = |file: &FileKey| match (old.export(file.export), new.export(file.export)) {
            (Some(before), Some(now)) => before.store.root() != now.store.root(),
            (None, Some(_)) => false,
            (_, None) => !new.is_absent(file.export),
        };
        // A file may be open through other exports as well: those opens stay.
        let opens = tables.opens.values().filter(|open| vanished(&open.file));
        let opens: Vec<_> = opens.map(|open| open.key).collect();
        let delegations = tables.delegations.values().filter(|held| vanished(&held.file));
        let delegations: BTreeSet<_> = delegations.map(|held| held.key).collect();
        for key in opens {
            self.remove_open(&mut tables, key, now_seconds);
        }
        for key in delegations {
            self.end_delegation_with_export(&mut tables, key, now_seconds);
        }
    }

    /// Takes state from clients in exports that named their hosts before, and
    /// do not any longer: their requests are refused, so that they could not
    /// return it, and others would wait for it. Others get it at once, and after a restart
    /// the exports may name the hosts again: the records are marked. A client that has lost
    /// all its state is left out: the rest of that goes when its record has.
    pub(crate) fn close_excluded(&self, old: &Namespace, new: &Namespace, now_seconds: u64) {
        let changed = |file: &FileKey| {
            let (before, now) = (old.export(file.export)?, new.export(file.export)?);
            (before.clients != now.clients).then_some((before, now))
        };
        let mut tables = self.lock();
        let excluded = |file: &FileKey, client: ClientId| {
            let holder = tables.clients.get(&client).filter(|holder| !holder.lease.revoked())?;
            let address = holder.address.parse().ok()?;
            let (before, now) = changed(file)?;
            (before.names_host(address) && !now.names_host(address)).then_some(())
        };
        let opens = tables.opens.iter();
        let opens = opens.filter(|(_, open)| excluded(&open.file, open.client).is_some());
        let opens: BTreeSet<_> = opens.map(|(key, _)| *key).collect();
        let delegations = tables.delegations.iter();
        let delegations =
            delegations.filter(|(_, held)| excluded(&held.file, held.client).is_some());
        let delegations: BTreeSet<_> = delegations.map(|(key, _)| *key).collect();
        self.revoke_opens(&mut tables, &opens, now_seconds);
        for key in delegations {
            self.revoke_delegation(&mut tables, key, now_seconds);
        }
    }
}

impl State {
    /// To be called about once a second: ends grace, expires clients,
    /// revokes delegations that were recalled a lease ago, repeats callbacks without
    /// an answer, drops waiters.
    pub(crate) fn tick(&self, now_seconds: u64) {
        self.records.tick(now_seconds);
        self.settle_losses(&mut self.lock());
        // The tables are unlocked between the steps: requests wait for them.
        self.end_grace(&mut self.lock(), now_seconds);
        self.expire_clients(&mut self.lock(), now_seconds);
        self.continue_removals(now_seconds);
        self.revoke_unreturned(&mut self.lock(), now_seconds);
        self.repeat_recalls(&self.lock(), now_seconds);
        self.repeat_copy_notices(&self.lock(), now_seconds);
        if now_seconds.is_multiple_of(u64::from(self.lease_seconds)) {
            self.sweep_owners();
        }
        self.serve_waiters(now_seconds);
        forget_idle_files(&mut self.lock(), now_seconds);
    }

    /// Goes on after `held_seconds` in which nothing was served. Clients could
    /// neither renew a lease, nor reclaim, return a delegation or ask again for a
    /// lock: what waits for them waits for that much longer.
    pub(crate) fn resume(&self, held_seconds: u64, now_seconds: u64) {
        self.grace.excuse(held_seconds, now_seconds);
        let later = |since_seconds: u64| (since_seconds + held_seconds).min(now_seconds);
        let tables = &mut *self.lock();
        for client in tables.clients.values() {
            client.lease.renew(now_seconds);
        }
        for key in &tables.recalled {
            if let Some(delegation) = tables.delegations.get_mut(key) {
                delegation.recalled_seconds = delegation.recalled_seconds.map(later);
            }
        }
        for key in &tables.waited_for {
            let waiters = tables.files.get_mut(key).map(|file| &mut file.waiters);
            for waiter in waiters.into_iter().flatten() {
                waiter.since_seconds = later(waiter.since_seconds);
            }
        }
    }

    /// Removes the records of clients that did not come back, and ends grace
    /// with the last of them. Those of clients that are back and have not reported
    /// RECLAIM_COMPLETE go, too: what such a client has not reclaimed is given to
    /// others from now on, and after the next restart the server could not tell it
    /// from what it has (RFC 8881 §8.4.3). Minor version 0 cannot report it: the
    /// record of a client that has reclaimed something is kept. One that has
    /// reclaimed nothing holds nothing, and its record is written again with the
    /// first OPEN after that (RFC 7530 §9.6.3.4). A mark stays: nothing is reclaimed
    /// under it, and after a restart it keeps what its client gets from now on.
    fn end_grace(&self, tables: &mut Tables, now_seconds: u64) {
        let grace = &self.grace;
        grace.end_if_settled();
        if !grace.active() {
            // Nothing is reclaimed any more.
            tables.replaced_in_grace.clear();
        }
        let Some(unfinished) = grace.tick(now_seconds) else { return };
        let mut removals = Vec::new();
        for name in unfinished {
            let confirmed = tables.by_name.get(&name).and_then(|slot| slot.confirmed);
            match confirmed.and_then(|id| tables.clients.get_mut(&id)) {
                Some(client) if client.minor_zero && client.has_state() => continue,
                Some(client) => {
                    (client.unrecorded, client.may_reclaim) = (true, false);
                    client.knows_the_rest = false;
                    let is_marked = !client.knows_its_losses() && !client.lease.revoked();
                    // One that is not durable yet is removed: that needs no space, and the
                    // end of grace waits for it.
                    if is_marked && self.records.is_settled(&name) {
                        continue;
                    }
                }
                None => {}
            }
            removals.push(self.forget_record(tables, &name));
        }
        grace.close(removals);
    }

    /// Removes blocked locks whose client stopped asking, and notifies the
    /// others of locks that became free without an unlock: those of an expired
    /// client. The tables are unlocked between two files.
    fn serve_waiters(&self, now_seconds: u64) {
        let waited_for: Vec<_> = self.lock().waited_for.iter().copied().collect();
        for key in waited_for {
            let tables = &mut *self.lock();
            if let Some(file) = tables.files.get_mut(&key) {
                file.waiters.retain(|w| w.since_seconds + WAITER_SECONDS >= now_seconds);
            }
            self.wake_waiters(tables, &key);
            tables.tidy_file(&key, now_seconds);
        }
    }

    fn expire_clients(&self, tables: &mut Tables, now_seconds: u64) {
        let lease = u64::from(self.lease_seconds);
        let gone: Vec<ClientId> = tables
            .clients
            .values()
            .filter(|client| {
                let silent = now_seconds.saturating_sub(client.lease.renewed_seconds());
                let patience = if !client.confirmed {
                    lease
                } else if client.has_state() {
                    COURTESY_SECONDS
                } else {
                    // No state to keep: the record is remembered for a few
                    // leases, so that a returning client needs no EXCHANGE_ID.
                    lease * 8
                };
                silent > patience && client.lease.expired(now_seconds, self.lease_seconds)
            })
            .map(|client| client.id)
            .collect();
        for id in gone {
            let Some(client) = tables.clients.get(&id) else { continue };
            if client.confirmed {
                self.expire_client(tables, id, now_seconds);
            } else if client.record_begun {
                self.forget_unconfirmed(tables, id);
            }
            self.drop_client(tables, id, now_seconds);
        }
    }

    /// Removes the record of a client that stayed away while it was being
    /// written, unless it is also the record of a confirmed client. One that lost its
    /// state has none.
    fn forget_unconfirmed(&self, tables: &mut Tables, id: ClientId) {
        let Some(name) = tables.clients.get(&id).map(|client| client.name.clone()) else { return };
        let confirmed = tables.by_name.get(&name).and_then(|slot| slot.confirmed);
        let confirmed = confirmed.and_then(|id| tables.clients.get(&id));
        if confirmed.is_none_or(|client| client.lease.revoked()) {
            // The removal need not be awaited: the client held no state.
            let _ = self.forget_record(tables, &name);
        }
    }

    /// Revokes unreturned delegations. A client with a valid lease loses the
    /// delegation, and its record says so before others get the file. One with an
    /// expired lease loses all state: the server does not know the locks it took under
    /// the delegation, and it must not continue with the opens of those locks.
    fn revoke_unreturned(&self, tables: &mut Tables, now_seconds: u64) {
        self.excuse_in_grace(tables, now_seconds);
        let lease = u64::from(self.lease_seconds);
        let overdue: Vec<_> = tables
            .recalled
            .iter()
            .filter_map(|key| tables.delegations.get(key))
            .filter(|d| d.recalled_seconds.is_some_and(|since| now_seconds > since + lease))
            .map(|d| (d.key, d.client))
            .collect();
        if !overdue.is_empty() {
            let count = overdue.len();
            tracing::warn!(count, "recalled delegations were not returned within a lease; revoked");
        }
        for (key, holder) in overdue {
            if !self.give_up_if_expired(tables, holder, now_seconds) {
                self.revoke_delegation(tables, key, now_seconds);
            }
        }
    }

    /// Has the lease of delegations that were recalled when their clients took them back begin
    /// with the end of grace: a client opens and locks at the server what it has under one
    /// before it returns it, and that is NFS4ERR_GRACE until then (RFC 8881 §8.4.2, §10.2.1).
    fn excuse_in_grace(&self, tables: &mut Tables, now_seconds: u64) {
        let in_grace = self.grace.active();
        for key in &tables.recalled {
            if let Some(delegation) = tables.delegations.get_mut(key)
                && delegation.returns_after_grace
            {
                delegation.recalled_seconds = Some(now_seconds);
                delegation.returns_after_grace = in_grace;
            }
        }
    }
}

/// Removes files that were kept for a while and have no state any more.
fn forget_idle_files(tables: &mut Tables, now_seconds: u64) {
    let later = tables.revisits.split_off(&(now_seconds + 1));
    let due = std::mem::replace(&mut tables.revisits, later);
    for file in due.into_values().flatten() {
        tables.tidy_file(&file, now_seconds);
    }
}

impl State {
    /// Removes owners that hold nothing for two sweeps; clients create a new
    /// one for each process. The time in between is for repeated requests of
    /// minor version 0 (RFC 7530 §9.1.8). The tables are unlocked between two
    /// clients.
    fn sweep_owners(&self) {
        let clients: Vec<_> = self.lock().clients.keys().copied().collect();
        for id in clients {
            let mut tables = self.lock();
            let Some(client) = tables.clients.get_mut(&id) else { continue };
            client
                .open_owners
                .retain(|_, o| !o.opens.is_empty() || !std::mem::replace(&mut o.idle, true));
            client
                .lock_owners
                .retain(|_, o| !o.states.is_empty() || !std::mem::replace(&mut o.idle, true));
        }
        let tables = &mut *self.lock();
        tables.last_closed.retain(|key, (client, owner)| {
            let client = tables.clients.get(client);
            let owner = client.and_then(|client| client.open_owners.get(owner));
            owner.is_some_and(|owner| owner.last_closed == Some(*key))
        });
    }
}
