//! The records behind the mutex, and the links between them.

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
use ahash::{HashMap, HashSet};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use zgate_nfs_wire::v4::{ClientId, LockType, Status, Verifier};
use zgate_rpc::Credential;

/// An owner's name within its client.
pub type OwnerName = Arc<[u8]>;

/// A lock owner, unique across all clients.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockOwnerId {
    /// The client; `None` for lock owners of other protocols.
    pub client: ClientId,
    /// The owner's name.
    pub name: OwnerName,
}

/// All tables.
#[derive(Default)]
pub struct Tables {
    /// Clients, confirmed or not.
    pub clients: HashMap<ClientId, Client>,
    /// Records by the client's own name.
    pub by_name: HashMap<Vec<u8>, NameSlot>,
    /// Files with any state.
    pub files: HashMap<FileKey, FileState>,
    /// Opens.
    pub opens: HashMap<StateKey, Open>,
    /// Lock stateids.
    pub locks: HashMap<StateKey, LockState>,
    /// Delegations.
    pub delegations: HashMap<StateKey, Delegation>,
    /// Stateids that were removed with their minor-0 clients.
    pub buried: Buried,
    /// Removed clients with more state than is removed at once.
    pub departed: BTreeMap<ClientId, Departed>,
    /// Delegations being recalled.
    pub recalled: BTreeSet<StateKey>,
    /// Files with blocked locks.
    pub waited_for: HashSet<FileKey>,
    /// Files to be checked for being idle, by second.
    pub revisits: BTreeMap<u64, Vec<FileKey>>,
    /// Owners of minor version 0 by the open each closed last. May name removed
    /// owners.
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

/// The identity that may act for a client: the credential of its registration.
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
    /// The principal that registered it.
    pub principal: Principal,
    /// Minor version 0 (SETCLIENTID) or later (EXCHANGE_ID).
    pub minor_zero: bool,
    /// True if it was confirmed.
    pub confirmed: bool,
    /// Number of removals of the record of its name while this record existed:
    /// a record written before the last one is invalid.
    pub record_removals: u32,
    /// The write of its record was started.
    pub record_begun: bool,
    /// The removal of its record, started when its lease expired.
    pub record_removal: Option<Awaited>,
    /// Its lease.
    pub lease: Arc<Lease>,
    /// Its sessions.
    pub sessions: Vec<Arc<Session>>,
    /// CREATE_SESSION's sequence number and last reply.
    pub create_sequence: OwnerSeq,
    /// The sequence number returned by EXCHANGE_ID.
    pub first_create_sequence: u32,
    /// Open owners by name.
    pub open_owners: HashMap<OwnerName, OpenOwner>,
    /// Lock owners by name.
    pub lock_owners: HashMap<OwnerName, LockOwner>,
    /// Number of its states.
    pub held: HeldStates,
    /// Its host, and its part of that host's quota of clients.
    pub host: Arc<HostAccount>,
    /// See [`Self::host`].
    pub place: Charge,
    /// Its delegations.
    pub delegations: HashSet<StateKey>,
    /// Revoked stateids that it has not freed yet, with the status.
    pub revoked: HashMap<StateKey, Status>,
    /// RECLAIM_COMPLETE was received.
    pub reclaim_complete: bool,
    /// True if it may reclaim: it had state before the restart.
    pub may_reclaim: bool,
    /// Callback path of minor version 0.
    pub callback: Option<Callback40>,
    /// Probe of that path.
    pub probe: Arc<CallbackProbe>,
    /// SETCLIENTID's confirm verifier.
    pub confirm_verifier: Verifier,
    /// The hosts of the client.
    pub hosts: ClientHosts,
    /// Address of its latest call, for display.
    pub address: String,
    /// Implementation name it sent, for display.
    pub implementation: String,
}

impl Client {
    /// Status for a client that holds too much: minor version 0 has one, in
    /// later ones the client must wait (RFC 8881 §15.1.1.3).
    pub(crate) fn too_much(&self) -> Status {
        if self.minor_zero { Status::Resource } else { Status::Delay }
    }

