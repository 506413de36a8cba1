//! Connections between clients and the server: delay, partitions, breaks with
//! requests in flight, ends that only one side knows of.

mod intruder;
mod rdma;
mod secure;
mod stranger;
mod stream;
mod tap;
mod tls;

use crate::client::Delegations;
use crate::dice::Dice;
use crate::executor::{Domain, Executor, MILLISECOND, SECOND, lock};
use crate::gateway::Gateway;
use crate::history::History;
use crate::invariant::{ANSWER_SECONDS, Invariant};
use crate::loader::LOADER;
use crate::mutant::Mutant;
use crate::trace::Trace;
use bytes::Bytes;
use rdma::Nic;
use secure::Secure;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, OnceLock, Weak};
pub use stream::LoaderDial;
use stream::Stream;
pub(crate) use stream::{is_reply, next_record, xid_of};
pub use tls::Pipe;
use tls::TlsNetwork;
use tokio::sync::oneshot;
use zgate_nfs::Peer;
use zgate_nfs::runtime::{CallbackFailure, CallbackPath, ConnectionId, Protection};
use zgate_rpc::gss::fake::FakeContext;

/// Longest usual time of a message.
const USUAL_NANOS: u64 = 2 * MILLISECOND;
/// Longest time until the server learns of a broken connection.
const HALF_OPEN_NANOS: u64 = 20 * SECOND;
/// Time limit of the server's calls, as in the gateway.
const CALLBACK_NANOS: u64 = 5 * SECOND;

/// The connection ended before the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

struct Link {
    client: usize,
    server: u32,
    alive: bool,
    /// Latest arrival so far: one connection keeps the order.
    last_arrival: u64,
    waiting: BTreeMap<u32, oneshot::Sender<Bytes>>,
    /// Both ends of an RDMA connection; absent over TCP.
    nic: Option<Box<Nic>>,
    /// The loader's end, if it is the client.
    stream: Option<Stream>,
    /// TLS of the connection, if its client has it.
    secure: Option<Box<Secure>>,
}

struct Inside {
    links: BTreeMap<u64, Link>,
    next: u64,
    partitioned_until: BTreeMap<usize, u64>,
    dice: Dice,
    faults_end: Option<u64>,
    callbacks: BTreeMap<usize, CallbackAnswer>,
    /// Clients that connect over RDMA.
    by_rdma: BTreeSet<usize>,
    /// Keys of the latest contexts of clients with Kerberos.
    context_keys: BTreeMap<usize, FakeContext>,
    intruder: Dice,
    /// Bytes of the loader's next reply that arrive before its connection breaks.
    cut_reply: Option<usize>,
    /// Connections of the loader that were lost.
    loader_lost: u64,
    /// TLS, if the clients have it.
    tls: Option<Box<TlsNetwork>>,
}

/// A client's end of its back channel.
type CallbackAnswer = Arc<dyn Fn(&[u8]) -> Option<Bytes> + Send + Sync>;

fn peer_of(client: usize, number: u64, rdma: bool) -> Peer {
    let (address, port) = Network::address(client);
    // Its system chooses a port for each connection.
    let port = if client == LOADER { 1024 + (number % 60_000) as u16 } else { port };
    Peer {
        address,
        port,
        connection: ConnectionId(number),
        rdma,
        protection: Protection::Plain,
        kernel_encrypts: false,
        certificate: None,
    }
}

/// The network.
pub struct Network {
    executor: Arc<Executor>,
    trace: Arc<Trace>,
    history: Arc<History>,
    inside: Mutex<Inside>,
    gateway: OnceLock<Weak<Gateway>>,
    mutant: Option<Mutant>,
}

impl Network {
    /// A network without connections.
    #[must_use]
    pub fn new(
        executor: &Arc<Executor>,
        history: &Arc<History>,
        trace: &Arc<Trace>,
        seed: u64,
        mutant: Option<Mutant>,
    ) -> Arc<Self> {
        let inside = Inside {
            links: BTreeMap::new(),
            next: 1,
            partitioned_until: BTreeMap::new(),
            dice: Dice::new(seed, "network"),
            faults_end: None,
            callbacks: BTreeMap::new(),
            by_rdma: BTreeSet::new(),
            context_keys: BTreeMap::new(),
            intruder: Dice::new(seed, "intruder"),
            cut_reply: None,
            loader_lost: 0,
            tls: None,
        };
        Arc::new(Self {
            executor: Arc::clone(executor),
            trace: Arc::clone(trace),
            history: Arc::clone(history),
            inside: Mutex::new(inside),
            gateway: OnceLock::new(),
            mutant,
        })
    }

