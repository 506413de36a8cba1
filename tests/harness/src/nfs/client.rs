//! A client of any minor version: its identity, its session, its sequence
//! numbers.

use super::Harness;
use super::callbacks::CallbackBehavior;
use super::ops::{Ops, Reply};
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::Arc;
use zgate_nfs::runtime::{CallbackPath, ConnectionId, PeerCertificate, Protection};
use zgate_nfs::{Call, Peer};
use zgate_nfs_wire::v4::callback::CallbackOp;
use zgate_nfs_wire::v4::op::*;
use zgate_nfs_wire::v4::{ClientId, SessionId, StateOwner, Status};
use zgate_rpc::auth::{GssCaller, GssIdentity, GssUser};
use zgate_rpc::gss::Service;
use zgate_rpc::{AcceptError, AuthSys, Credential};
use zgate_xdr::Decoder;

/// Slots that a client requests.
const SLOTS: usize = 4;

/// Default address of clients.
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));

/// Address of a client's minor-0 callbacks.
fn address_of(connection: u64) -> std::net::SocketAddr {
    std::net::SocketAddr::new(ADDRESS, 4000 + connection as u16)
}

/// The credential of a Kerberos principal that is no user of the server.
#[must_use]
pub fn by_kerberos(principal: &str, service: Service) -> Credential {
    let identity = GssIdentity {
        principal: principal.into(),
        acceptor: "nfs/server@R".into(),
        user: GssUser::Nobody,
    };
    Credential::Gss(GssCaller { service, identity: Arc::new(identity) })
}

/// A client.
pub struct Client {
    pub harness: Rc<Harness>,
    pub minor: u8,
    pub name: Vec<u8>,
    pub verifier: Cell<u64>,
    pub address: Cell<IpAddr>,
    pub connection: Cell<u64>,
    pub credential: RefCell<Credential>,
    /// Protection of its connections.
    pub protection: Cell<Protection>,
    /// The certificate that it shows.
    pub certificate: RefCell<Option<Arc<PeerCertificate>>>,
    pub id: Cell<ClientId>,
    pub session: Cell<SessionId>,
    /// The last sequence number of each slot.
    pub slots: RefCell<[u32; SLOTS]>,
    /// Request that replies be cached.
    pub cache: Cell<bool>,
    /// Its transport can send data from a file.
    pub takes_spans: Cell<bool>,
    /// The last sequence number of each owner (minor version 0).
    pub owners: RefCell<HashMap<String, u32>>,
    /// It has named a callback address (minor version 0).
    pub(super) is_callable: Cell<bool>,
    /// The last request and its answer.
    last: RefCell<(Vec<u8>, Bytes)>,
}

/// Failures that do not advance an owner's sequence number (RFC 7530 §9.1.7).
pub(super) fn leaves_seqid(status: Status) -> bool {
    matches!(
        status,
        Status::StaleClientid
            | Status::StaleStateid
            | Status::BadStateid
            | Status::BadSeqid
            | Status::Badxdr
            | Status::Resource
            | Status::Nofilehandle
    )
}

pub(super) fn channel(bytes: u32, slots: u32) -> create_session::ChannelAttrs {
    create_session::ChannelAttrs {
        header_pad_bytes: 0,
        max_request_bytes: bytes,
        max_response_bytes: bytes,
        max_cached_bytes: bytes,
        max_ops: 64,
        slots,
    }
}

impl Client {
    pub(crate) fn new(harness: &Rc<Harness>, name: &str, minor: u8) -> Self {
        Self {
            harness: Rc::clone(harness),
            minor,
            name: name.as_bytes().to_vec(),
            verifier: Cell::new(1),
            address: Cell::new(ADDRESS),
            connection: Cell::new(harness.new_connection()),
            credential: RefCell::new(Credential::Sys(AuthSys::default())),
            protection: Cell::default(),
            certificate: RefCell::default(),
            id: Default::default(),
            session: Default::default(),
            slots: RefCell::default(),
            cache: Cell::new(false),
            takes_spans: Cell::new(false),
            owners: RefCell::default(),
            is_callable: Cell::new(false),
            last: RefCell::default(),
        }
    }