    /// Checks for room for one more open, lock or delegation.
    ///
    /// # Errors
    /// The status for a client that holds too much.
    pub fn room_for_state(&self) -> Result<(), Status> {
        let room = self.held.all() + self.revoked.len() < MAX_STATES_PER_CLIENT;
        if room { Ok(()) } else { Err(self.too_much()) }
    }

    /// Takes a part of its host's quota.
    ///
    /// # Errors
    /// As [`Self::room_for_state`].
    pub fn take(&self, quota: Quota) -> Result<Charge, Status> {
        self.host.take(quota, 1).ok_or_else(|| self.too_much())
    }

    /// Checks that its host's quota has room for `amount` more.
    ///
    /// # Errors
    /// As [`Self::room_for_state`].
    pub fn host_has_room(&self, quota: Quota, amount: usize) -> Result<(), Status> {
        if self.host.has_room(quota, amount) { Ok(()) } else { Err(self.too_much()) }
    }

    /// Checks for room for one more owner.
    ///
    /// # Errors
    /// As [`Self::room_for_state`].
    pub fn room_for_owner(&self) -> Result<(), Status> {
        let room = self.open_owners.len() + self.lock_owners.len() < MAX_OWNERS_PER_CLIENT;
        if room { Ok(()) } else { Err(self.too_much()) }
    }

    /// True if it holds opens, locks or delegations.
    #[must_use]
    pub fn has_state(&self) -> bool {
        self.held.all() > 0
    }
}

/// Numbers of a client's states.
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
    /// Sum of all kinds.
    #[must_use]
    pub fn all(&self) -> usize {
        self.opens + self.locks + self.delegations
    }
}

/// NFSv4.0 callback path.
#[derive(Clone, Debug)]
pub struct Callback40 {
    /// Program number chosen by the client.
    pub program: u32,
    /// callback_ident.
    pub ident: u32,
    /// Address of the client's callback service.
    pub address: std::net::SocketAddr,
    /// Credential of callbacks.
    pub credential: zgate_rpc::auth::OpaqueAuth,
    /// True if CB_NULL was answered.
    pub up: Arc<std::sync::atomic::AtomicBool>,
}

/// An open owner.
#[derive(Default)]
pub struct OpenOwner {
    /// Sequence number and replay (minor version 0).
    pub seq: OwnerSeq,
    /// OPEN_CONFIRM was received, or is not needed.
    pub confirmed: bool,
    /// Its opens.
    pub opens: BTreeSet<StateKey>,
    /// Its part of its host's quota.
    pub charge: Option<Charge>,
    /// The open closed last: a replayed CLOSE still names it.
    pub last_closed: Option<StateKey>,
    /// It has opened nothing since the last sweep (expiry.rs).
    pub idle: bool,
}

/// A lock owner.
#[derive(Default)]
pub struct LockOwner {
    /// Sequence number and replay (minor version 0).
    pub seq: OwnerSeq,
    /// Its lock stateids, one per file.
    pub states: BTreeSet<StateKey>,
    /// Its part of its host's quota.
    pub charge: Option<Charge>,
    /// It has locked nothing since the last sweep (expiry.rs).
    pub idle: bool,
}

/// One owner's open of one file.
pub struct Open {
    /// Its stateid.
    pub key: StateKey,
    /// The seqid of the stateid.
    pub seqid: u32,
    /// The client.
    pub client: ClientId,
    /// The owner.
    pub owner: OwnerName,
    /// The file.
    pub file: FileKey,
    /// OPEN4_SHARE_ACCESS bits.
    pub access: u32,
    /// OPEN4_SHARE_DENY bits.
    pub deny: u32,
    /// Each (access, deny) of an OPEN so far, for OPEN_DOWNGRADE: bit `a*4+d`.
    pub history: u16,
    /// The open files.
    pub core: Arc<IoCore>,
    /// Lock stateids created from it.
    pub locks: BTreeSet<StateKey>,
    /// Its part of its host's quota.
    pub charge: Charge,
}

