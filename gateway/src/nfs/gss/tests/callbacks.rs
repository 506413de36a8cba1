//! Callbacks under contexts of a mechanism of the tests, to a callback service that
//! uses the server's side of RFC 2203.

use super::gateway::{HANGS, TestMechanism};
use super::receiver::{CallbackReceiver, Conduct};
use crate::nfs::callback_connections::CallbackConnections;
use crate::nfs::gss::callbacks::ProtectedClient;
use crate::nfs::gss::identity::Users;
use crate::nfs::gss::kerberos::{Kerberos, Offer};
use crate::nfs::gss::limits::{
    FAREWELL_TIMEOUT, MAX_FAREWELLS, MAX_KEPT_CALLBACK_CONTEXTS, TICKET_TIMEOUT, TICKET_WORKERS,
};
use crate::nfs::gss::mechanism::BoxedContext;
use crate::nfs::gss::tickets::{BegunContext, CallbackMechanism, Progress, UnfinishedContext};
use futures_util::future::join_all;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Instant;
use zgate_nfs::callback_security::CallbackSecurity;
use zgate_nfs::runtime::CallbackFailure;
use zgate_rpc::CallHeader;
use zgate_rpc::auth::{GssCaller, GssIdentity, GssUser, OpaqueAuth};
use zgate_rpc::gss::Service;
use zgate_test_harness::gss::FakeContext;
use zgate_xdr::{Decoder, Encode, Encoder, Message};

const CB_PROGRAM: u32 = 0x4000_0000;

/// Tickets of the tests: the key of a context is the first byte of the client's
/// principal. A client whose name begins with [`HANGS`] waits for the KDC.
struct TestTickets {
    asked: AtomicUsize,
    gate: Mutex<mpsc::Receiver<()>>,
}

struct Unfinished(u8);

impl UnfinishedContext for Unfinished {
    fn proceed(self: Box<Self>, token: &[u8]) -> Result<Progress, String> {
        if token != b"answer" {
            return Err("not the client's token".to_owned());
        }
        let context: BoxedContext = Box::new(FakeContext { key: self.0.into() });
        Ok(Progress::Established { context, lifetime_seconds: 3600 })
    }
}

impl CallbackMechanism for TestTickets {
    fn begin(&self, own: &str, client: &str) -> Result<BegunContext, String> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        assert_eq!(own, "nfs/server@R");
        let key = client.as_bytes()[0];
        if key == HANGS {
            let _ = self.gate.lock().unwrap().recv();
        }
        if client.contains("unknown") {
            return Err("Server not found in Kerberos database".to_owned());
        }
        Ok(BegunContext { token: vec![key], rest: Box::new(Unfinished(key)) })
    }
}

struct Fixture {
    kerberos: Kerberos,
    tickets: Arc<TestTickets>,
    let_go: mpsc::Sender<()>,
    connections: CallbackConnections,
    started: Instant,
}

fn fixture() -> Fixture {
    fn nobody(_: &str) -> std::io::Result<Option<zgate_store::Caller>> {
        Ok(None)
    }
    let (let_go, gate) = mpsc::channel();
    let tickets = Arc::new(TestTickets { asked: AtomicUsize::new(0), gate: Mutex::new(gate) });
    let mechanism = TestMechanism { gate: Mutex::new(mpsc::channel().1) };
    let users = Users { by_principal: Default::default(), look_up: nobody };
    let callbacks = Arc::<TestTickets>::clone(&tickets);
    let offer = Offer::with(Box::new(mechanism), callbacks, users).unwrap();
    let kerberos = Kerberos::default();
    kerberos.replace(Some(offer));
    let connections = CallbackConnections::default();
    Fixture { kerberos, tickets, let_go, connections, started: Instant::now() }
}

fn security(principal: &str, service: Service) -> CallbackSecurity {
    let identity = GssIdentity {
        principal: principal.into(),
        acceptor: "nfs/server@R".into(),
        user: GssUser::Nobody,
    };
    CallbackSecurity::of(&GssCaller { service, identity: Arc::new(identity) }).unwrap()
}

fn call(xid: u32) -> Message {
    let header = CallHeader {
        xid,
        program: CB_PROGRAM,
        version: 1,
        procedure: 1,
        credential: OpaqueAuth::none(),
        verifier: OpaqueAuth::none(),
    };
    let mut e = Encoder::new();
    header.encode(&mut e);
    e.raw(b"arguments...");
    e.finish()
}

impl Fixture {
    /// Calls a client; returns the results.
    async fn call(
        &self,
        address: SocketAddr,
        security: &CallbackSecurity,
    ) -> Result<Vec<u8>, CallbackFailure> {
        let (connections, started) = (&self.connections, self.started);
        let client = ProtectedClient { address, security, connections, started };
        let raw = self.kerberos.call_client(client, 7, &call(7)).await?;
        let mut d = Decoder::new(&raw);
        assert_eq!(zgate_rpc::message::decode_reply(&mut d), Ok(7));
        Ok(d.rest().to_vec())
    }