    /// The server's side. It holds this one, which must not keep it.
    fn gateway(&self) -> Option<Arc<Gateway>> {
        self.gateway.get().and_then(Weak::upgrade)
    }

    /// Sets the server's side.
    pub fn attach(&self, gateway: &Arc<Gateway>) {
        // A second call would be a programming error; the first one stays.
        let _ = self.gateway.set(Arc::downgrade(gateway));
    }

    fn delay(&self) -> u64 {
        lock(&self.inside).dice.spread(10_000, USUAL_NANOS)
    }

    /// Nothing passes between the client and the server for so long.
    pub fn partition(&self, client: usize, nanos: u64) {
        lock(&self.inside).partitioned_until.insert(client, self.executor.nanos() + nanos);
    }

    /// The faults are over: from now on answers come in time.
    pub fn heal(self: &Arc<Self>) {
        let damaged = {
            let mut inside = lock(&self.inside);
            inside.partitioned_until.clear();
            inside.cut_reply = None;
            inside.faults_end = Some(self.executor.nanos());
            Self::release(&mut inside)
        };
        damaged.into_iter().for_each(|link| self.cut(link));
    }

    /// A client connects over RDMA from now on.
    pub fn use_rdma(&self, client: usize) {
        lock(&self.inside).by_rdma.insert(client);
    }

    /// The address of a client, and the port that it uses for all connections.
    pub fn address(client: usize) -> (IpAddr, u16) {
        (Ipv4Addr::new(192, 0, 2, 10 + client as u8).into(), 700 + client as u16)
    }

    /// The client at an address.
    #[must_use]
    pub fn client_at(&self, address: IpAddr) -> Option<usize> {
        let inside = lock(&self.inside);
        inside.callbacks.keys().copied().find(|client| Self::address(*client).0 == address)
    }

    /// True while the server knows no end of the connection.
    #[must_use]
    pub fn connected(&self, link: ConnectionId) -> bool {
        lock(&self.inside).links.contains_key(&link.0)
    }

    /// Waits for the end of a partition.
    pub async fn passage(&self, client: usize) {
        loop {
            let until = lock(&self.inside).partitioned_until.get(&client).copied().unwrap_or(0);
            if self.executor.nanos() >= until {
                return;
            }
            // In steps: a partition may end before its time.
            self.executor.sleep(SECOND / 2).await;
        }
    }

    /// Connects a client, as soon as there is a server.
    pub async fn connect(self: &Arc<Self>, client: usize) -> u64 {
        loop {
            self.executor.sleep(2 * self.delay()).await;
            self.passage(client).await;
            if let Some(number) = self.link_to_server(client) {
                let has_tls = lock(&self.inside).tls.is_some();
                // Boxed, so that clients without it do not grow.
                if !has_tls || Box::pin(self.goes_into_tls(client, number)).await {
                    return number;
                }
            } else {
                self.executor.sleep(SECOND / 5).await;
            }
        }
    }

    /// A connection to the server, if there is one.
    fn link_to_server(&self, client: usize) -> Option<u64> {
        let server = self.gateway()?.running()?;
        let mut inside = lock(&self.inside);
        let number = inside.next;
        inside.next += 1;
        let waiting = BTreeMap::new();
        let by_rdma = inside.by_rdma.contains(&client);
        let nic = by_rdma.then(|| Box::new(Nic::new(&mut inside.dice)));
        let (alive, last_arrival, stream, secure) = (true, 0, None, None);
        let link = Link { client, server, alive, last_arrival, waiting, nic, stream, secure };
        inside.links.insert(number, link);
        drop(inside);
        let how = if by_rdma { " by RDMA" } else { "" };
        self.trace.note("network", format_args!("client{client} connects: #{number}{how}"));
        Some(number)
    }

    /// Breaks a client's connections. What the client sent may still arrive;
    /// the server learns of it later.
    pub fn cut_client(self: &Arc<Self>, client: usize) {
        let links: Vec<u64> = {
            let inside = lock(&self.inside);
            let of = inside.links.iter().filter(|(_, link)| link.client == client && link.alive);
            of.map(|(number, _)| *number).collect()
        };
        links.into_iter().for_each(|link| self.cut(link));
    }

