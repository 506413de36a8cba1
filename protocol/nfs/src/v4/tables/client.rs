//! Records of clients.

use super::callback_path::{Callback40, CallbackProbe, CallbackUpdate};
use super::client_hosts::ClientHosts;
use super::ids::StateKey;
use super::lease::Lease;
use super::losses::Losses;
use super::owner::{LockOwner, OpenOwner, OwnerName};
use super::owner_seq::OwnerSeq;
use super::pending_work::PendingWork;
use super::quota::{Bound, Charge, HostAccount, Quota};
use super::session::Session;
use crate::assurance::Assurance;
use crate::limits::{MAX_OWNERS_PER_CLIENT, MAX_STATES_PER_CLIENT};
use crate::runtime::Call;
use ahash::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use zgate_nfs_wire::v4::{ClientId, Status, Verifier};
use zgate_rpc::Credential;
use zgate_rpc::gss::Service;

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
pub enum Principal {
    /// AUTH_NONE.
    Anonymous,
    /// AUTH_SYS: the user that the host states.
    User(u32),
    /// Kerberos: the principal, whatever the service.
    Named(Arc<str>),
}

impl Principal {
    /// The principal of a call.
    #[must_use]
    pub fn of(credential: &Credential) -> Self {
        match credential {
            Credential::None => Self::Anonymous,
            Credential::Sys(sys) => Self::User(sys.uid),
            Credential::Gss(caller) => Self::Named(Arc::clone(&caller.identity.principal)),
        }
    }

    /// Its name, if Kerberos has proven it. Anybody can state the others.
    #[must_use]
    pub fn proven(&self) -> Option<&str> {
        match self {
            Self::Named(name) => Some(name),
            Self::Anonymous | Self::User(_) => None,
        }
    }
}