    /// Registers the client completely.
    pub fn introduce(&self, callbacks: bool) {
        self.introduce_for_reclaim(callbacks);
        if self.minor > 0 {
            self.reclaim_complete().unwrap();
        }
    }

    /// Registers the client without RECLAIM_COMPLETE.
    pub fn introduce_for_reclaim(&self, callbacks: bool) {
        if self.minor == 0 {
            let made = self.set_clientid(callbacks).unwrap();
            self.confirm_clientid(&made).unwrap();
        } else {
            let made = self.exchange_id().unwrap();
            self.create_session(made.sequenceid, callbacks).unwrap();
        }
    }

    pub fn reclaim_complete(&self) -> Result<Reply, Status> {
        let args = reclaim_complete::Args { one_fs: false };
        self.run(Ops::new().op::<ReclaimComplete>(&args)).result()
    }

    pub fn set_clientid(&self, callbacks: bool) -> Result<setclientid::Res, Status> {
        self.is_callable.set(callbacks);
        let callback_address = if callbacks {
            setclientid::NetAddress::from_socket(address_of(self.connection.get()))
        } else {
            setclientid::NetAddress::default()
        };
        let args = setclientid::Args {
            verifier: self.verifier.get().to_be_bytes(),
            name: self.name.as_slice().into(),
            callback_program: 0x4000_0000,
            callback_address,
            callback_ident: 5,
        };
        let reply = self.bare(Ops::new().op::<Setclientid>(&args)).result()?;
        Ok(reply.get::<Setclientid>())
    }

    pub fn confirm_clientid(&self, made: &setclientid::Res) -> Result<(), Status> {
        let args = setclientid_confirm::Args { clientid: made.clientid, confirm: made.confirm };
        let ops = Ops::new().op::<SetclientidConfirm>(&args);
        self.bare(ops).result()?;
        self.id.set(made.clientid);
        self.owners.borrow_mut().clear();
        Ok(())
    }

    pub fn exchange_args(&self) -> exchange_id::Args {
        exchange_id::Args {
            verifier: self.verifier.get().to_be_bytes(),
            owner: self.name.as_slice().into(),
            flags: 0,
            protect: exchange_id::Protect::None,
            implementation: None,
        }
    }

    pub fn exchange_id(&self) -> Result<exchange_id::Res, Status> {
        self.exchange_id_with(&self.exchange_args())
    }

    pub fn exchange_id_with(&self, args: &exchange_id::Args) -> Result<exchange_id::Res, Status> {
        let reply = self.bare(Ops::new().op::<ExchangeId>(args)).result()?;
        let res = reply.get::<ExchangeId>();
        self.id.set(res.clientid);
        Ok(res)
    }

    /// Registers, with a session whose fore channel is changed before it is asked for.
    pub fn introduce_with(&self, change: impl FnOnce(&mut create_session::ChannelAttrs)) {
        let made = self.exchange_id().unwrap();
        let mut args = self.session_args(made.sequenceid, false);
        change(&mut args.fore);
        self.create_session_with(&args).unwrap();
    }

    pub fn session_args(&self, sequence: u32, callbacks: bool) -> create_session::Args {
        create_session::Args {
            clientid: self.id.get(),
            sequence,
            flags: if callbacks { create_session::BACK_CHANNEL } else { 0 },
            fore: channel(2 << 20, SLOTS as u32),
            back: channel(4096, 4),
            callback_program: 0x4000_0000,
            security: vec![create_session::CallbackSecurity::None],
        }
    }

    pub fn create_session(
        &self,
        sequence: u32,
        callbacks: bool,
    ) -> Result<create_session::Res, Status> {
        self.create_session_with(&self.session_args(sequence, callbacks))
    }

