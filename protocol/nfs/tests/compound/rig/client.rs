//! A client of any minor version: its identity, its session, its sequence
//! numbers.

use super::Rig;
use super::callbacks::{Heard, Manner};
use super::ops::{Ops, Reply};
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use zgate_nfs::runtime::{CallbackPath, ConnectionId};
use zgate_nfs::v4::op::*;
use zgate_nfs::v4::wire::{ClientId, SessionId, StateOwner, Status};
use zgate_nfs::{Call, Peer};
use zgate_rpc::{AcceptError, AuthSys, Credential};
use zgate_xdr::Decoder;

/// Slots a client asks for.
const SLOTS: usize = 4;

/// Where clients are, unless a test says otherwise.
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));

/// Where a client's minor-0 callbacks go.
fn address_of(connection: u64) -> std::net::SocketAddr {
    std::net::SocketAddr::new(ADDRESS, 4000 + connection as u16)
}

/// A client.
pub(crate) struct Client {
    pub(crate) rig: Rc<Rig>,
    pub(crate) minor: u8,
    pub(crate) name: Vec<u8>,
    pub(crate) verifier: Cell<u64>,
    pub(crate) address: Cell<IpAddr>,
    pub(crate) connection: Cell<u64>,
    pub(crate) credential: RefCell<Credential>,
    pub(crate) id: Cell<ClientId>,
    pub(crate) session: Cell<SessionId>,
    /// The last sequence number of each slot.
    pub(crate) slots: RefCell<[u32; SLOTS]>,
    /// Keep replies.
    pub(crate) cache: Cell<bool>,
    /// The last sequence number of each owner (minor version 0).
    pub(crate) owners: RefCell<HashMap<String, u32>>,
    /// The last request and its answer.
    last: RefCell<(Vec<u8>, Bytes)>,
}

