//! A gateway with a mechanism of the tests, and its client.

use crate::net::core::Core;
use crate::net::peer::{ConnectionId, Peer};
use crate::nfs::dispatch::{Answer, answer};
use crate::nfs::gss::identity::Users;
use crate::nfs::gss::kerberos::Offer;
use crate::nfs::gss::mechanism::{BoxedContext, Client, Mechanism, TokenRefused, TokenResult};
use crate::nfs::gss::tickets::MitTickets;
use crate::nfs::record::Received;
use crate::nfs::service::{CallSource, Protected, Service};
use crate::nfs::tcp::tests::{NAMED, gateway_with};
use crate::server::run::Gateway;
use bytes::Bytes;
use std::net::IpAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use tokio::task::LocalSet;
use zgate_io::continuation::Home;

use zgate_nfs_wire::PROGRAM;
use zgate_rpc::auth::{OpaqueAuth, RPCSEC_GSS};
use zgate_rpc::gss::{
    Handle, InitResult, InitToken, Procedure, SecurityContext, Service as GssService,
};
use zgate_store::Caller;
use zgate_test_harness::gss::{FakeCall, FakeContext};
use zgate_xdr::{Decode, Decoder, Encode, Encoder};

/// Tokens are a key and a local user; a key of 0 is refused, 1 needs another
/// token, 2 waits until the test lets it go.
pub(super) struct TestMechanism {
    pub(super) gate: Mutex<mpsc::Receiver<()>>,
}

pub(super) const REFUSED: u8 = 0;
pub(super) const ASKS_AGAIN: u8 = 1;
pub(super) const HANGS: u8 = 2;

impl Mechanism for TestMechanism {
    fn accept(
        &self,
        context: Option<BoxedContext>,
        token: &[u8],
    ) -> Result<TokenResult, TokenRefused> {
        let refused = || TokenRefused { major: 9 << 16, minor: 7, reason: "told to".to_owned() };
        let (&key, user) = token.split_first().ok_or_else(refused)?;
        if key == REFUSED {
            return Err(refused());
        }
        if key == HANGS {
            let _ = self.gate.lock().unwrap().recv();
        }
        let client = Client {
            principal: format!("{}@TEST", String::from_utf8_lossy(user)),
            local_user: Some(String::from_utf8_lossy(user).into_owned()),
            lifetime_seconds: 3600,
            acceptor: "nfs/server@TEST".to_owned(),
        };
        let asks_again = key == ASKS_AGAIN && context.is_none();
        let security: BoxedContext = Box::new(FakeContext { key: key.into() });
        let client = (!asks_again).then_some(client);
        Ok(TokenResult { context: security, token: vec![0xaa], client })
    }
}

/// The only user is `alice`.
fn look_up(name: &str) -> std::io::Result<Option<Caller>> {
    let alice = Caller { uid: 1001, gid: 1001, groups: Arc::from([1001, 4000]) };
    Ok((name == "alice").then_some(alice))
}

/// Kerberos with the mechanism of the tests.
pub(super) fn offer(gate: mpsc::Receiver<()>) -> Offer {
    let mechanism = TestMechanism { gate: Mutex::new(gate) };
    let users = Users { by_principal: Default::default(), look_up };
    let tickets = Arc::new(MitTickets::new("/nonexistent".into()));
    Offer::with(Box::new(mechanism), tickets, users).unwrap()
}

/// Runs `test` with a gateway whose export accepts these flavours.
pub(super) fn with_kerberos(security: &str, test: impl AsyncFnOnce(&TestGateway)) {
    let dir = tempfile::tempdir().unwrap();
    let gateway = gateway_with(dir.path(), &format!("security = {security}"));
    let (let_go, gate) = mpsc::channel();
    gateway.shared.nfs.kerberos.replace(Some(offer(gate)));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let gateway = TestGateway { gateway, let_go, export: dir.path().join("export") };
    LocalSet::new().block_on(&runtime, async { test(&gateway).await });
    gateway.gateway.stop();
}

/// The gateway of a test.
pub(super) struct TestGateway {
    pub(super) gateway: Gateway,
    /// The exported directory.
    pub(super) export: PathBuf,
    /// Lets one token go that hangs.
    pub(super) let_go: mpsc::Sender<()>,
}

/// Handle of a context with its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session {
    pub(super) context: FakeContext,
    pub(super) handle: Option<Handle>,
}

impl TestGateway {
    /// Returns the service of a core.
    pub(super) fn service(&self) -> Rc<Service> {
        let shared = &self.gateway.shared;
        let core = Rc::new(Core::new(0, Arc::clone(&shared.network)));
        let (home, returning) = Home::new(tokio::runtime::Handle::current());
        tokio::task::spawn_local(returning.run());
        Service::new(Arc::clone(&shared.nfs), core, home)
    }

    pub(super) fn source(&self, address: IpAddr) -> Arc<CallSource> {
        let service = self.service();
        let peer = Peer { address, port: 700, connection: ConnectionId(1), rdma: false };
        service.call_source(peer, Protected::default())
    }

    pub(super) async fn raw(&self, record: Vec<u8>) -> Answer {
        let (head, source) = (Bytes::from(record), self.source(NAMED));
        let received = Received { head, bulk: None, head_copies: 1, copied_bytes: 0 };
        answer(&source, true, received).await
    }

    /// Returns the whole reply.
    pub(super) async fn ask(&self, call: &FakeCall<'_>) -> Option<Vec<u8>> {
        match self.raw(call.record()).await {
            Answer::Reply(message) => Some(message.flatten().unwrap().to_vec()),
            Answer::Nothing => None,
            Answer::Close(why) => panic!("{why:?}"),
        }
    }

    /// Sends a token.
    pub(super) async fn token(
        &self,
        (procedure, handle): (Procedure, Option<Handle>),
        token: &[u8],
    ) -> (InitResult, OpaqueAuth) {
        let mut e = Encoder::new();
        InitToken(token.to_vec()).encode(&mut e);
        let arguments = e.finish_bytes().unwrap();
        let call = FakeCall {
            context: FakeContext { key: 0 },
            handle,
            procedure,
            sequence: 0,
            service: GssService::None,
            words: [1, PROGRAM, 4, 0],
            arguments: &arguments,
        };
        let reply = self.ask(&call).await.unwrap();
        let mut d = Decoder::new(&reply);
        assert_eq!([(); 3].map(|()| d.u32().unwrap()), [1, 1, 0], "accepted");
        let verifier = OpaqueAuth::decode(&mut d).unwrap();
        assert_eq!(d.u32(), Ok(0), "success");
        (InitResult::decode(&mut d).unwrap(), verifier)
    }

    /// Establishes a context of `user`.
    pub(super) async fn session(&self, key: u8, user: &str) -> Session {
        let token = [&[key], user.as_bytes()].concat();
        let (told, verifier) = self.token((Procedure::Init, None), &token).await;
        assert!(told.is_complete(), "{told:?}");
        let context = FakeContext { key: key.into() };
        assert_eq!((verifier.flavor, told.token), (RPCSEC_GSS, vec![0xaa]));
        assert!(context.verifies(&told.sequence_window.to_be_bytes(), &verifier.body));
        Session { context, handle: told.handle }
    }
}

impl Session {
    pub(super) fn call<'a>(
        &self,
        (sequence, service): (u32, GssService),
        words: [u32; 4],
        arguments: &'a [u8],
    ) -> FakeCall<'a> {
        let Self { context, handle } = *self;
        let procedure = Procedure::Data;
        FakeCall { context, handle, procedure, sequence, service, words, arguments }
    }
}