    pub fn create_session_with(
        &self,
        args: &create_session::Args,
    ) -> Result<create_session::Res, Status> {
        let reply = self.bare(Ops::new().op::<CreateSession>(args)).result()?;
        let res = reply.get::<CreateSession>();
        self.session.set(res.session);
        *self.slots.borrow_mut() = [0; SLOTS];
        Ok(res)
    }

    /// Reboots the client: same name, new verifier, new connection.
    pub fn reboot(&self) {
        self.verifier.set(self.verifier.get() + 1);
        self.reconnect();
    }

    pub fn reconnect(&self) {
        self.connection.set(self.harness.new_connection());
    }

    pub fn become_user(&self, uid: u32, gid: u32) {
        let sys = AuthSys { uid, gid, ..AuthSys::default() };
        *self.credential.borrow_mut() = Credential::Sys(sys);
    }

    /// Runs `work` as another user.
    pub fn as_user<T>(&self, uid: u32, work: impl FnOnce() -> T) -> T {
        let before = self.credential.borrow().clone();
        self.become_user(uid, uid);
        let result = work();
        *self.credential.borrow_mut() = before;
        result
    }

    pub fn path(&self) -> CallbackPath {
        if self.minor == 0 {
            CallbackPath::Address(address_of(self.connection.get()))
        } else {
            CallbackPath::Connection(ConnectionId(self.connection.get()))
        }
    }

    pub fn callbacks(&self) -> Vec<CallbackOp> {
        self.harness.simulation.callbacks(&self.path())
    }

    pub fn answers_callbacks(&self, behavior: CallbackBehavior) {
        self.harness.simulation.set_callback_behavior(self.path(), behavior);
    }

    pub fn rpc_call(&self) -> Call {
        Call {
            peer: Peer {
                address: self.address.get(),
                port: 700,
                connection: ConnectionId(self.connection.get()),
                rdma: false,
                protection: self.protection.get(),
                kernel_encrypts: false,
                certificate: self.certificate.borrow().clone(),
            },
            credential: self.credential.borrow().clone(),
            xid: 1,
            span_allowed: self.takes_spans.get(),
            entered: Default::default(),
            refused: Default::default(),
            groups: None,
        }
    }

    /// Sends the arguments of a COMPOUND unchanged.
    pub fn send(&self, bytes: &[u8]) -> Result<Bytes, AcceptError> {
        let (server, call, now) =
            (self.harness.server(), self.rpc_call(), self.harness.simulation.clock());
        let work = Box::pin(async move {
            let mut d = Decoder::new(bytes);
            server.compound(&call, now, &mut d).await
        });
        self.harness.simulation.drive(work).map(|message| message.flatten().unwrap())
    }

    /// Sends without SEQUENCE.
    pub fn bare(&self, ops: Ops) -> Reply {
        let (bytes, sent) = ops.encode(b"", u32::from(self.minor));
        let raw = self.send(&bytes).unwrap();
        *self.last.borrow_mut() = (bytes, raw.clone());
        Reply::parse(raw, &sent)
    }

    /// Sends the last request again; returns the earlier and the new answer.
    pub fn repeat(&self) -> (Bytes, Bytes) {
        let (bytes, raw) = self.last.borrow().clone();
        (raw, self.send(&bytes).unwrap())
    }

    pub fn sequence_args(&self, slot: u32, sequence: u32) -> sequence::Args {
        sequence::Args {
            session: self.session.get(),
            sequence,
            slot,
            highest_slot: slot,
            cache_this: self.cache.get(),
        }
    }

    /// Sends in this slot with this sequence number, regardless of earlier
    /// requests.
    pub fn run_as(&self, slot: u32, sequence: u32, ops: Ops) -> Reply {
        let first = Ops::new().op::<Sequence>(&self.sequence_args(slot, sequence));
        let mut reply = self.bare(ops.after(first));
        if let Some(first) = reply.answers.first()
            && first.status == Status::Ok
        {
            reply.sequence = Some(reply.get::<Sequence>());
            reply.answers.remove(0);
            self.slots.borrow_mut()[slot as usize] = sequence;
        }
        reply
    }