    /// Breaks a connection.
    pub fn cut(self: &Arc<Self>, number: u64) {
        let (waiting, unknown) = {
            let mut inside = lock(&self.inside);
            let unknown = inside.dice.spread(MILLISECOND, HALF_OPEN_NANOS);
            let arrives = inside.tls.as_mut().is_some_and(|tls| tls.dice.once_in(2));
            let Some(link) = inside.links.get_mut(&number) else { return };
            if !std::mem::replace(&mut link.alive, false) {
                return;
            }
            if let Some(nic) = &mut link.nic {
                nic.end();
            }
            if let Some(secure) = &mut link.secure {
                secure.end(arrives);
            }
            let waiting = std::mem::take(&mut link.waiting);
            if let Some(stream) = &mut link.stream {
                stream.close();
                inside.loader_lost += 1;
            }
            (waiting, unknown)
        };
        self.trace.note("network", format_args!("#{number} breaks"));
        drop(waiting);
        let me = Arc::clone(self);
        self.executor.spawn(Domain::Outside, async move {
            me.executor.sleep(unknown).await;
            let Some(link) = lock(&me.inside).links.remove(&number) else { return };
            if let Some(gateway) = me.gateway() {
                gateway.connection_closed(link.server, ConnectionId(number));
            }
        });
    }

    /// The server of this start is gone; its clients learn it when they send.
    pub fn server_ended(&self, server: u32) {
        self.history.server_ended();
        let (mut ended, mut loaders) = (Vec::new(), 0);
        let mut inside = lock(&self.inside);
        inside.links.retain(|_, link| {
            if link.server == server {
                ended.push(std::mem::take(&mut link.waiting));
                if let Some(stream) = &mut link.stream {
                    stream.close();
                    loaders += 1;
                }
            }
            link.server != server
        });
        inside.loader_lost += loaders;
        drop(inside);
        drop(ended);
    }

    /// Sets what answers the server's calls to a client.
    pub fn answer_callbacks(&self, client: usize, answer: CallbackAnswer) {
        lock(&self.inside).callbacks.insert(client, answer);
    }

    /// The server calls a client over one of its connections (NFSv4.1), or over
    /// one that it makes for the call (NFSv4.0).
    ///
    /// # Errors
    /// If the connection does not exist, or there is no answer in time.
    pub async fn callback(
        self: &Arc<Self>,
        path: CallbackPath,
        call: Bytes,
    ) -> Result<Bytes, CallbackFailure> {
        let answer = self.executor.within(CALLBACK_NANOS, self.called(&path, &call)).await;
        answer.unwrap_or(Err(CallbackFailure::TimedOut))
    }

    async fn called(
        self: &Arc<Self>,
        path: &CallbackPath,
        call: &[u8],
    ) -> Result<Bytes, CallbackFailure> {
        if let CallbackPath::Connection(number) = path
            && let Some(server) = self.server_by_tls(number.0)
        {
            return self.called_by_tls(server, number.0, call).await;
        }
        let client = {
            let inside = lock(&self.inside);
            match path {
                CallbackPath::Connection(number) => {
                    inside.links.get(&number.0).ok_or(CallbackFailure::Unreachable)?.client
                }
                CallbackPath::Address(address) | CallbackPath::Protected(address, _) => {
                    let mut known = inside.callbacks.keys().copied();
                    known
                        .find(|client| Self::address(*client).0 == address.ip())
                        .ok_or(CallbackFailure::Unreachable)?
                }
            }
        };
        self.executor.sleep(self.delay()).await;
        self.passage(client).await;
        let answer = {
            let inside = lock(&self.inside);
            let alive = match path {
                CallbackPath::Connection(number) => {
                    inside.links.get(&number.0).is_some_and(|link| link.alive)
                }
                CallbackPath::Address(_) | CallbackPath::Protected(..) => true,
            };
            let by_rdma = match path {
                CallbackPath::Connection(number) => {
                    inside.links.get(&number.0).is_some_and(|link| link.nic.is_some())
                }
                CallbackPath::Address(_) | CallbackPath::Protected(..) => false,
            };
            let answer = inside.callbacks.get(&client).filter(|_| alive).cloned();
            answer.map(|answer| (answer, by_rdma))
        };
        if let (LOADER, CallbackPath::Connection(number)) = (client, path) {
            let reply = self.call_loader(number.0, call).await;
            self.executor.sleep(self.delay()).await;
            self.passage(client).await;
            return Ok(reply);
        }
        // The server does not know yet that the connection is gone.
        let Some((answer, by_rdma)) = answer else { return std::future::pending().await };
        let framed = by_rdma.then(|| rdma::framed_callback(call)).flatten();
        let call = framed.as_deref().unwrap_or(call);
        let reply = match self.mutant {
            // Understood, and without effect.
            Some(Mutant::RecallLost) => Delegations::default().answer(call),
            _ => answer(call),
        };
        let reply = reply.ok_or(CallbackFailure::Unreachable)?;
        self.executor.sleep(self.delay()).await;
        self.passage(client).await;
        Ok(reply)
    }

