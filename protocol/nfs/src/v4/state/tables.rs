//! The records behind the one mutex, and the links between them.

use super::buried::Buried;
use super::departed::Departed;
use super::hosts::ClientHosts;
use super::ids::StateKey;
use super::index::IoCore;
use super::lease::Lease;
use super::ongoing::Awaited;
use super::owner::OwnerSeq;
use super::quota::{Charge, HostAccount, Quota};
use super::ranges::RangeTable;
use super::recall::Recall;
use super::session::Session;
use super::shares::{OpenIndex, Share};
use crate::limits::{MAX_OWNERS_PER_CLIENT, MAX_STATES_PER_CLIENT};
use crate::v4::attrs::delegated_times::TimesGiven;
use crate::v4::callback::CallbackProbe;
use crate::v4::cx::FileKey;
use crate::v4::wire::{ClientId, LockType, Status, Verifier};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use zgate_rpc::Credential;

/// An owner's name within its client.
pub type OwnerName = Arc<[u8]>;

/// A lock owner across all clients.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockOwnerId {
    /// The client; `None` for lock owners of other protocols.
    pub client: ClientId,
    /// Its name.
    pub name: OwnerName,
}

/// Everything.
#[derive(Default)]
pub struct Tables {
    /// Clients, confirmed or not.
    pub clients: HashMap<ClientId, Client>,
    /// Which records a client's own name leads to.
    pub by_name: HashMap<Vec<u8>, NameSlot>,
    /// Files with any state.
    pub files: HashMap<FileKey, FileState>,
    /// Opens.
    pub opens: HashMap<StateKey, Open>,
    /// Lock stateids.
    pub locks: HashMap<StateKey, LockState>,
    /// Delegations.
    pub delegations: HashMap<StateKey, Delegation>,
    /// Stateids that went with their minor-0 clients.
    pub buried: Buried,
    /// Clients that are gone with more state than is removed at once.
    pub departed: BTreeMap<ClientId, Departed>,
    /// Delegations being recalled.
    pub recalled: BTreeSet<StateKey>,
    /// Files with blocked locks.
    pub waited_for: HashSet<FileKey>,
    /// Files to be looked at again, by the second: they may be idle then.
    pub revisits: BTreeMap<u64, Vec<FileKey>>,
    /// Owners of minor version 0 by the open each closed last. May name owners
    /// that are gone.
    pub last_closed: HashMap<StateKey, (ClientId, OwnerName)>,
}

/// The records of one client name (RFC 8881 §18.35.4 keeps at most one
/// confirmed and one unconfirmed).
#[derive(Clone, Copy, Debug, Default)]
pub struct NameSlot {
    /// The confirmed record.
    pub confirmed: Option<ClientId>,
    /// The record waiting for confirmation.
    pub unconfirmed: Option<ClientId>,
}

/// Who may act for a client: the credential it introduced itself with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    uid: Option<u32>,
}

impl Principal {
    /// The principal of a call.
    #[must_use]
    pub fn of(credential: &Credential) -> Self {
        match credential {
            Credential::None => Self { uid: None },
            Credential::Sys(sys) => Self { uid: Some(sys.uid) },
        }
    }
}

