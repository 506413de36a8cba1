//! TCP connections between hosts and the target: they keep the order of PDUs,
//! break with some of them under way, and end at one side first.

use crate::dice::Dice;
use crate::executor::{Domain, Executor, MILLISECOND, SECOND, lock};
use crate::gateway::Gateway;
use crate::network::Network;
use crate::trace::Trace;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use zgate_iscsi::framing::{Decoder, Encoder};
use zgate_iscsi::pdu::{Frame, Outgoing};
use zgate_store::Payload;

/// Longest usual time of a PDU.
const USUAL_NANOS: u64 = 2 * MILLISECOND;
/// Longest time until the target learns of a broken connection.
const HALF_OPEN_NANOS: u64 = 20 * SECOND;
/// Largest data segment.
const MAX_SEGMENT_BYTES: u32 = 1 << 20;

/// A PDU under way, or the end of the connection behind it.
struct Sent {
    arrival: u64,
    frame: Option<Frame>,
}

struct Link {
    host: usize,
    server: u32,
    alive: bool,
    /// PDUs under way when the connection broke still arrive.
    survives: bool,
    up: UnboundedSender<Sent>,
    down: UnboundedSender<Sent>,
}

struct Inside {
    links: BTreeMap<u64, Link>,
    next: u64,
    dice: Dice,
    /// One for all: what it allocates for headers is large.
    encoder: Encoder,
}

/// All connections.
pub struct Wires {
    executor: Arc<Executor>,
    trace: Arc<Trace>,
    network: Arc<Network>,
    gateway: OnceLock<Weak<Gateway>>,
    inside: Mutex<Inside>,
}

/// A PDU through its bytes on the wire.
fn carried(encoder: &mut Encoder, pdu: Outgoing) -> Frame {
    let mut decoder = Decoder::new(MAX_SEGMENT_BYTES);
    let mut pieces = Vec::new();
    encoder.encode(pdu, &mut pieces).unwrap_or_else(|error| panic!("a PDU: {error}"));
    for piece in pieces {
        match piece {
            Payload::Bytes(bytes) => decoder.feed(bytes),
            Payload::Span(_) => panic!("a disk in memory has no spans"),
        }
    }
    match decoder.poll() {
        Ok(Some(frame)) => frame,
        other => panic!("a PDU that cannot be read: {other:?}"),
    }
}

impl Wires {
    /// No connections.
    #[must_use]
    pub fn new(
        (executor, trace): (&Arc<Executor>, &Arc<Trace>),
        network: &Arc<Network>,
        seed: u64,
    ) -> Arc<Self> {
        let dice = Dice::new(seed, "wires");
        Arc::new(Self {
            executor: Arc::clone(executor),
            trace: Arc::clone(trace),
            network: Arc::clone(network),
            gateway: OnceLock::new(),
            inside: Mutex::new(Inside {
                links: BTreeMap::new(),
                next: 1,
                dice,
                encoder: Encoder::new(),
            }),
        })
    }

    /// The server's side. It holds this one, which must not keep it.
    fn gateway(&self) -> Option<Arc<Gateway>> {
        self.gateway.get().and_then(Weak::upgrade)
    }

    /// Sets the target's side.
    pub fn attach(&self, gateway: &Arc<Gateway>) {
        // A second call would be a programming error; the first one stays.
        let _ = self.gateway.set(Arc::downgrade(gateway));
    }

    /// Returns whether a write of the running server began before this time.
    #[must_use]
    pub fn writes_since_before(&self, nanos: u64) -> bool {
        let target = self.gateway().and_then(|gateway| gateway.target());
        target.is_some_and(|target| target.writes_since_before(nanos))
    }