    fn failed(&self, reason: &str) -> u64 {
        let mut failed = self.kerberos.failed_callbacks();
        failed.find(|(name, _)| *name == reason).unwrap().1
    }
}

const RESULTS: &[u8] = b"results.";

#[tokio::test]
async fn one_context_serves_the_calls_of_a_client() {
    for service in Service::ALL {
        let (fixture, receiver) = (fixture(), CallbackReceiver::start(0x33).await);
        let security = security("3fs/c@R", service);
        for _ in 0..3 {
            let results = fixture.call(receiver.address, &security).await;
            assert_eq!(results.as_deref(), Ok(RESULTS), "{service:?}");
        }
        assert_eq!((receiver.begun(), receiver.called()), (1, 3));
        assert_eq!(fixture.kerberos.callback_contexts(), 1);
        assert_eq!(fixture.tickets.asked.load(Ordering::Relaxed), 1);
    }
}

/// As Linux does while rpc.svcgssd works on a token.
#[tokio::test]
async fn a_token_is_sent_again_when_the_connection_is_closed() {
    let (fixture, receiver) = (fixture(), CallbackReceiver::start(0x33).await);
    receiver.conduct(Conduct::ClosesAtTokens);
    let security = security("3fs/c@R", Service::Integrity);
    assert!(fixture.call(receiver.address, &security).await.is_ok());
    assert_eq!((receiver.connections(), receiver.begun()), (4, 1));
    assert_eq!(fixture.tickets.asked.load(Ordering::Relaxed), 1, "with the same ticket");
}

#[tokio::test]
async fn a_lost_context_is_made_again_once() {
    let (fixture, receiver) = (fixture(), CallbackReceiver::start(0x33).await);
    let security = security("3fs/c@R", Service::Integrity);
    assert!(fixture.call(receiver.address, &security).await.is_ok());
    receiver.forget_contexts();
    assert!(fixture.call(receiver.address, &security).await.is_ok());
    assert_eq!(receiver.begun(), 2);
    receiver.conduct(Conduct::KnowsNoContext);
    let lost = fixture.call(receiver.address, &security).await;
    assert_eq!(lost, Err(CallbackFailure::Unreachable));
    assert_eq!((receiver.begun(), fixture.failed("refused")), (3, 1), "once, not without end");
}

#[tokio::test]
async fn changed_and_forged_replies_have_no_results() {
    let (fixture, receiver) = (fixture(), CallbackReceiver::start(0x33).await);
    for service in [Service::Integrity, Service::Privacy] {
        let security = security("3fs/c@R", service);
        assert!(fixture.call(receiver.address, &security).await.is_ok());
        let before = fixture.failed("reply");
        for conduct in [Conduct::ChangesResults, Conduct::ChangesVerifier] {
            receiver.conduct(conduct);
            let changed = fixture.call(receiver.address, &security).await;
            assert_eq!(changed, Err(CallbackFailure::Unreachable), "{service:?} {conduct:?}");
        }
        assert_eq!(fixture.failed("reply") - before, 2);
        receiver.conduct(Conduct::Good);
        assert!(fixture.call(receiver.address, &security).await.is_ok());
    }
}

/// Somebody at the client's address who does not have the client's key.
#[tokio::test]
async fn whoever_lacks_the_clients_key_gets_no_call() {
    let (fixture, receiver) = (fixture(), CallbackReceiver::start(0x44).await);
    let security = security("3fs/c@R", Service::Privacy);
    let failed = fixture.call(receiver.address, &security).await;
    assert_eq!(failed, Err(CallbackFailure::Unreachable));
    assert_eq!((receiver.called(), fixture.failed("reply")), (0, 1));
    receiver.conduct(Conduct::RefusesTokens);
    let failed = fixture.call(receiver.address, &security).await;
    assert_eq!(failed, Err(CallbackFailure::Unreachable));
    assert_eq!((receiver.called(), fixture.failed("refused")), (0, 1));
}

#[tokio::test]
async fn without_a_ticket_nobody_is_connected_to() {
    let (fixture, receiver) = (fixture(), CallbackReceiver::start(0x33).await);
    let security = security("3unknown@R", Service::Privacy);
    let failed = fixture.call(receiver.address, &security).await;
    assert_eq!(failed, Err(CallbackFailure::Unreachable));
    assert_eq!((receiver.connections(), fixture.failed("ticket")), (0, 1));
    fixture.kerberos.replace(None);
    let failed = fixture.call(receiver.address, &security).await;
    assert_eq!(failed, Err(CallbackFailure::Unreachable));
    assert_eq!(fixture.failed("ticket"), 2, "Kerberos is off");
}