/// A client's record.
pub struct Client {
    /// Its id.
    pub id: ClientId,
    /// co_ownerid or nfs_client_id4.id.
    pub name: Vec<u8>,
    /// Changes when the client restarts.
    pub verifier: Verifier,
    /// Who introduced it.
    pub principal: Principal,
    /// Minor version 0 (SETCLIENTID) or later (EXCHANGE_ID).
    pub minor_zero: bool,
    /// Whether it was confirmed.
    pub confirmed: bool,
    /// How often the record of its name was removed while it was there: one
    /// written before that does not count.
    pub record_removals: u32,
    /// Its record was handed to stable storage.
    pub record_begun: bool,
    /// The removal of its record, which began when its lease ran out.
    pub record_removal: Option<Awaited>,
    /// Its lease.
    pub lease: Arc<Lease>,
    /// Its sessions.
    pub sessions: Vec<Arc<Session>>,
    /// CREATE_SESSION's sequence and last answer.
    pub create_sequence: OwnerSeq,
    /// The sequence number EXCHANGE_ID announced.
    pub first_create_sequence: u32,
    /// Open owners by name.
    pub open_owners: HashMap<OwnerName, OpenOwner>,
    /// Lock owners by name.
    pub lock_owners: HashMap<OwnerName, LockOwner>,
    /// What it holds.
    pub held: HeldStates,
    /// The host it is of, and its place among that host's clients.
    pub host: Arc<HostAccount>,
    /// See [`Self::host`].
    pub place: Charge,
    /// Its delegations.
    pub delegations: HashSet<StateKey>,
    /// Stateids taken away that it has not freed yet, and why.
    pub revoked: HashMap<StateKey, Status>,
    /// RECLAIM_COMPLETE was received.
    pub reclaim_complete: bool,
    /// Whether it may reclaim: it had state when the server went down.
    pub may_reclaim: bool,
    /// Callback path of minor version 0.
    pub callback: Option<Callback40>,
    /// Whether that path is being probed.
    pub probe: Arc<CallbackProbe>,
    /// SETCLIENTID's confirm verifier.
    pub confirm_verifier: Verifier,
    /// The hosts it acts from.
    pub hosts: ClientHosts,
    /// Where it last came from, for people.
    pub address: String,
    /// Implementation name it gave, for people.
    pub implementation: String,
}

impl Client {
    /// What a client that holds too much is told: minor version 0 has a status
    /// for it, later ones have the client wait (RFC 8881 §15.1.1.3).
    pub(crate) fn too_much(&self) -> Status {
        if self.minor_zero { Status::Resource } else { Status::Delay }
    }

    /// Room for one more open, lock or delegation.
    ///
    /// # Errors
    /// The status for a client that holds too much.
    pub fn room_for_state(&self) -> Result<(), Status> {
        let room = self.held.all() + self.revoked.len() < MAX_STATES_PER_CLIENT;
        if room { Ok(()) } else { Err(self.too_much()) }
    }

    /// Takes a part of what its host may have.
    ///
    /// # Errors
    /// As [`Self::room_for_state`].
    pub fn take(&self, quota: Quota) -> Result<Charge, Status> {
        self.host.take(quota, 1).ok_or_else(|| self.too_much())
    }

    /// Room for as much more as its host may have.
    ///
    /// # Errors
    /// As [`Self::room_for_state`].
    pub fn host_has_room(&self, quota: Quota, amount: usize) -> Result<(), Status> {
        if self.host.has_room(quota, amount) { Ok(()) } else { Err(self.too_much()) }
    }

    /// Room for one more owner.
    ///
    /// # Errors
    /// As [`Self::room_for_state`].
    pub fn room_for_owner(&self) -> Result<(), Status> {
        let room = self.open_owners.len() + self.lock_owners.len() < MAX_OWNERS_PER_CLIENT;
        if room { Ok(()) } else { Err(self.too_much()) }
    }

    /// Opens, locks and delegations it holds.
    #[must_use]
    pub fn has_state(&self) -> bool {
        self.held.all() > 0
    }
}

/// How many of each a client holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldStates {
    /// Opens.
    pub opens: usize,
    /// Lock stateids.
    pub locks: usize,
    /// Delegations.
    pub delegations: usize,
}

impl HeldStates {
    /// Of all kinds.
    #[must_use]
    pub fn all(&self) -> usize {
        self.opens + self.locks + self.delegations
    }
}