/// Failures that leave an owner's sequence number alone (RFC 7530 §9.1.7).
pub(crate) fn leaves_seqid(status: Status) -> bool {
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

pub(crate) fn channel(bytes: u32, slots: u32) -> create_session::ChannelAttrs {
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
    pub(super) fn new(rig: &Rc<Rig>, name: &str, minor: u8) -> Self {
        Self {
            rig: Rc::clone(rig),
            minor,
            name: name.as_bytes().to_vec(),
            verifier: Cell::new(1),
            address: Cell::new(ADDRESS),
            connection: Cell::new(rig.new_connection()),
            credential: RefCell::new(Credential::Sys(AuthSys::default())),
            id: Cell::default(),
            session: Cell::default(),
            slots: RefCell::default(),
            cache: Cell::new(false),
            owners: RefCell::default(),
            last: RefCell::default(),
        }
    }

    /// Everything up to being ready to work.
    pub(crate) fn introduce(&self, callbacks: bool) {
        self.introduce_for_reclaim(callbacks);
        if self.minor > 0 {
            self.reclaim_complete().unwrap();
        }
    }

    /// The same without RECLAIM_COMPLETE.
    pub(crate) fn introduce_for_reclaim(&self, callbacks: bool) {
        if self.minor == 0 {
            let made = self.set_clientid(callbacks).unwrap();
            self.confirm_clientid(&made).unwrap();
        } else {
            let made = self.exchange_id().unwrap();
            self.create_session(made.sequenceid, callbacks).unwrap();
        }
    }

    pub(crate) fn reclaim_complete(&self) -> Result<Reply, Status> {
        let args = reclaim_complete::Args { one_fs: false };
        self.run(Ops::new().op::<reclaim_complete::ReclaimComplete>(&args)).result()
    }

    pub(crate) fn set_clientid(&self, callbacks: bool) -> Result<setclientid::Res, Status> {
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
        let reply = self.bare(Ops::new().op::<setclientid::Setclientid>(&args)).result()?;
        Ok(reply.get::<setclientid::Setclientid>())
    }

    pub(crate) fn confirm_clientid(&self, made: &setclientid::Res) -> Result<(), Status> {
        let args = setclientid_confirm::Args { clientid: made.clientid, confirm: made.confirm };
        let ops = Ops::new().op::<setclientid_confirm::SetclientidConfirm>(&args);
        self.bare(ops).result()?;
        self.id.set(made.clientid);
        self.owners.borrow_mut().clear();
        Ok(())
    }

    pub(crate) fn exchange_args(&self) -> exchange_id::Args {
        exchange_id::Args {
            verifier: self.verifier.get().to_be_bytes(),
            owner: self.name.as_slice().into(),
            flags: 0,
            protect: exchange_id::Protect::None,
            implementation: None,
        }
    }

    pub(crate) fn exchange_id(&self) -> Result<exchange_id::Res, Status> {
        self.exchange_id_with(&self.exchange_args())
    }

    pub(crate) fn exchange_id_with(
        &self,
        args: &exchange_id::Args,
    ) -> Result<exchange_id::Res, Status> {
        let reply = self.bare(Ops::new().op::<exchange_id::ExchangeId>(args)).result()?;
        let res = reply.get::<exchange_id::ExchangeId>();
        self.id.set(res.clientid);
        Ok(res)
    }

    pub(crate) fn session_args(&self, sequence: u32, callbacks: bool) -> create_session::Args {
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

    pub(crate) fn create_session(
        &self,
        sequence: u32,
        callbacks: bool,
    ) -> Result<create_session::Res, Status> {
        self.create_session_with(&self.session_args(sequence, callbacks))
    }

    pub(crate) fn create_session_with(
        &self,
        args: &create_session::Args,
    ) -> Result<create_session::Res, Status> {
        let reply = self.bare(Ops::new().op::<create_session::CreateSession>(args)).result()?;
        let res = reply.get::<create_session::CreateSession>();
        self.session.set(res.session);
        *self.slots.borrow_mut() = [0; SLOTS];
        Ok(res)
    }

    /// The client reboots: same name, new verifier, new connection.
    pub(crate) fn reboot(&self) {
        self.verifier.set(self.verifier.get() + 1);
        self.reconnect();
    }

    pub(crate) fn reconnect(&self) {
        self.connection.set(self.rig.new_connection());
    }

    pub(crate) fn become_user(&self, uid: u32, gid: u32) {
        let sys = AuthSys { uid, gid, ..AuthSys::default() };
        *self.credential.borrow_mut() = Credential::Sys(sys);
    }

    /// As a user, for as long as `work` takes.
    pub(crate) fn as_user<T>(&self, uid: u32, work: impl FnOnce() -> T) -> T {
        let before = self.credential.borrow().clone();
        self.become_user(uid, uid);
        let result = work();
        *self.credential.borrow_mut() = before;
        result
    }

    pub(crate) fn path(&self) -> CallbackPath {
        if self.minor == 0 {
            CallbackPath::Address(address_of(self.connection.get()))
        } else {
            CallbackPath::Connection(ConnectionId(self.connection.get()))
        }
    }

    pub(crate) fn heard(&self) -> Vec<Heard> {
        self.rig.world.heard(&self.path())
    }

    pub(crate) fn answers_callbacks(&self, manner: Manner) {
        self.rig.world.set_manner(self.path(), manner);
    }

    pub(crate) fn rpc_call(&self) -> Call {
        Call {
            peer: Peer {
                address: self.address.get(),
                port: 700,
                connection: ConnectionId(self.connection.get()),
                rdma: false,
            },
            credential: self.credential.borrow().clone(),
            xid: 1,
            span_allowed: false,
        }
    }

    /// Sends the arguments of a COMPOUND as they are.
    pub(crate) fn send(&self, bytes: &[u8]) -> Result<Bytes, AcceptError> {
        let (server, call, now) = (self.rig.server(), self.rpc_call(), self.rig.world.clock());
        let work = Box::pin(async move {
            let mut d = Decoder::new(bytes);
            server.compound(&call, now, &mut d).await
        });
        self.rig.world.drive(work).map(|message| message.flatten().unwrap())
    }

    /// Sends without SEQUENCE.
    pub(crate) fn bare(&self, ops: Ops) -> Reply {
        let (bytes, sent) = ops.encode(b"", u32::from(self.minor));
        let raw = self.send(&bytes).unwrap();
        *self.last.borrow_mut() = (bytes, raw.clone());
        Reply::parse(raw, &sent)
    }

    /// Sends the last request again: what it was answered and is answered.
    pub(crate) fn repeat(&self) -> (Bytes, Bytes) {
        let (bytes, raw) = self.last.borrow().clone();
        (raw, self.send(&bytes).unwrap())
    }

    pub(crate) fn sequence_args(&self, slot: u32, sequence: u32) -> sequence::Args {
        sequence::Args {
            session: self.session.get(),
            sequence,
            slot,
            highest_slot: slot,
            cache_this: self.cache.get(),
        }
    }

    /// Sends in slot 0 with this sequence number, whatever came before.
    pub(crate) fn run_as(&self, slot: u32, sequence: u32, ops: Ops) -> Reply {
        let first = Ops::new().op::<sequence::Sequence>(&self.sequence_args(slot, sequence));
        let mut reply = self.bare(ops.after(first));
        if let Some(first) = reply.answers.first()
            && first.status == Status::Ok
        {
            reply.sequence = Some(reply.get::<sequence::Sequence>());
            reply.answers.remove(0);
            self.slots.borrow_mut()[slot as usize] = sequence;
        }
        reply
    }

    /// Sends as a client does: behind SEQUENCE in minor version 1 and 2.
    pub(crate) fn run(&self, ops: Ops) -> Reply {
        if self.minor == 0 {
            return self.bare(ops);
        }
        let next = self.slots.borrow()[0].wrapping_add(1);
        self.run_as(0, next, ops)
    }

    /// Sends and insists on a status, of the last operation answered.
    #[track_caller]
    pub(crate) fn check(&self, what: &str, ops: Ops, expected: Status) {
        let reply = self.run(ops);
        assert_eq!(reply.status, expected, "{what} (minor version {})", self.minor);
    }

    /// Insists on a status of the last of these operations, the others being
    /// done.
    #[track_caller]
    pub(crate) fn check_last(&self, what: &str, ops: Ops, expected: Status) -> Reply {
        let count = ops.len();
        let reply = self.run(ops);
        assert_eq!(reply.status, expected, "{what} (minor version {})", self.minor);
        assert_eq!(reply.answers.len(), count, "{what}: an operation before it failed");
        reply
    }

    pub(crate) fn owner(&self, name: &str) -> StateOwner {
        StateOwner { clientid: self.id.get(), owner: name.as_bytes().into() }
    }

    /// The next sequence number of an owner; 0 where there is none.
    pub(crate) fn seqid(&self, owner: &str) -> u32 {
        if self.minor > 0 {
            return 0;
        }
        self.owners.borrow().get(owner).map_or(0, |last| last + 1)
    }

    /// Moves an owner's number past an operation that ended so.
    pub(crate) fn advance(&self, owner: &str, status: Status) {
        if self.minor == 0 && !leaves_seqid(status) {
            let next = self.seqid(owner);
            self.owners.borrow_mut().insert(owner.to_owned(), next);
        }
    }
}

/// What becomes of a request that was begun.
pub(crate) type Pending = Rc<RefCell<Option<Bytes>>>;

impl Client {
    /// Begins a request in a slot; it goes on as the world does.
    pub(crate) fn begin(&self, slot: u32, sequence: u32, ops: Ops) -> Pending {
        let first = Ops::new().op::<sequence::Sequence>(&self.sequence_args(slot, sequence));
        self.begin_bare(ops.after(first))
    }

    /// Begins a request without SEQUENCE.
    pub(crate) fn begin_bare(&self, ops: Ops) -> Pending {
        let (bytes, _) = ops.encode(b"", u32::from(self.minor));
        let (server, call, now) = (self.rig.server(), self.rpc_call(), self.rig.world.clock());
        let pending = Pending::default();
        let slot = Rc::clone(&pending);
        self.rig.world.spawn(Box::pin(async move {
            let mut d = Decoder::new(&bytes);
            let message = server.compound(&call, now, &mut d).await.unwrap();
            *slot.borrow_mut() = message.flatten();
        }));
        pending
    }

    /// Begins a request as [`Self::run`] sends one, in slot 0.
    pub(crate) fn begin_next(&self, ops: Ops) -> Pending {
        if self.minor == 0 {
            return self.begin_bare(ops);
        }
        let next = self.slots.borrow()[0].wrapping_add(1);
        self.slots.borrow_mut()[0] = next;
        self.begin(0, next, ops)
    }

    /// A directory in the root of `/export`, made in another slot.
    pub(crate) fn mkdir_elsewhere(&self, text: &str) {
        let kind = create::Kind::Node(zgate_store::file_store::NewNode::Directory);
        let args = create::Args { kind, name: text.as_bytes().into(), attrs: Default::default() };
        let next = self.slots.borrow()[1] + 1;
        let ops = Ops::new().at(&self.rig.root_of("/export")).op::<create::Create>(&args);
        self.run_as(1, next, ops).ok();
    }
}