impl Open {
    /// Its share bits.
    #[must_use]
    pub fn share(&self) -> Share {
        Share::new(self.access, self.deny)
    }
}

/// One lock owner's stateid for one file.
pub struct LockState {
    /// Its stateid.
    pub key: StateKey,
    /// The seqid of the stateid.
    pub seqid: u32,
    /// The owner.
    pub owner: LockOwnerId,
    /// The open from which it was created.
    pub open: StateKey,
    /// The file.
    pub file: FileKey,
    /// Its part of its host's quota.
    pub charge: Charge,
    /// The part for the ranges that its owner has locked in the file.
    pub ranges: Charge,
}

/// A delegation.
pub struct Delegation {
    /// Its stateid.
    pub key: StateKey,
    /// The seqid of the stateid.
    pub seqid: u32,
    /// The client.
    pub client: ClientId,
    /// The file.
    pub file: FileKey,
    /// Write delegation (otherwise read).
    pub write: bool,
    /// With delegated time stamps (RFC 9754).
    pub attrs: bool,
    /// Times at which it was granted.
    pub times: TimesGiven,
    /// The change attribute at which it was granted, for CB_GETATTR.
    pub change: u64,
    /// Size at which it was granted.
    pub size: u64,
    /// Start of its recall, in seconds.
    pub recalled_seconds: Option<u64>,
    /// State of its recall.
    pub recall: Arc<Recall>,
    /// Its open files.
    pub core: Arc<IoCore>,
    /// The file handle, for callbacks.
    pub fh: zgate_nfs_wire::v4::Fh,
    /// Its part of its host's quota.
    pub charge: Charge,
}

/// A blocked lock whose client requested a notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// The lock owner.
    pub owner: LockOwnerId,
    /// The range.
    pub range: super::ranges::Range,
    /// The lock type.
    pub kind: LockType,
    /// The file handle, for the callback.
    pub fh: zgate_nfs_wire::v4::Fh,
    /// Start of the wait, in seconds.
    pub since_seconds: u64,
}

/// A file with state.
#[derive(Default)]
pub struct FileState {
    /// Its opens.
    pub opens: OpenIndex,
    /// Its delegations; a client has at most one.
    pub delegations: BTreeMap<ClientId, StateKey>,
    /// Clients that have it open or delegated, each with its part of its host's
    /// quota of files.
    pub holders: BTreeMap<ClientId, Charge>,
    /// Its part of the total number of files.
    pub held: Option<Charge>,
    /// Byte-range locks.
    pub ranges: RangeTable<LockOwnerId>,
    /// Its lock stateids.
    pub lock_states: BTreeMap<LockOwnerId, StateKey>,
    /// Blocked locks, in order of arrival.
    pub waiters: Vec<Waiter>,
    /// No delegations before this second: one was recalled recently.
    pub no_delegation_before: u64,
    /// Work that must end before any state of the file is granted: see
    /// `ongoing.rs`.
    pub unfinished: Vec<Awaited>,
}

impl FileState {
    /// Releases a client's part of the quota of files, unless it still holds
    /// this one.
    pub fn let_go(&mut self, client: ClientId) {
        if !self.opens.has(client) && !self.delegations.contains_key(&client) {
            self.holders.remove(&client);
        }
        if self.holders.is_empty() {
            self.held = None;
        }
    }

    /// True if the record can be dropped.
    #[must_use]
    pub fn is_idle(&self, now_seconds: u64) -> bool {
        self.is_held_by_nobody()
            && self.no_delegation_before <= now_seconds
            && self.unfinished.iter().all(Awaited::is_over)
    }

    /// True if no client holds state of it, and work of former holders is still
    /// running.
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
        self.find_any(key).filter(|(_, client, _)| !self.departed.contains_key(client))
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

    /// Charges the client's host for a file that the client is about to open or
    /// to get a delegation for. A file held by other clients needs no
    /// additional descriptors: it may always be opened.
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

    /// Drops a file's record when it has no state any more.
    pub fn tidy_file(&mut self, file: &FileKey, now_seconds: u64) {
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