    /// Sends like a real client: after SEQUENCE in minor version 1 and 2.
    pub fn run(&self, ops: Ops) -> Reply {
        if self.minor == 0 {
            return self.bare(ops);
        }
        let next = self.slots.borrow()[0].wrapping_add(1);
        self.run_as(0, next, ops)
    }

    /// Sends and checks the status of the last answered operation.
    #[track_caller]
    pub fn check(&self, what: &str, ops: Ops, expected: Status) {
        let reply = self.run(ops);
        assert_eq!(reply.status, expected, "{what} (minor version {})", self.minor);
    }

    /// Sends and checks the status of the last of these operations; the others
    /// must succeed.
    #[track_caller]
    pub fn check_last(&self, what: &str, ops: Ops, expected: Status) -> Reply {
        let count = ops.len();
        let reply = self.run(ops);
        assert_eq!(reply.status, expected, "{what} (minor version {})", self.minor);
        assert_eq!(reply.answers.len(), count, "{what}: an operation before it failed");
        reply
    }

    pub fn owner(&self, name: &str) -> StateOwner {
        StateOwner { clientid: self.id.get(), owner: name.as_bytes().into() }
    }

    /// The next sequence number of an owner; 0 where there is none.
    pub fn seqid(&self, owner: &str) -> u32 {
        if self.minor > 0 {
            return 0;
        }
        self.owners.borrow().get(owner).map_or(0, |last| last + 1)
    }

    /// Advances an owner's number after an operation with this status.
    pub fn advance(&self, owner: &str, status: Status) {
        if self.minor == 0 && !leaves_seqid(status) {
            let next = self.seqid(owner);
            self.owners.borrow_mut().insert(owner.to_owned(), next);
        }
    }
}

/// Answer of a request in progress.
pub type Pending = Rc<RefCell<Option<Bytes>>>;

impl Client {
    /// Begins a request in a slot; it goes on while the simulation runs.
    pub fn begin(&self, slot: u32, sequence: u32, ops: Ops) -> Pending {
        let first = Ops::new().op::<Sequence>(&self.sequence_args(slot, sequence));
        self.begin_bare(ops.after(first))
    }

    /// Begins a request without SEQUENCE.
    pub fn begin_bare(&self, ops: Ops) -> Pending {
        let (bytes, _) = ops.encode(b"", u32::from(self.minor));
        let (server, call, now) =
            (self.harness.server(), self.rpc_call(), self.harness.simulation.clock());
        let pending = Pending::default();
        let slot = Rc::clone(&pending);
        self.harness.simulation.spawn(Box::pin(async move {
            let mut d = Decoder::new(&bytes);
            let message = server.compound(&call, now, &mut d).await.unwrap();
            *slot.borrow_mut() = message.flatten();
        }));
        pending
    }

    /// Begins a request as [`Self::run`] sends one, in slot 0.
    pub fn begin_next(&self, ops: Ops) -> Pending {
        if self.minor == 0 {
            return self.begin_bare(ops);
        }
        let next = self.slots.borrow()[0].wrapping_add(1);
        self.slots.borrow_mut()[0] = next;
        self.begin(0, next, ops)
    }

    /// Creates a directory in the root of `/export`, in another slot.
    pub fn mkdir_elsewhere(&self, text: &str) {
        let kind = create::Kind::Node(zgate_store::file_store::NewNode::Directory);
        let args = create::Args { kind, name: text.as_bytes().into(), attrs: Default::default() };
        let next = self.slots.borrow()[1] + 1;
        let ops = Ops::new().at(&self.harness.root_of("/export")).op::<Create>(&args);
        self.run_as(1, next, ops).ok();
    }
}
