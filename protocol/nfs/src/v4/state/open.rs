//! Opens: adding, upgrading, downgrading and removing them.

use super::State;
use crate::namespace::{FileKey, Object};
use crate::v4::tables::Tables;
use crate::v4::tables::ids::StateKey;
use crate::v4::tables::index::{Granted, IoCore};
use crate::v4::tables::open::Open;
use crate::v4::tables::owner::{FileClient, OpenOwner, OwnerName};
use crate::v4::tables::quota::Quota;
use crate::v4::tables::shares::Share;
use std::collections::BTreeSet;
use std::sync::Arc;
use zgate_nfs_wire::v4::{ClientId, Stateid, Status};
use zgate_store::file_store::OpenFile;

/// An OPEN that passed all checks.
pub(crate) struct NewOpen<'a> {
    pub client: ClientId,
    pub owner: &'a OwnerName,
    pub object: &'a Object,
    pub file: FileKey,
    pub access: u32,
    pub deny: u32,
    pub opened: &'a OpenFile,
}

/// Changes that an OPEN has made to the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entered {
    /// The stateid of its answer.
    pub stateid: Stateid,
    /// The owner's open of the file until then, which it upgraded.
    upgraded: Option<Rights>,
}

/// Rights of an open, with the seqid of its stateid.
#[derive(Clone, Copy, Debug)]
struct Rights {
    seqid: u32,
    access: u32,
    deny: u32,
    history: u16,
}

impl Rights {
    fn of(open: &Open) -> Self {
        let Open { seqid, access, deny, history, .. } = *open;
        Self { seqid, access, deny, history }
    }
}

/// The bit of (access, deny) in an open's history.
fn history_bit(access: u32, deny: u32) -> u16 {
    1 << ((access & 3) * 4 + (deny & 3))
}

impl State {
    /// The owner's open of a file, if any.
    pub(crate) fn open_of(
        tables: &Tables,
        client: ClientId,
        owner: &OwnerName,
        file: &FileKey,
    ) -> Option<StateKey> {
        tables.files.get(&file.id)?.opens.of_owner(FileClient::of(client, file), owner)
    }

    /// Adds an open: upgrades the owner's open of the file, or creates one. The
    /// caller has checked the shares, and the owner exists.
    ///
    /// # Errors
    /// [`Status::Resource`] or [`Status::Delay`] if the client holds too much,
    /// [`Status::StaleClientid`] if it was removed, [`Status::Expired`] if it lost
    /// its state.
    pub(crate) fn enter_open(
        &self,
        tables: &mut Tables,
        new: &NewOpen<'_>,
    ) -> Result<Entered, Status> {
        let (read, write) = (new.access & 1 != 0, new.access & 2 != 0);
        // An upgrade by another user grants it what it asks for, and the first user
        // nothing.
        let granted = Granted { file: Arc::clone(new.opened), uid: new.object.who().uid };
        let holder = FileClient::of(new.client, &new.file);
        tables.clients.get(&new.client).ok_or(Status::StaleClientid)?.may_hold_state()?;
        if let Some(key) = Self::open_of(tables, new.client, new.owner, &new.file)
            && let Some(open) = tables.opens.get_mut(&key)
        {
            let (before, upgraded) = (open.share(), Some(Rights::of(open)));
            open.access |= new.access;
            open.deny |= new.deny;
            if let Some(file) = tables.files.get_mut(&new.file.id) {
                file.opens.reshare(holder, key, before, open.share());
            }
            open.history |= history_bit(new.access, new.deny);
            open.seqid = next_seqid(open.seqid);
            open.core.grant(read, write, &granted, &mut tables.released);
            self.index.publish(key, open.seqid, &open.core);
            return Ok(Entered { stateid: key.stateid(open.seqid), upgraded });
        }
        let key = self.ids.state();
        let client = tables.clients.get(&new.client).ok_or(Status::StaleClientid)?;
        client.room_for_state()?;
        let bound = self.bound(client);
        let charge = client.take(bound, Quota::Opens)?;
        tables.hold_file(new.client, &new.file, bound)?;
        let client = tables.clients.get_mut(&new.client).ok_or(Status::StaleClientid)?;
        // With sessions an owner is removed with its last open, which may be
        // closed while this OPEN waits for the backend.
        let confirmed = !client.minor_zero;
        let owner = client
            .open_owners
            .entry(Arc::clone(new.owner))
            .or_insert_with(|| OpenOwner { confirmed, ..OpenOwner::default() });
        owner.opens.insert(key);
        client.held.opens += 1;
        let place = (new.object.export.id, new.object.node);
        let core = Arc::new(IoCore::new(new.client, Arc::clone(&client.lease), place));
        core.grant(read, write, &granted, &mut tables.released);
        self.index.publish(key, 1, &core);
        let share = Share::new(new.access, new.deny);
        let file = tables.files.entry(new.file.id).or_default();
        file.opens.insert(holder, new.owner, key, share);
        let open = Open {
            key,
            seqid: 1,
            client: new.client,
            owner: Arc::clone(new.owner),
            file: new.file,
            access: new.access,
            deny: new.deny,
            history: history_bit(new.access, new.deny),
            core,
            locks: BTreeSet::new(),
            charge,
        };
        tables.opens.insert(key, open);
        Ok(Entered { stateid: key.stateid(1), upgraded: None })
    }