    /// Sends a call and waits for its reply or the end of the connection.
    ///
    /// # Errors
    /// [`Lost`] if the connection has ended, or no answer came in time.
    pub async fn call(
        self: &Arc<Self>,
        number: u64,
        xid: u32,
        record: Bytes,
    ) -> Result<Bytes, Lost> {
        let (by_rdma, by_tls) = {
            let inside = lock(&self.inside);
            let link = inside.links.get(&number);
            (link.is_some_and(|link| link.nic.is_some()), link.is_some_and(|l| l.secure.is_some()))
        };
        if by_rdma {
            return self.call_by_rdma(number, xid, record).await;
        }
        if by_tls {
            // Boxed, so that calls without it do not grow.
            return Box::pin(self.call_by_tls(number, xid, record)).await;
        }
        let sent = self.executor.nanos();
        let (tell, told) = oneshot::channel();
        let (client, arrival, survives) = {
            let mut inside = lock(&self.inside);
            let (delay, survives) =
                (inside.dice.spread(10_000, USUAL_NANOS), inside.dice.once_in(2));
            let link = inside.links.get_mut(&number).filter(|link| link.alive).ok_or(Lost)?;
            link.waiting.insert(xid, tell);
            link.last_arrival = link.last_arrival.max(sent + delay);
            (link.client, link.last_arrival, survives)
        };
        let me = Arc::clone(self);
        self.executor.spawn(Domain::Outside, async move {
            me.executor.sleep_until(arrival).await;
            me.passage(client).await;
            me.arrive(number, xid, record, survives);
        });
        self.answer_within_limit(number, (xid, sent), told).await
    }

    /// Waits for the answer to a call that was sent at this time.
    async fn answer_within_limit(
        &self,
        number: u64,
        (xid, sent): (u32, u64),
        told: oneshot::Receiver<Bytes>,
    ) -> Result<Bytes, Lost> {
        match self.executor.within(ANSWER_SECONDS * SECOND, told).await {
            Some(answer) => answer.map_err(|_| Lost),
            None => {
                self.unanswered(number, xid, sent);
                Err(Lost)
            }
        }
    }

    /// Checks whether a request that got no answer should have had one.
    fn unanswered(&self, number: u64, xid: u32, sent: u64) {
        let (alive, since) = {
            let inside = lock(&self.inside);
            let alive = inside.links.get(&number).is_some_and(|link| link.alive);
            (alive, inside.faults_end.map(|end| sent.max(end)))
        };
        let late = since.is_some_and(|since| {
            self.executor.nanos().saturating_sub(since) >= ANSWER_SECONDS * SECOND
        });
        if alive && late {
            self.history.fail(
                Invariant::BoundedAnswer,
                format!("request {xid:x} on #{number} has no answer after {ANSWER_SECONDS} s"),
            );
        }
    }

    /// The peer of a connection, for the server.
    fn peer(&self, number: u64) -> Option<Peer> {
        let inside = lock(&self.inside);
        let link = inside.links.get(&number)?;
        Some(peer_of(link.client, number, link.nic.is_some()))
    }

    /// A request reaches the server.
    fn arrive(self: &Arc<Self>, number: u64, xid: u32, record: Bytes, survives: bool) {
        let Some(gateway) = self.gateway() else { return };
        let (client, server) = {
            let inside = lock(&self.inside);
            let Some(link) = inside.links.get(&number) else { return };
            if !link.alive && !survives {
                return;
            }
            (link.client, link.server)
        };
        let peer = peer_of(client, number, false);
        let me = Arc::clone(self);
        self.executor.spawn(Domain::Server(server), async move {
            let replay = me.intrude(&gateway, (server, client), &peer, &record).await;
            let Some(reply) = gateway.answer(server, peer, record).await else { return };
            me.intrude_later(replay);
            let sender = Arc::clone(&me);
            me.executor.spawn(Domain::Outside, async move {
                sender.reply(number, client, xid, reply).await;
            });
        });
    }

    /// A reply reaches the client, if the connection still exists.
    async fn reply(self: &Arc<Self>, number: u64, client: usize, xid: u32, reply: Bytes) {
        if self.mutant == Some(Mutant::ReplyLost) && lock(&self.inside).dice.once_in(40) {
            return;
        }
        self.executor.sleep(self.delay()).await;
        self.passage(client).await;
        if self.reply_to_loader(number, client, xid, reply.clone()) {
            return;
        }
        let waiting = {
            let mut inside = lock(&self.inside);
            let link = inside.links.get_mut(&number).filter(|link| link.alive);
            link.and_then(|link| link.waiting.remove(&xid))
        };
        if let Some(waiting) = waiting {
            // The client may have given up.
            let _ = waiting.send(reply);
        }
    }
}