/// NFSv4.0 callback path.
#[derive(Clone, Debug)]
pub struct Callback40 {
    /// Program number the client chose.
    pub program: u32,
    /// callback_ident.
    pub ident: u32,
    /// Where it listens.
    pub address: std::net::SocketAddr,
    /// What calls to it carry.
    pub credential: zgate_rpc::auth::OpaqueAuth,
    /// Whether CB_NULL was answered.
    pub up: Arc<std::sync::atomic::AtomicBool>,
}

/// An open owner.
#[derive(Default)]
pub struct OpenOwner {
    /// Order and replay (minor version 0).
    pub seq: OwnerSeq,
    /// OPEN_CONFIRM was received, or is not needed.
    pub confirmed: bool,
    /// Its opens.
    pub opens: BTreeSet<StateKey>,
    /// What of its host's quota it takes.
    pub charge: Option<Charge>,
    /// The open closed last: a replayed CLOSE still names it.
    pub last_closed: Option<StateKey>,
    /// It opened nothing since the last sweep (expiry.rs).
    pub idle: bool,
}

/// A lock owner.
#[derive(Default)]
pub struct LockOwner {
    /// Order and replay (minor version 0).
    pub seq: OwnerSeq,
    /// Its lock stateids, one per file.
    pub states: BTreeSet<StateKey>,
    /// What of its host's quota it takes.
    pub charge: Option<Charge>,
    /// It locked nothing since the last sweep (expiry.rs).
    pub idle: bool,
}

/// One owner's open of one file.
pub struct Open {
    /// Its stateid.
    pub key: StateKey,
    /// Version.
    pub seqid: u32,
    /// Whose.
    pub client: ClientId,
    /// Which owner.
    pub owner: OwnerName,
    /// Which file.
    pub file: FileKey,
    /// OPEN4_SHARE_ACCESS bits.
    pub access: u32,
    /// OPEN4_SHARE_DENY bits.
    pub deny: u32,
    /// Each (access, deny) opened so far, for OPEN_DOWNGRADE: bit `a*4+d`.
    pub history: u16,
    /// The open files.
    pub core: Arc<IoCore>,
    /// Lock stateids made from it.
    pub locks: BTreeSet<StateKey>,
    /// What of its host's quota it takes.
    pub charge: Charge,
}

impl Open {
    /// What it shares and denies.
    #[must_use]
    pub fn share(&self) -> Share {
        Share::new(self.access, self.deny)
    }
}

/// One lock owner's stateid for one file.
pub struct LockState {
    /// Its stateid.
    pub key: StateKey,
    /// Version.
    pub seqid: u32,
    /// Whose.
    pub owner: LockOwnerId,
    /// The open it came from.
    pub open: StateKey,
    /// Which file.
    pub file: FileKey,
    /// What of its host's quota it takes.
    pub charge: Charge,
    /// The same for the ranges its owner has locked in the file.
    pub ranges: Charge,
}

/// A delegation.
pub struct Delegation {
    /// Its stateid.
    pub key: StateKey,
    /// Version.
    pub seqid: u32,
    /// Whose.
    pub client: ClientId,
    /// Which file.
    pub file: FileKey,
    /// Write (else read).
    pub write: bool,
    /// With delegated time stamps (RFC 9754).
    pub attrs: bool,
    /// Where times stood then.
    pub times: TimesGiven,
    /// The change number when it was given, for CB_GETATTR.
    pub change: u64,
    /// Size when it was given.
    pub size: u64,
    /// When its recall began, in seconds.
    pub recalled_seconds: Option<u64>,
    /// What became of asking for it.
    pub recall: Arc<Recall>,
    /// The session it was given on.
    pub core: Arc<IoCore>,
    /// The file handle, for callbacks.
    pub fh: crate::namespace::Fh,
    /// What of its host's quota it takes.
    pub charge: Charge,
}

/// A blocked lock whose client wants to hear when it may try again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Who waits.
    pub owner: LockOwnerId,
    /// For what.
    pub range: super::ranges::Range,
    /// How.
    pub kind: LockType,
    /// The file handle, for the callback.
    pub fh: crate::namespace::Fh,
    /// Since when, in seconds.
    pub since_seconds: u64,
}