/// Returns whether the arguments of a call are signed or encrypted.
pub(crate) fn is_signed(credential: &Credential) -> bool {
    matches!(credential, Credential::Gss(caller) if caller.service != Service::None)
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
    /// The assurance of the connection over which it did.
    pub assurance: Assurance,
    /// Only that principal, with signed calls, may change its sessions
    /// (SP4_MACH_CRED, RFC 8881 §2.10.8.3).
    pub machine_credential: bool,
    /// Minor version 0 (SETCLIENTID) or later (EXCHANGE_ID).
    pub minor_zero: bool,
    /// When the host first registered with this verifier since its last confirmation,
    /// in seconds: EXCHANGE_ID that is repeated makes a new record.
    pub registered_seconds: u64,
    /// True if it was confirmed.
    pub confirmed: bool,
    /// Number of removals of the record of its name while this record existed, marks
    /// among them: a record written before the last one is invalid.
    pub record_removals: u32,
    /// The write of its record was started.
    pub record_begun: bool,
    /// The removal of its record, started when its lease expired.
    pub record_removal: Option<PendingWork>,
    /// It has no record: it holds nothing yet, or the record was removed at the end of
    /// grace, because it had not reclaimed everything, or, in minor version 0,
    /// anything. The record is written with RECLAIM_COMPLETE, or, in minor version 0,
    /// with the first OPEN. Or it has one under which it may reclaim nothing, because a
    /// delegation was revoked: that is replaced when it knows
    /// ([`Self::is_record_due`]).
    pub unrecorded: bool,
    /// It knows what it holds besides what it has lost: it had a record when it lost the first,
    /// or has opened a file, or sent RECLAIM_COMPLETE, since it has none. Counts only while it
    /// is [`Self::unrecorded`].
    pub knows_the_rest: bool,
    /// The write of its record in place of the mark that no request waits for: storage refused
    /// it when the client acknowledged its losses, or the client did not do that.
    pub restoration: Option<PendingWork>,
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
    pub charge: Charge,
    /// Its delegations.
    pub delegations: HashSet<StateKey>,
    /// The last search for delegations that it does not use.
    pub sought_room: SoughtRoom,
    /// State that it has lost, and whose loss it has not acknowledged yet.
    pub losses: Losses,
    /// RECLAIM_COMPLETE was received.
    pub reclaim_complete: bool,
    /// True if it may reclaim: it had state before the restart.
    pub may_reclaim: bool,
    /// Callback path of minor version 0.
    pub callback: Option<Callback40>,
    /// The one that takes its place when it is confirmed.
    pub callback_update: Option<CallbackUpdate>,
    /// Probe of that path.
    pub probe: Arc<CallbackProbe>,
    /// Until then it is not asked for attributes of its files, in seconds: it did not
    /// answer.
    pub silent_until_seconds: AtomicU64,
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
    /// Returns whether a call may act for the client: it comes from one of the
    /// client's hosts, or it presents the credential of the client's
    /// registration. In the second case its host is added to the client's
    /// hosts.
    pub(crate) fn admits(&mut self, call: &Call) -> bool {
        let own = self.hosts.contains(call.peer.address);
        if !own && self.principal == Principal::of(&call.credential) {
            self.hosts.add(call.peer.address);
            return true;
        }
        own
    }

    /// Checks that a call may send what the client has reserved for its machine.
    ///
    /// # Errors
    /// [`Status::WrongCred`].
    pub(crate) fn check_machine(&self, call: &Call) -> Result<(), Status> {
        let is_machine =
            || self.principal == Principal::of(&call.credential) && is_signed(&call.credential);
        if !self.machine_credential || is_machine() { Ok(()) } else { Err(Status::WrongCred) }
    }

    /// Status for a client that holds too much: minor version 0 has one, in
    /// later ones the client must wait (RFC 8881 §15.1.1.3).
    pub(crate) fn too_much(&self) -> Status {
        if self.minor_zero { Status::Resource } else { Status::Delay }
    }

    /// Checks that the client may hold state: a request that waits for storage may
    /// outlive the lease of its client, and what it would add to the bare record
    /// of a client of minor version 0 nobody would remove.
    ///
    /// # Errors
    /// [`Status::Expired`].
    pub fn may_hold_state(&self) -> Result<(), Status> {
        if self.lease.revoked() { Err(Status::Expired) } else { Ok(()) }
    }

    /// Checks for room for one more open, lock or delegation.
    ///
    /// # Errors
    /// The status for a client that holds too much; that of
    /// [`Self::may_hold_state`].
    pub fn room_for_state(&self) -> Result<(), Status> {
        self.may_hold_state()?;
        let room = self.held.all() + self.losses.revoked() < MAX_STATES_PER_CLIENT;
        if room { Ok(()) } else { Err(self.too_much()) }
    }

    /// Takes one of a quota for its host, within this bound.
    ///
    /// # Errors
    /// As [`Self::room_for_state`].
    pub fn take(&self, bound: Bound, quota: Quota) -> Result<Charge, Status> {
        self.host_has_room(bound, quota, 1)?;
        Ok(self.host.charge(quota, 1))
    }

    /// Checks that its host's quota has room for `amount` more, within this bound.
    ///
    /// # Errors
    /// As [`Self::room_for_state`].
    pub fn host_has_room(&self, bound: Bound, quota: Quota, amount: usize) -> Result<(), Status> {
        let has_room = self.host.has_room_within(bound, quota, amount);
        if has_room { Ok(()) } else { Err(self.too_much()) }
    }

    /// Checks for room for one more owner.
    ///
    /// # Errors
    /// As [`Self::room_for_state`].
    pub fn room_for_owner(&self) -> Result<(), Status> {
        let room = self.open_owners.len() + self.lock_owners.len() < MAX_OWNERS_PER_CLIENT;
        if room { Ok(()) } else { Err(self.too_much()) }
    }

    /// Returns whether SETCLIENTID_CONFIRM may name this verifier: that of the client, or of
    /// the callback path that it has asked for since.
    pub(crate) fn is_confirmed_by(&self, confirm: Verifier) -> bool {
        let is_update = |update: &CallbackUpdate| update.confirm == confirm;
        self.confirm_verifier == confirm || self.callback_update.as_ref().is_some_and(is_update)
    }

    /// Takes the callback path that this verifier confirms, if it is a new one.
    pub(crate) fn confirm_callback(&mut self, confirm: Verifier) {
        if let Some(update) = self.callback_update.take_if(|update| update.confirm == confirm) {
            (self.confirm_verifier, self.callback) = (update.confirm, update.callback);
        }
    }

    /// Returns whether a call that registers its name with this verifier is of somebody
    /// else, as [`Self::is_another_than`].
    pub(crate) fn is_another_caller(&self, call: &Call, verifier: Verifier) -> bool {
        let assurance = Assurance::of(&call.peer);
        self.differs_from(&Principal::of(&call.credential), verifier, &assurance)
    }

    /// Returns whether a client of the same name is somebody else: another principal,
    /// or one who neither shows as much as this one has shown nor knows its verifier.
    /// Without a certificate anybody can state a name and a user; the verifier is known
    /// to the host whose mounts are protected in different ways.
    pub(crate) fn is_another_than(&self, other: &Self) -> bool {
        self.differs_from(&other.principal, other.verifier, &other.assurance)
    }

    fn differs_from(
        &self,
        principal: &Principal,
        verifier: Verifier,
        assurance: &Assurance,
    ) -> bool {
        let is_unproven = self.verifier != verifier && assurance.falls_short_of(&self.assurance);
        is_unproven || self.principal != *principal
    }

    /// Returns whether a call shows as much as this client has shown over TLS.
    pub(crate) fn is_proven_by(&self, call: &Call) -> bool {
        !Assurance::of(&call.peer).falls_short_of(&self.assurance)
    }

    /// Returns whether another client may not take its name by this call: its lease
    /// has not expired, and it holds state, or has reserved the end of its sessions
    /// for its machine.
    pub(crate) fn keeps_name(&self, call: &Call, now_seconds: u64, lease_seconds: u32) -> bool {
        let holds = self.has_state() || self.check_machine(call).is_err();
        holds && !self.lease.expired(now_seconds, lease_seconds)
    }

    /// True if it knows of all that was revoked while its lease was valid: it has
    /// acknowledged the delegations (FREE_STATEID, DELEGRETURN), or there was nothing. One
    /// that does not know would reclaim it after a restart (RFC 8881 §8.4.3).
    #[must_use]
    pub fn knows_its_losses(&self) -> bool {
        self.losses.are_known()
    }

    /// True if its record is to be written although it asks for nothing that needs one: it
    /// lacked only the acknowledgement of what was revoked. Where the client may also lack
    /// what it had not reclaimed when grace ended, the acknowledgement says nothing of that.
    #[must_use]
    pub fn is_record_due(&self) -> bool {
        let is_missing = self.unrecorded && !self.lease.revoked();
        is_missing && self.knows_the_rest && self.knows_its_losses()
    }

    /// True if it holds opens, locks or delegations.
    #[must_use]
    pub fn has_state(&self) -> bool {
        self.held.all() > 0
    }
}

/// A search for something that can be given up to make room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SoughtRoom {
    /// When it was, in seconds.
    pub at_seconds: u64,
    /// It found something: there may be room soon.
    pub is_coming: bool,
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
