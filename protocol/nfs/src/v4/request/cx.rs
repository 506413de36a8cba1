//! State shared by the operations of one COMPOUND.

use crate::changes::ChangeGuard;
use crate::limits::MAX_REPLY_BYTES;
use crate::namespace::policy::Refusal;
use crate::namespace::{Entry, Export, FileHandle, FileKey, HeldNamespace, Object};
use crate::patience::Patience;
use crate::runtime::{Call, Now, Refused};
use crate::v4::server::Server;
use crate::v4::state::stateids::{Requester, is_special};
use crate::v4::tables::held::HeldTables;
use crate::v4::tables::lease::{Lease, RunningRequest};
use crate::v4::tables::session::{Channel, SlotUse};
use std::sync::{Arc, OnceLock};
use zgate_nfs_wire::v4::{OpNum, Stateid, Status};
use zgate_rpc::Credential;
use zgate_rpc::gss::reply_overhead_bytes;
use zgate_store::{Attr, NodeHandle};

/// A resolved file handle, with the caller's access.
#[derive(Clone, Debug)]
pub enum Current {
    /// A pseudo directory.
    Pseudo(crate::namespace::PseudoId),
    /// An object of an export to which the caller has access.
    Node {
        /// The export.
        export: Arc<Export>,
        /// The object.
        node: NodeHandle,
        /// The granted access.
        entry: Arc<Entry>,
    },
}

impl Current {
    /// The decoded file handle.
    #[must_use]
    pub fn handle(&self) -> FileHandle {
        match self {
            Self::Pseudo(id) => FileHandle::Pseudo(*id),
            Self::Node { export, node, .. } => FileHandle::Node(export.id, *node),
        }
    }
}

/// An object of an export that does not admit the flavour of the call. The client may ask
/// about it, or leave it, and do nothing else with it (RFC 8881 §2.6.3.1.1).
#[derive(Clone, Debug)]
pub struct Unentered {
    /// The export.
    pub export: Arc<Export>,
    /// The object.
    pub node: NodeHandle,
}

impl Unentered {
    /// The decoded file handle.
    #[must_use]
    pub fn handle(&self) -> FileHandle {
        FileHandle::Node(self.export.id, self.node)
    }

    /// True for the root of the export, whose parent is open to all flavours.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.node == self.export.store.root()
    }
}

/// The state of one COMPOUND while its operations run.
pub struct Cx<'a> {
    /// The server.
    pub server: &'a Server,
    /// The namespace at the start of the COMPOUND.
    pub namespace: HeldNamespace,
    /// The RPC call.
    pub call: &'a Call,
    /// Time of its arrival.
    pub now: Now,
    /// Minor version: 0, 1 or 2.
    pub minor: u8,
    /// Current file handle.
    pub current: Option<Current>,
    /// Saved file handle.
    pub saved: Option<Current>,
    /// Current stateid (minor ≥ 1, RFC 8881 §16.2.3.1.2).
    pub current_stateid: Option<Stateid>,
    /// Saved stateid.
    pub saved_stateid: Option<Stateid>,
    /// The session slot, once SEQUENCE ran.
    pub slot: Option<SlotUse>,
    /// In minor version 0: the request as one of the first client that an OPEN or
    /// a stateid for I/O has named. Later ones have the slot for it.
    pub running: OnceLock<RunningRequest>,
    /// The client named by an OPEN of this COMPOUND (minor 0, which has no
    /// session).
    pub open_client: Option<zgate_nfs_wire::v4::ClientId>,
    /// Attributes of the current object, read in this COMPOUND, by a LOOKUP or when
    /// the object was created, opened or changed: the GETATTR that mostly follows need
    /// not ask the store again. Only operations that change nothing, and leave the
    /// object the current one, may run in between.
    pub looked_up: Option<Attr>,
    /// Time that is left to wait for the names of users and groups in the reply.
    pub name_patience: Patience,
    /// Time that is left to wait for attributes from holders of write delegations.
    pub holder_patience: Patience,
    /// Object of the file handle that was set last, if the flavour is wrong for it.
    /// There is no current file handle then.
    pub unentered: Option<Box<Unentered>>,
    /// The same of the saved file handle.
    pub saved_unentered: Option<Box<Unentered>>,
    /// Set by SEQUENCE if the request has run before, and its reply was not kept.
    pub ran_before: bool,
    /// Set in a READ if no later operation can change its data.
    pub data_stays: bool,
    /// Index of the running operation.
    pub op_index: usize,
    /// The running operation.
    pub op: OpNum,
    /// Number of operations in the COMPOUND.
    pub op_count: usize,
    /// Bytes of the result before its operations: status, tag, number of operations.
    pub head_bytes: usize,
    /// Bytes of reply still allowed by the channel (`usize::MAX` without a
    /// session).
    pub reply_room: usize,
    /// Length of the request in bytes.
    pub request_bytes: usize,
    /// A digest of the request's operations: tells a retry from a new request
    /// that wrongly reuses a slot's sequence number (RFC 8881 §2.10.6.1.3.1).
    pub request_digest: u64,
    /// A reply that answers the whole COMPOUND (a replayed slot).
    pub replay: Option<zgate_xdr::Message>,
}