    /// Takes back what an OPEN has entered that failed after that: an open that it
    /// made is removed, one that it upgraded is as before, with its locks. If
    /// another OPEN of the owner has changed the open since, it stays.
    pub(crate) fn undo_open(&self, tables: &mut Tables, entered: &Entered, now_seconds: u64) {
        let key = StateKey::from(entered.stateid);
        if tables.opens.get(&key).is_none_or(|open| open.seqid != entered.stateid.seqid) {
            return;
        }
        match entered.upgraded {
            None => self.remove_open(tables, key, now_seconds),
            Some(rights) => self.restore_open(tables, key, rights),
        }
    }

    /// Gives an open the rights that it had before an upgrade. Nobody knows the
    /// later seqid.
    fn restore_open(&self, tables: &mut Tables, key: StateKey, rights: Rights) {
        let Some(open) = tables.opens.get_mut(&key) else { return };
        let before = open.share();
        (open.seqid, open.history) = (rights.seqid, rights.history);
        (open.access, open.deny) = (rights.access, rights.deny);
        let (read, write) = (open.access & 1 != 0, open.access & 2 != 0);
        let running = open.core.restrict(read, write, &mut tables.released);
        self.index.publish(key, open.seqid, &open.core);
        let (file, holder, share) = (open.file, open.holder(), open.share());
        if let Some(state) = tables.files.get_mut(&file.id) {
            state.opens.reshare(holder, key, before, share);
        }
        if let Some(running) = running {
            Self::await_before_giving(tables, file, running);
        }
    }

    /// Downgrades an open to rights of earlier OPENs (RFC 8881 §18.18.3).
    ///
    /// # Errors
    /// [`Status::Inval`] for rights that no OPENs together requested: access and denial come from
    /// the same ones.
    pub(crate) fn downgrade_open(
        &self,
        tables: &mut Tables,
        key: StateKey,
        access: u32,
        deny: u32,
    ) -> Result<Stateid, Status> {
        let open = tables.opens.get_mut(&key).ok_or(Status::BadStateid)?;
        // The union of some of the earlier OPENs is that of all which asked for nothing else.
        let within = open.history & allowed_history(access, deny);
        let places = (0..16u32).filter(|place| within >> place & 1 == 1);
        let union = places.fold(0, |union, place| union | place);
        if access == 0 || union != (access << 2 | deny) {
            return Err(Status::Inval);
        }
        let before = open.share();
        open.access = access;
        open.deny = deny;
        if let Some(file) = tables.files.get_mut(&open.file.id) {
            file.opens.reshare(open.holder(), key, before, open.share());
        }
        open.history &= allowed_history(access, deny);
        open.history |= history_bit(access, deny);
        let (read, write) = (access & 1 != 0, access & 2 != 0);
        let running = open.core.restrict(read, write, &mut tables.released);
        open.seqid = next_seqid(open.seqid);
        self.index.publish(key, open.seqid, &open.core);
        let (stateid, file) = (key.stateid(open.seqid), open.file);
        if let Some(running) = running {
            Self::await_before_giving(tables, file, running);
        }
        Ok(stateid)
    }

    /// Removes an open with its lock stateids and their locks. Changes under it
    /// that the backend has not completed must end before the file is granted
    /// to others.
    pub(crate) fn remove_open(&self, tables: &mut Tables, key: StateKey, now_seconds: u64) {
        let Some(open) = tables.opens.remove(&key) else { return };
        self.index.remove(key);
        if let Some(running) = open.core.end() {
            Self::await_before_giving(tables, open.file, running);
        }
        for lock in &open.locks {
            self.remove_lock_state(tables, *lock);
        }
        if let Some(client) = tables.clients.get_mut(&open.client) {
            client.held.opens -= 1;
            if let Some(owner) = client.open_owners.get_mut(&open.owner) {
                owner.opens.remove(&key);
            }
        }
        let holder = open.holder();
        if let Some(file) = tables.files.get_mut(&open.file.id) {
            file.opens.remove(holder, &open.owner, key, open.share());
            file.let_go(holder);
        }
        tables.tidy_file(&open.file.id, now_seconds);
        tables.released.add(open.core);
    }

    /// Removes a lock stateid. With the last one of its owner in the file it releases the
    /// owner's locks: under which open of several each was taken is not known, and one that the
    /// client still relies on must not be lost.
    pub(crate) fn remove_lock_state(&self, tables: &mut Tables, key: StateKey) {
        let Some(lock) = tables.locks.remove(&key) else { return };
        self.index.remove(key);
        if let Some(file) = tables.files.get_mut(&lock.file.id) {
            file.lock_states.remove(&(lock.owner.clone(), lock.open));
            let other = file.lock_states_of(&lock.owner).next();
            match other {
                Some(other) => tables.count_ranges(other),
                None => file.ranges.clear_owner(&lock.owner),
            }
        }
        if let Some(open) = tables.opens.get_mut(&lock.open) {
            open.locks.remove(&key);
        }
        if let Some(client) = tables.clients.get_mut(&lock.owner.client) {
            client.held.locks -= 1;
            if let Some(owner) = client.lock_owners.get_mut(&lock.owner.name) {
                owner.states.remove(&key);
                // With sessions no reply needs to be kept for it.
                if owner.states.is_empty() && !client.minor_zero {
                    client.lock_owners.remove(&lock.owner.name);
                }
            }
        }
    }
}

/// The next seqid of a stateid; 0 is skipped (RFC 8881 §8.2.2).
#[must_use]
pub(crate) fn next_seqid(seqid: u32) -> u32 {
    seqid.checked_add(1).unwrap_or(1)
}

fn allowed_history(access: u32, deny: u32) -> u16 {
    let mut mask = 0;
    for place in 0..16u32 {
        if (place >> 2) & !access == 0 && (place & 3) & !deny == 0 {
            mask |= 1 << place;
        }
    }
    mask
}
