//! RPC over a simulated connection: a call is repeated over a new connection
//! until it is answered.

mod acceptor;
mod gss;

use crate::dice::Dice;
use crate::executor::{Executor, MILLISECOND, lock};
use crate::network::Network;
use crate::trace::Trace;
use bytes::Bytes;
pub use gss::GssClient;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use zgate_nfs_wire::PROGRAM;
use zgate_rpc::auth::OpaqueAuth;
use zgate_rpc::message::decode_reply;
use zgate_rpc::{AuthSys, CallHeader, Credential};
use zgate_xdr::{Decoder, Encode, Encoder};

/// The transport of a client.
pub struct Wire {
    /// Number of the client.
    pub client: usize,
    /// Name of the client in the trace.
    pub name: String,
    /// Virtual time.
    pub executor: Arc<Executor>,
    /// The trace.
    pub trace: Arc<Trace>,
    network: Arc<Network>,
    dice: Mutex<Dice>,
    link: Mutex<Option<u64>>,
    connections: AtomicU64,
    connecting: tokio::sync::Mutex<()>,
    next_xid: Mutex<u32>,
    /// Absent: the client's calls have AUTH_SYS.
    gss: Option<GssClient>,
}

/// Answer to a call.
pub struct Answer {
    /// The results, after the RPC header.
    pub body: Bytes,
    /// Number of times that it was sent.
    pub sent: u32,
    /// Time at which it was sent first.
    pub sent_at: u64,
}

impl Wire {
    /// A transport without a connection.
    #[must_use]
    pub fn new(
        client: usize,
        (executor, trace): (&Arc<Executor>, &Arc<Trace>),
        network: &Arc<Network>,
        seed: u64,
    ) -> Self {
        Self {
            client,
            name: format!("client{client}"),
            executor: Arc::clone(executor),
            trace: Arc::clone(trace),
            network: Arc::clone(network),
            dice: Mutex::new(Dice::new(seed, &format!("client{client}"))),
            link: Mutex::default(),
            connections: AtomicU64::new(0),
            connecting: tokio::sync::Mutex::default(),
            next_xid: Mutex::new((client as u32 + 1) << 24),
            gss: None,
        }
    }

    /// The same with Kerberos.
    #[must_use]
    pub fn with_kerberos(self, gss: Option<GssClient>) -> Self {
        Self { gss, ..self }
    }

    /// The client's address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        Network::address(self.client).0
    }

    /// Number of connections so far.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Acquire)
    }

    /// Sets what answers the server's calls.
    pub fn answer_callbacks(
        &self,
        answer: impl Fn(&[u8]) -> Option<Bytes> + Send + Sync + 'static,
    ) {
        self.network.answer_callbacks(self.client, Arc::new(answer));
    }

    /// The same for NFSv4.0, whose callbacks have the security of its calls (RFC 7530
    /// §3.3.3).
    pub fn answer_callbacks_as_called(
        &self,
        answer: impl Fn(&[u8]) -> Option<Bytes> + Send + Sync + 'static,
    ) {
        let Some(gss) = &self.gss else { return self.answer_callbacks(answer) };
        let acceptor = Arc::clone(&gss.acceptor);
        self.answer_callbacks(move |call| acceptor.answered(call, &answer));
    }

    /// A short pause before a request is made again.
    pub async fn pause(&self) {
        let nanos = lock(&self.dice).spread(50 * MILLISECOND, 1000 * MILLISECOND);
        self.executor.sleep(nanos).await;
    }

    async fn link(&self) -> u64 {
        let _one_at_a_time = self.connecting.lock().await;
        let known = *lock(&self.link);
        if let Some(link) = known {
            return link;
        }
        let link = self.network.connect(self.client).await;
        *lock(&self.link) = Some(link);
        self.connections.fetch_add(1, Ordering::AcqRel);
        link
    }

    /// Ends the client's connections: it restarts.
    pub fn break_connections(&self) {
        self.network.cut_client(self.client);
        *lock(&self.link) = None;
        if let Some(gss) = &self.gss {
            gss.restart();
        }
    }

    /// Ends a connection, so that the next call makes a new one.
    fn give_up(&self, link: u64) {
        let mut current = lock(&self.link);
        if *current == Some(link) {
            *current = None;
            drop(current);
            self.network.cut(link);
        }
    }

    fn next_xid(&self) -> u32 {
        let mut next = lock(&self.next_xid);
        *next += 1;
        *next
    }

    /// Calls a procedure until there is an answer.
    pub async fn call(&self, version: u32, procedure: u32, args: &[u8]) -> Answer {
        let xid = self.next_xid();
        let auth = AuthSys::default();
        let credential = Credential::Sys(auth).to_opaque();
        let verifier = OpaqueAuth::none();
        let header = CallHeader { xid, program: PROGRAM, version, procedure, credential, verifier };
        let mut e = Encoder::new();
        header.encode(&mut e);
        let mut record = e.finish().flatten().unwrap_or_default().to_vec();
        record.extend_from_slice(args);
        let record = Bytes::from(record);
        if let Some(gss) = &self.gss {
            // Boxed, so that calls without it do not grow.
            return Box::pin(self.call_in_context(gss, (xid, version), record)).await;
        }
        let (mut sent, mut first) = (0, None);
        loop {
            let link = self.link().await;
            sent += 1;
            let sent_at = *first.get_or_insert(self.executor.nanos());
            let answer = self.network.call(link, xid, record.clone()).await;
            let Ok(answer) = answer else {
                self.trace.note(&self.name, format_args!("call {xid:x} lost on #{link}"));
                self.give_up(link);
                continue;
            };
            let mut d = Decoder::new(&answer);
            match decode_reply(&mut d) {
                Ok(_) => return Answer { body: answer.slice(d.position()..), sent, sent_at },
                Err(why) => panic!("the server rejects a valid call: {why:?}"),
            }
        }
    }
}