impl Cx<'_> {
    /// The current file handle.
    ///
    /// # Errors
    /// [`Status::Nofilehandle`]; [`Status::Wrongsec`] if it was set with the wrong flavour.
    pub fn current(&self) -> Result<&Current, Status> {
        let none = if self.unentered.is_some() { Status::Wrongsec } else { Status::Nofilehandle };
        self.current.as_ref().ok_or(none)
    }

    /// The current file handle as an object of an export. In the pseudo file
    /// system, which holds directories only and is read-only, the result is
    /// `otherwise`.
    ///
    /// # Errors
    /// [`Status::Nofilehandle`] or `otherwise`.
    pub fn object(&self, otherwise: Status) -> Result<Object, Status> {
        as_object(self.current()?, otherwise)
    }

    /// The saved file handle as an object; see [`Self::object`].
    ///
    /// # Errors
    /// [`Status::Nofilehandle`] or `otherwise`. [`Status::Xdev`] if it was set with the
    /// wrong flavour: the current one was not, and is in another export. There may be no
    /// flavour for both (RFC 8881 §2.6.3.1.2).
    pub fn saved_object(&self, otherwise: Status) -> Result<Object, Status> {
        let none = if self.saved_unentered.is_some() { Status::Xdev } else { Status::Nofilehandle };
        as_object(self.saved.as_ref().ok_or(none)?, otherwise)
    }

    /// The current object, if the caller may modify it.
    ///
    /// # Errors
    /// [`Status::Nofilehandle`], or [`Status::Rofs`] in the pseudo file system
    /// and in exports that are read-only for this caller.
    pub fn writable_object(&self) -> Result<Object, Status> {
        let object = self.object(Status::Rofs)?;
        if object.entry.writable { Ok(object) } else { Err(Status::Rofs) }
    }

    /// Resolves a file handle.
    ///
    /// # Errors
    /// [`Status::Badhandle`] if this server cannot have issued the handle,
    /// [`Status::Stale`] for an export that was removed or is closed to the
    /// caller, [`Status::Delay`] for one whose tree cannot be opened now, or that may
    /// not be known yet, [`Status::Wrongsec`].
    pub fn enter(&self, handle: FileHandle) -> Result<Current, Status> {
        match handle {
            FileHandle::Pseudo(id) if self.namespace.contains(id) => Ok(Current::Pseudo(id)),
            // It leads to an export that is not known yet.
            FileHandle::Pseudo(_) if self.namespace.is_incomplete() => Err(Status::Delay),
            FileHandle::Pseudo(_) => Err(Status::Stale),
            FileHandle::Node(export, node) => {
                let Some(export) = self.namespace.export(export) else {
                    let away = self.namespace.away(export, &self.call.peer);
                    let returns = away.is_some_and(|export| export.versions.has_minor(self.minor))
                        || self.namespace.may_appear(export);
                    return Err(if returns { Status::Delay } else { Status::Stale });
                };
                self.enter_export(Arc::clone(export), node).map_err(|status| match status {
                    Status::Noent => Status::Stale,
                    other => other,
                })
            }
        }
    }

    /// Makes the object of a handle the current one. With the wrong flavour there is none
    /// afterwards, but it is known which it would be.
    ///
    /// # Errors
    /// As [`Self::enter`].
    pub fn put(&mut self, handle: FileHandle) -> Result<(), Status> {
        let entered = self.enter(handle);
        (self.current, self.current_stateid, self.unentered) = (None, None, None);
        if let (FileHandle::Node(id, node), Err(Status::Wrongsec)) = (handle, &entered) {
            let export = self.namespace.export(id).map(Arc::clone);
            self.unentered = export.map(|export| Box::new(Unentered { export, node }));
        }
        self.current = Some(entered?);
        Ok(())
    }

    /// Checks the access to an export, and resolves one of its objects.
    ///
    /// # Errors
    /// [`Status::Noent`] if the export is hidden from the caller,
    /// [`Status::Wrongsec`], [`Status::Access`] for a port that is not reserved,
    /// [`Status::Delay`] while the caller's user or groups are unknown.
    pub fn enter_export(&self, export: Arc<Export>, node: NodeHandle) -> Result<Current, Status> {
        if !export.versions.has_minor(self.minor) {
            return Err(Status::Noent);
        }
        self.call.entered.set(export.id.0);
        match export.admit(self.call) {
            Ok(entry) => Ok(Current::Node { export, node, entry: Arc::new(entry) }),
            Err(Refusal::NotListed) => Err(Status::Noent),
            Err(
                Refusal::WrongFlavor
                | Refusal::Unprotected(_)
                | Refusal::WrongCertificate
                | Refusal::UnknownUser,
            ) => Err(Status::Wrongsec),
            Err(Refusal::UnprivilegedPort) => Err(Status::Access),
            Err(Refusal::UnknownGroups) => Err(Status::Delay),
        }
    }

    /// Makes an object of the same export as `of` the current file handle and
    /// clears the current stateid.
    pub fn set_current_node(&mut self, of: &Object, node: NodeHandle) {
        self.current = Some(Current::Node {
            export: Arc::clone(&of.export),
            node,
            entry: Arc::clone(&of.entry),
        });
        self.current_stateid = None;
    }

    /// Returns the longest result of the operations in bytes, and the status for exceeding it
    /// (RFC 8881 §2.10.6.4).
    pub(crate) fn reply_limit(&self) -> (usize, Status) {
        match &self.slot {
            Some(slot) => self.limit_of_channel(&slot.session.fore, slot.cache_this),
            None => (MAX_REPLY_BYTES, Status::Resource),
        }
    }

    /// Returns the same for a request over a channel.
    pub(crate) fn limit_of_channel(&self, fore: &Channel, cache_this: bool) -> (usize, Status) {
        /// RPC and COMPOUND headers also count towards the channel's limit, and there is room
        /// for the refusal that is the last result; with a short tag they take no more than this.
        const HEADER_BYTES: usize = 64;
        /// The header of an RPC reply with an empty verifier (RFC 5531 §9).
        const RPC_BYTES: usize = 24;
        /// The result of an operation that is refused: number, status, attributes of SETATTR.
        const REFUSAL_BYTES: usize = 4 + 4 + 4;
        let (max, error) = if cache_this && fore.max_cached_bytes < fore.max_response_bytes {
            (fore.max_cached_bytes, Status::RepTooBigToCache)
        } else {
            (fore.max_response_bytes, Status::RepTooBig)
        };
        let protection_bytes = match &self.call.credential {
            Credential::None | Credential::Sys(_) => 0,
            Credential::Gss(caller) => reply_overhead_bytes(caller.service),
        };
        let headers = RPC_BYTES + protection_bytes + self.head_bytes + REFUSAL_BYTES;
        let headers = HEADER_BYTES.max(headers);
        ((max as usize).saturating_sub(headers), error)
    }

    /// Returns the status of a listing without room for its first entry: more than the client
    /// asked for, or than the rest of the reply (RFC 8881 §2.10.6.4), which asking for more does
    /// not change.
    pub(crate) fn no_room_for_entry(&self, asked_bytes: usize, given_bytes: usize) -> Status {
        if given_bytes < asked_bytes { self.reply_limit().1 } else { Status::Toosmall }
    }

    /// Returns whether the data of a READ may be sent from its file. That is read when
    /// all operations ran: none of them may change it. A cached reply must not change
    /// with the file either.
    pub(crate) fn span_allowed(&self) -> bool {
        let kept = self.slot.as_ref().is_some_and(|slot| slot.cache_this);
        self.call.span_allowed && self.data_stays && !kept
    }

    /// Replaces the special "current stateid" by the actual one (RFC 8881
    /// §16.2.3.1.2); other stateids are returned unchanged. It stands for the newest version,
    /// which another request may have made since, but in CLOSE and OPEN_DOWNGRADE (§8.2.3).
    ///
    /// # Errors
    /// [`Status::BadStateid`] if there is no current stateid, or a special one.
    pub fn resolve_stateid(&self, stateid: Stateid) -> Result<Stateid, Status> {
        if self.minor == 0 || stateid != Stateid::CURRENT {
            return Ok(stateid);
        }
        let current = self.current_stateid.filter(|current| !is_special(*current));
        let current = current.ok_or(Status::BadStateid)?;
        let keeps_version = matches!(self.op, OpNum::Close | OpNum::OpenDowngrade);
        Ok(if keeps_version { current } else { Stateid { seqid: 0, ..current } })
    }

    /// Refuses hosts that no export names before any state is kept for them, so
    /// that they cannot fill the table of clients.
    ///
    /// # Errors
    /// [`Status::Perm`]; see docs/spec-exceptions/clients-in-no-export.md.
    /// [`Status::Delay`] while there may be exports that are not known yet.
    pub fn require_named_host(&self) -> Result<(), Status> {
        if self.namespace.names(&self.call.peer) {
            return Ok(());
        }
        if self.namespace.is_incomplete() {
            return Err(Status::Delay);
        }
        let reason = "no export names this host over its transport";
        self.call.refused.set(Refused { export: None, reason });
        Err(Status::Perm)
    }

    /// Sender of the request.
    #[must_use]
    pub fn requester(&self) -> Requester {
        let (client, now_seconds) = (self.session_client(), self.now.seconds());
        Requester { minor: self.minor, client, now_seconds }
    }

    /// Locks the tables, and returns the exports in effect with them. Bound in this order, the
    /// tables are unlocked first: whoever is the last to keep exports closes their stores.
    pub(crate) fn lock_with_exports(&self) -> (HeldNamespace, HeldTables<'_>) {
        let tables = self.server.state.lock();
        (self.server.namespace(), tables)
    }

    /// Returns whether state may still be held through the export of an object, by the exports
    /// in effect while the tables are locked. A change of the exports takes away what it finds
    /// in the tables ([`Server::replace_namespace`]): what a request entered after that, by the
    /// exports that it began with, would stay, and its client could not return it.
    pub(crate) fn is_in_effect(&self, in_effect: &HeldNamespace, object: &Object) -> bool {
        let known = &object.export;
        match in_effect.export(known.id) {
            Some(now) => {
                let is_same_tree = || now.store.root() == known.store.root();
                let is_open_to_it = || now.names_host(self.call.peer.address);
                Arc::ptr_eq(now, known) || is_same_tree() && is_open_to_it()
            }
            None => in_effect.is_absent(known.id),
        }
    }

    /// Recalls for REMOVE, RENAME, LINK and SETXATTR: all delegations of the
    /// object except the caller's own.
    ///
    /// # Errors
    /// [`Status::Delay`].
    pub(crate) fn recall_for_change(&self, file: &FileKey) -> Result<ChangeGuard, Status> {
        let (caller, now_seconds) = (self.session_client(), self.now.seconds());
        self.server.state.recall_before_change(file, caller, now_seconds)
    }

    /// The client of the session (minor ≥ 1), once SEQUENCE ran.
    #[must_use]
    pub fn session_client(&self) -> Option<zgate_nfs_wire::v4::ClientId> {
        self.slot.as_ref().map(|slot| slot.client)
    }

    /// Renews the lease of a client of minor version 0 that a stateid or an
    /// argument names, and counts the request as one of the client until it ends.
    pub(crate) fn runs_for(&self, lease: &Arc<Lease>) {
        lease.renew(self.now.seconds());
        self.running.get_or_init(|| RunningRequest::of(lease));
    }

    /// Renews the lease of the client at the end of the request (RFC 8881 §8.3).
    pub(crate) fn renew_at_end(&self) {
        let lease = match &self.slot {
            Some(slot) => Some(&*slot.session.lease),
            None => self.running.get().map(RunningRequest::lease),
        };
        if let Some(lease) = lease {
            lease.renew(self.server.runtime.seconds());
        }
    }

    /// The calling client, if the COMPOUND tells: in minor version 0 only few
    /// operations do.
    #[must_use]
    pub fn calling_client(&self) -> Option<zgate_nfs_wire::v4::ClientId> {
        self.session_client().or(self.open_client)
    }
}

fn as_object(current: &Current, otherwise: Status) -> Result<Object, Status> {
    match current {
        Current::Pseudo(_) => Err(otherwise),
        Current::Node { export, node, entry } => {
            Ok(Object { export: Arc::clone(export), node: *node, entry: Arc::clone(entry) })
        }
    }
}