/// A KDC that is silent: ten thousand clients have no callback path in time, no
/// more threads wait than are meant for it, and the clients with a context are
/// called as ever.
#[tokio::test]
async fn a_silent_kdc_costs_workers_of_its_own_and_a_bounded_time() {
    let (fixture, receiver) = (fixture(), CallbackReceiver::start(0x33).await);
    let known = security("3fs/c@R", Service::Integrity);
    assert!(fixture.call(receiver.address, &known).await.is_ok());

    let silent = security("\u{2}c@R", Service::Integrity);
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    let calls = (0..10_000_u32).map(|number| {
        let address = SocketAddr::from(([10, 0, (number >> 8) as u8, number as u8], 9));
        fixture.call(address, &silent)
    });
    let failed = join_all(calls).await;
    assert!(begun.elapsed() < TICKET_TIMEOUT + TICKET_TIMEOUT / 10, "{:?}", begun.elapsed());
    tokio::time::resume();
    assert!(failed.iter().all(|failed| *failed == Err(CallbackFailure::TimedOut)));
    assert_eq!(fixture.failed("kdc_silent"), 10_000);
    let asked = || fixture.tickets.asked.load(Ordering::Relaxed);
    while asked() < 1 + TICKET_WORKERS {
        tokio::task::yield_now().await;
    }
    assert_eq!(asked(), 1 + TICKET_WORKERS);

    assert!(fixture.call(receiver.address, &known).await.is_ok(), "has a context");
    for _ in 0..TICKET_WORKERS {
        fixture.let_go.send(()).unwrap();
    }
    let other = security("3fs/d@R", Service::Integrity);
    assert!(fixture.call(receiver.address, &other).await.is_ok(), "the KDC answers again");
}

#[tokio::test]
async fn kept_contexts_are_bounded_and_end_with_their_clients() {
    let (fixture, receiver) = (fixture(), CallbackReceiver::start(0x33).await);
    let many = MAX_KEPT_CALLBACK_CONTEXTS + 20;
    let clients: Vec<_> = (0..many).map(|_| security("3fs/c@R", Service::None)).collect();
    for client in &clients {
        assert!(fixture.call(receiver.address, client).await.is_ok());
    }
    let kept = |client: &&CallbackSecurity| client.context(0).is_some();
    assert_eq!(clients.iter().filter(kept).count(), MAX_KEPT_CALLBACK_CONTEXTS);
    // The others are called in contexts of their own.
    let last = clients.last().unwrap();
    assert!(last.context(0).is_none());
    assert!(fixture.call(receiver.address, last).await.is_ok());
    drop(clients);
    let next = security("3fs/c@R", Service::None);
    assert!(fixture.call(receiver.address, &next).await.is_ok());
    assert!(next.context(0).is_some(), "room again");
    assert!(next.context(2 * 3600).is_none(), "it has expired");
}

/// Lets others run until this holds.
async fn until(holds: impl Fn() -> bool) {
    while !holds() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_client_is_told_that_a_context_has_ended() {
    for service in Service::ALL {
        let (fixture, receiver) = (fixture(), CallbackReceiver::start(0x33).await);
        let client = security("3fs/c@R", service);
        assert!(fixture.call(receiver.address, &client).await.is_ok());
        assert!(fixture.call(receiver.address, &client).await.is_ok());
        assert_eq!((receiver.known(), receiver.ended()), (1, 0), "it is in use");
        drop(client);
        until(|| receiver.ended() == 1).await;
        assert_eq!((receiver.known(), receiver.called()), (0, 2), "{service:?}");
    }
}

/// Clients that end all at once and answer nothing any more hold a bounded number of
/// connections for a bounded time; then others are told again.
#[tokio::test]
async fn ends_that_nobody_answers_are_bounded() {
    let (fixture, receiver) = (fixture(), CallbackReceiver::start(0x33).await);
    let clients: Vec<_> =
        (0..2 * MAX_FAREWELLS).map(|_| security("3fs/c@R", Service::None)).collect();
    for client in &clients {
        assert!(fixture.call(receiver.address, client).await.is_ok());
    }
    receiver.conduct(Conduct::IgnoresEnds);
    let before = receiver.connections();
    drop(clients);
    until(|| receiver.ended() == MAX_FAREWELLS).await;
    assert_eq!(receiver.connections() - before, MAX_FAREWELLS);

    let last = security("3fs/c@R", Service::None);
    assert!(fixture.call(receiver.address, &last).await.is_ok(), "callbacks go on");
    let other = security("3fs/c@R", Service::None);
    assert!(fixture.call(receiver.address, &other).await.is_ok());
    drop(last);
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(receiver.ended(), MAX_FAREWELLS, "all are waited for");
    tokio::time::pause();
    tokio::time::sleep(FAREWELL_TIMEOUT).await;
    tokio::time::resume();
    drop(other);
    until(|| receiver.ended() == MAX_FAREWELLS + 1).await;
}