    /// Connects a host, as soon as there is a server.
    pub async fn connect(self: &Arc<Self>, host: usize) -> (u64, UnboundedReceiver<Frame>) {
        loop {
            let delay = lock(&self.inside).dice.spread(20_000, 2 * USUAL_NANOS);
            self.executor.sleep(delay).await;
            self.network.passage(host).await;
            let target = self.gateway().and_then(|gateway| gateway.target());
            let Some(target) = target else {
                self.executor.sleep(SECOND / 5).await;
                continue;
            };
            let (up, to_target) = unbounded_channel();
            let (down, to_host) = unbounded_channel();
            let server = target.server;
            let number = {
                let mut inside = lock(&self.inside);
                let number = inside.next;
                inside.next += 1;
                let link = Link { host, server, alive: true, survives: false, up, down };
                inside.links.insert(number, link);
                number
            };
            let (arrive, arrived) = unbounded_channel();
            let (reach, reached) = unbounded_channel();
            let pump = Arc::clone(self).pump(number, host, to_target, arrive);
            self.executor.spawn(Domain::Outside, pump);
            let pump = Arc::clone(self).pump(number, host, to_host, reach);
            self.executor.spawn(Domain::Outside, pump);
            self.executor.spawn(Domain::Server(server), target.serve(number, host, arrived));
            self.trace.note("wires", format_args!("host{host} connects: #{number}"));
            return (number, reached);
        }
    }

    /// Carries the PDUs of one direction.
    async fn pump(
        self: Arc<Self>,
        number: u64,
        host: usize,
        mut sent: UnboundedReceiver<Sent>,
        deliver: UnboundedSender<Frame>,
    ) {
        while let Some(Sent { arrival, frame }) = sent.recv().await {
            self.executor.sleep_until(arrival).await;
            self.network.passage(host).await;
            let Some(frame) = frame else { break };
            let arrives = {
                let inside = lock(&self.inside);
                inside.links.get(&number).is_some_and(|link| link.alive || link.survives)
            };
            if !arrives || deliver.send(frame).is_err() {
                break;
            }
        }
    }

    fn send(&self, number: u64, to_target: bool, pdu: Option<Outgoing>) {
        let mut inside = lock(&self.inside);
        let frame = pdu.map(|pdu| carried(&mut inside.encoder, pdu));
        let delay = inside.dice.spread(10_000, USUAL_NANOS);
        let arrival = self.executor.nanos() + delay;
        if let Some(link) = inside.links.get(&number).filter(|link| link.alive) {
            let way = if to_target { &link.up } else { &link.down };
            // The other side may be gone.
            let _ = way.send(Sent { arrival, frame });
        }
    }

    /// Sends a PDU to the target.
    pub fn send_up(&self, number: u64, pdu: Outgoing) {
        self.send(number, true, Some(pdu));
    }

    /// Sends a PDU to the host.
    pub fn send_down(&self, number: u64, pdu: Outgoing) {
        self.send(number, false, Some(pdu));
    }

    /// The target closes a connection, behind what it has sent.
    pub fn close_down(&self, number: u64) {
        self.send(number, false, None);
    }

    /// Breaks the connections of a host.
    pub fn cut_host(self: &Arc<Self>, host: usize) {
        let links: Vec<u64> = {
            let inside = lock(&self.inside);
            let of = inside.links.iter().filter(|(_, link)| link.host == host && link.alive);
            of.map(|(number, _)| *number).collect()
        };
        links.into_iter().for_each(|link| self.cut(link));
    }

    /// Breaks a connection: the host knows at once, the target later.
    pub fn cut(self: &Arc<Self>, number: u64) {
        let unknown = {
            let mut inside = lock(&self.inside);
            let (unknown, survives) =
                (inside.dice.spread(MILLISECOND, HALF_OPEN_NANOS), inside.dice.once_in(2));
            let Some(link) = inside.links.get_mut(&number).filter(|link| link.alive) else {
                return;
            };
            (link.alive, link.survives) = (false, survives);
            // The pump to the host ends.
            link.down = unbounded_channel().0;
            unknown
        };
        self.trace.note("wires", format_args!("#{number} breaks"));
        let me = Arc::clone(self);
        self.executor.spawn(Domain::Outside, async move {
            me.executor.sleep(unknown).await;
            lock(&me.inside).links.remove(&number);
        });
    }

    /// The server of this start is gone.
    pub fn server_ended(&self, server: u32) {
        lock(&self.inside).links.retain(|_, link| link.server != server);
    }
}