/// A file with state.
#[derive(Default)]
pub struct FileState {
    /// Opens of it.
    pub opens: OpenIndex,
    /// Delegations of it; a client has one at most.
    pub delegations: BTreeMap<ClientId, StateKey>,
    /// Clients that have it open or delegated, each with its part of its host's
    /// quota of files.
    pub holders: BTreeMap<ClientId, Charge>,
    /// Its part of all files that are held, whoever holds it.
    pub held: Option<Charge>,
    /// Byte-range locks.
    pub ranges: RangeTable<LockOwnerId>,
    /// Lock stateids of it.
    pub lock_states: BTreeMap<LockOwnerId, StateKey>,
    /// Blocked locks, first come first.
    pub waiters: Vec<Waiter>,
    /// No delegations before this second: one was recalled lately.
    pub no_delegation_before: u64,
    /// What must have ended before anything of the file is given to somebody:
    /// see `ongoing.rs`.
    pub unfinished: Vec<Awaited>,
}

impl FileState {
    /// Gives back a client's part of the quota of files, unless it still holds
    /// this one.
    pub fn let_go(&mut self, client: ClientId) {
        if !self.opens.has(client) && !self.delegations.contains_key(&client) {
            self.holders.remove(&client);
        }
        if self.holders.is_empty() {
            self.held = None;
        }
    }

    /// Whether nothing is left to remember.
    #[must_use]
    pub fn is_idle(&self, now_seconds: u64) -> bool {
        self.is_held_by_nobody()
            && self.no_delegation_before <= now_seconds
            && self.unfinished.iter().all(Awaited::is_over)
    }

    /// Whether nobody holds anything of it, and work of those who did goes on.
    fn is_unfinished(&self) -> bool {
        self.is_held_by_nobody() && !self.unfinished.iter().all(Awaited::is_over)
    }

    fn is_held_by_nobody(&self) -> bool {
        self.opens.is_empty()
            && self.delegations.is_empty()
            && self.ranges.is_empty()
            && self.waiters.is_empty()
    }
}

/// What a stateid names.
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
    /// What the stateid names, whose it is and its version.
    #[must_use]
    pub fn find(&self, key: StateKey) -> Option<(StateKind, ClientId, u32)> {
        self.find_any(key).filter(|(_, client, _)| !self.departed.contains_key(client))
    }

    /// The same, also of a client that is gone but for its state.
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

    /// Charges the client's host for a file that the client is about to open or
    /// to be given a delegation of. A file that others hold needs no descriptors
    /// of its own: it may always be opened.
    ///
    /// # Errors
    /// As [`Client::room_for_state`].
    pub fn hold_file(&mut self, id: ClientId, file: &FileKey) -> Result<(), Status> {
        let client = self.clients.get(&id).ok_or(Status::StaleClientid)?;
        match self.files.get(file) {
            Some(state) if state.holders.contains_key(&id) => return Ok(()),
            Some(state) if state.held.is_some() => {}
            _ => client.host_has_room(Quota::Files, 1)?,
        }
        let own = client.host.charge_own(Quota::Files, 1);
        let total = || client.host.charge_total(Quota::Files, 1);
        let state = self.files.entry(*file).or_default();
        state.held.get_or_insert_with(total);
        state.holders.insert(id, own);
        Ok(())
    }

    /// Drops a file's record when nothing hangs on it any more.
    pub fn tidy_file(&mut self, file: &FileKey, now_seconds: u64) {
        let Some(state) = self.files.get(file) else { return };
        if state.is_idle(now_seconds) {
            self.files.remove(file);
        } else if state.is_unfinished() {
            // Nobody tells when storage is done: looked at again a second later.
            self.revisits.entry(now_seconds + 1).or_default().push(*file);
        }
    }
}
