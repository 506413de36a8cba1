//! TCP connections between hosts and the target: they keep the order of PDUs,
//! break with some of them under way, and end at one side first.

use super::HostTransport;
use super::iser::{self, HostMemory, Intruded};
use crate::dice::Dice;
use crate::executor::{Domain, Executor, MILLISECOND, SECOND, lock};
use crate::gateway::Gateway;
use crate::history::History;
use crate::invariant::Invariant;
use crate::mutant::Mutant;
use crate::network::Network;
use crate::trace::Trace;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use zgate_iscsi::framing::{Decoder, Digests, Encoder, FramingError};
use zgate_iscsi::iser::{Header, Piece, RdmaWrite};
use zgate_iscsi::pdu::{Frame, Itt, Opcode, Outgoing};
use zgate_store::Payload;

/// Longest usual time of a PDU.
const USUAL_NANOS: u64 = 2 * MILLISECOND;
/// Longest time until the target learns of a broken connection.
const HALF_OPEN_NANOS: u64 = 20 * SECOND;
/// Largest data segment.
const MAX_SEGMENT_BYTES: u32 = 1 << 20;

/// A PDU that has arrived; over iSER with the header of its message.
pub(super) struct Arrived {
    pub(super) frame: Frame,
    pub(super) header: Option<Header>,
}

/// Something that goes over a connection.
enum Item {
    Pdu(Arrived),
    /// A read of the host's memory, and where its data goes.
    Read {
        from: Piece,
        tell: oneshot::Sender<Bytes>,
    },
    /// Writes of the host's memory, and a message behind them.
    Send {
        writes: Vec<RdmaWrite>,
        message: Vec<u8>,
    },
    End,
    /// Lost on its way.
    Nothing,
}

/// Something under way.
struct Sent {
    arrival: u64,
    item: Item,
}

struct Link {
    host: usize,
    server: u32,
    alive: bool,
    /// PDUs under way when the connection broke still arrive.
    survives: bool,
    /// PDUs have header and data digests.
    has_digests: bool,
    /// The host recovers what is lost on the way.
    recovers: bool,
    /// Registered memory of the host; absent over TCP.
    memory: Option<HostMemory>,
    up: UnboundedSender<Sent>,
    down: UnboundedSender<Sent>,
}

struct Inside {
    links: BTreeMap<u64, Link>,
    next: u64,
    dice: Dice,
    /// One for all: what it allocates for headers is large.
    encoder: Encoder,
    /// Hosts whose connection breaks so long after their next command has
    /// reached the target.
    cuts: BTreeMap<usize, u64>,
    /// Time until which bits of a host's PDUs are flipped.
    corrupt_until: BTreeMap<usize, u64>,
}

/// All connections.
pub struct Wires {
    executor: Arc<Executor>,
    trace: Arc<Trace>,
    history: Arc<History>,
    network: Arc<Network>,
    gateway: OnceLock<Weak<Gateway>>,
    inside: Mutex<Inside>,
    mutant: Option<Mutant>,
}

/// Bytes of a PDU before its data: basic header and header digest.
const HEAD_BYTES: usize = 52;

/// A PDU through its bytes on the wire.
fn carried(encoder: &mut Encoder, pdu: Outgoing) -> Frame {
    let bytes = encoded(encoder, pdu, false);
    match decoded(bytes, false) {
        Ok(Some(frame)) => frame,
        other => panic!("a PDU that cannot be read: {other:?}"),
    }
}

fn encoded(encoder: &mut Encoder, pdu: Outgoing, digests: bool) -> Vec<u8> {
    encoder.configure(Digests { header: digests, data: digests });
    let mut pieces = Vec::new();
    encoder.encode(pdu, &mut pieces).unwrap_or_else(|error| panic!("a PDU: {error}"));
    let mut all = Vec::new();
    for piece in pieces {
        match piece {
            Payload::Bytes(bytes) => all.extend_from_slice(&bytes),
            Payload::Span(_) => panic!("a disk in memory has no spans"),
        }
    }
    all
}

fn decoded(bytes: Vec<u8>, digests: bool) -> Result<Option<Frame>, FramingError> {
    let mut decoder = Decoder::new(MAX_SEGMENT_BYTES);
    decoder.configure(Digests { header: digests, data: digests }, MAX_SEGMENT_BYTES);
    decoder.feed(bytes.into());
    decoder.poll()
}

impl Inside {
    /// A PDU as it arrives. One that cannot be read ends its connection.
    fn carry(&mut self, number: u64, pdu: Outgoing, now: u64, unchecked: bool) -> Item {
        let plain = |frame| Item::Pdu(Arrived { frame, header: None });
        let link = self.links.get(&number);
        let (digests, host) = link.map_or((false, 0), |link| (link.has_digests, link.host));
        let recovers = link.is_some_and(|link| link.recovers);
        if !digests {
            return plain(carried(&mut self.encoder, pdu));
        }
        let mut bytes = encoded(&mut self.encoder, pdu, true);
        let corrupts =
            self.corrupt_until.get(&host).is_some_and(|until| now < *until) && self.dice.once_in(8);
        // A planted fault that takes wrong headers would be another connection.
        let from = if unchecked || recovers { HEAD_BYTES } else { 0 };
        if corrupts && recovers && (self.dice.once_in(2) || bytes.len() <= from) {
            return Item::Nothing;
        }
        if corrupts && bytes.len() > from {
            let at = from + self.dice.below((bytes.len() - from) as u64) as usize;
            bytes[at] ^= 1 << self.dice.below(8);
        }
        let Some(mut frame) = decoded(bytes, true).ok().flatten() else { return Item::End };
        frame.data_digest_ok |= unchecked;
        plain(frame)
    }
}

impl Wires {
    /// No connections.
    #[must_use]
    pub fn new(
        (executor, trace): (&Arc<Executor>, &Arc<Trace>),
        history: &Arc<History>,
        network: &Arc<Network>,
        seed: u64,
        mutant: Option<Mutant>,
    ) -> Arc<Self> {
        let dice = Dice::new(seed, "wires");
        Arc::new(Self {
            executor: Arc::clone(executor),
            trace: Arc::clone(trace),
            history: Arc::clone(history),
            network: Arc::clone(network),
            gateway: OnceLock::new(),
            inside: Mutex::new(Inside {
                links: BTreeMap::new(),
                next: 1,
                dice,
                encoder: Encoder::new(),
                cuts: BTreeMap::new(),
                corrupt_until: BTreeMap::new(),
            }),
            mutant,
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

    /// A write that the target received and began at these times has been
    /// carried out.
    pub(super) fn wrote(&self, received: u64, begins: u64) {
        if self.history.is_behind_reset(received, begins) {
            let text = "a write of before a reset was carried out behind it".to_owned();
            self.history.fail(Invariant::Fence, text);
        }
    }

    /// Connects a host, as soon as there is a server.
    pub(super) async fn connect(
        self: &Arc<Self>,
        host: usize,
        transport: HostTransport,
    ) -> (u64, UnboundedReceiver<Arrived>) {
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
                let iser = transport == HostTransport::Iser;
                let memory = iser.then(HostMemory::default);
                let recovers = matches!(transport, HostTransport::Recovering(_));
                let link = Link {
                    host,
                    server,
                    alive: true,
                    survives: false,
                    has_digests: false,
                    recovers,
                    memory,
                    up,
                    down,
                };
                inside.links.insert(number, link);
                number
            };
            let (arrive, arrived) = unbounded_channel();
            let (reach, reached) = unbounded_channel();
            let pump = Arc::clone(self).pump(number, host, to_target, arrive);
            self.executor.spawn(Domain::Outside, pump);
            let pump = Arc::clone(self).pump(number, host, to_host, reach);
            self.executor.spawn(Domain::Outside, pump);
            self.executor
                .spawn(Domain::Server(server), target.serve(number, (host, transport), arrived));
            self.trace.note("wires", format_args!("host{host} connects: #{number}, {transport:?}"));
            return (number, reached);
        }
    }

    /// Carries what goes in one direction, in its order.
    async fn pump(
        self: Arc<Self>,
        number: u64,
        host: usize,
        mut sent: UnboundedReceiver<Sent>,
        deliver: UnboundedSender<Arrived>,
    ) {
        while let Some(Sent { arrival, item }) = sent.recv().await {
            self.executor.sleep_until(arrival).await;
            self.network.passage(host).await;
            let arrives = {
                let inside = lock(&self.inside);
                inside.links.get(&number).is_some_and(|link| link.alive || link.survives)
            };
            if !arrives {
                break;
            }
            let arrived = match item {
                Item::End | Item::Nothing => break,
                Item::Pdu(arrived) => arrived,
                Item::Read { from, tell } => {
                    let Some(data) = self.touch(number, |memory| memory.read(from)) else { break };
                    // The task that waits for it may be gone.
                    let _ = tell.send(data);
                    continue;
                }
                Item::Send { writes, message } => {
                    let all = |memory: &mut HostMemory| {
                        writes.iter().try_for_each(|write| memory.write(write))
                    };
                    if self.touch(number, all).is_none() {
                        break;
                    }
                    iser::received(&message)
                }
            };
            let is_command = arrived.frame.bhs.opcode() == Opcode::SCSI_COMMAND;
            if deliver.send(arrived).is_err() {
                break;
            }
            let cut = is_command.then(|| lock(&self.inside).cuts.remove(&host)).flatten();
            if let Some(after) = cut {
                let me = Arc::clone(&self);
                self.executor.spawn(Domain::Outside, async move {
                    me.executor.sleep(after).await;
                    me.cut(number);
                });
            }
        }
    }

    /// The target uses a host's memory. `None`: the connection is gone.
    fn touch<T>(
        &self,
        number: u64,
        use_it: impl FnOnce(&mut HostMemory) -> Result<T, Intruded>,
    ) -> Option<T> {
        let used = {
            let mut inside = lock(&self.inside);
            let link = inside.links.get_mut(&number).filter(|link| link.alive)?;
            use_it(link.memory.as_mut()?)
        };
        used.inspect_err(|Intruded(piece)| {
            let text = format!("#{number}: memory that is not offered: {piece:?}");
            self.history.fail(Invariant::RemoteMemory, text);
        })
        .ok()
    }

    fn send(&self, number: u64, to_target: bool, item: impl FnOnce(&mut Inside) -> Item) {
        let mut inside = lock(&self.inside);
        let item = item(&mut inside);
        if matches!(item, Item::Nothing) {
            return;
        }
        let delay = inside.dice.spread(10_000, USUAL_NANOS);
        let arrival = self.executor.nanos() + delay;
        if let Some(link) = inside.links.get(&number).filter(|link| link.alive) {
            let way = if to_target { &link.up } else { &link.down };
            // The other side may be gone.
            let _ = way.send(Sent { arrival, item });
        }
    }

    fn send_pdu(&self, number: u64, to_target: bool, pdu: Outgoing) {
        let unchecked = self.mutant == Some(Mutant::DigestNotChecked);
        let now = self.executor.nanos();
        self.send(number, to_target, |inside| inside.carry(number, pdu, now, unchecked));
    }

    /// Sends a message to the target over iSER, with memory for a command's
    /// data: what it writes, and the bytes that it reads.
    pub(super) fn send_message(&self, number: u64, pdu: Outgoing, data: Option<&(Bytes, u32)>) {
        self.send(number, true, |inside| {
            let memory = inside.links.get_mut(&number).and_then(|link| link.memory.as_mut());
            let message = memory.map(|memory| memory.message(pdu, data));
            message.map_or(Item::End, |message| Item::Pdu(iser::received(&message)))
        });
    }

    /// The target reads a host's memory.
    pub(super) fn read_memory(&self, number: u64, from: Piece) -> oneshot::Receiver<Bytes> {
        let (tell, told) = oneshot::channel();
        self.send(number, false, |_| Item::Read { from, tell });
        told
    }

    /// The target writes a host's memory, and sends a message behind it.
    pub(super) fn write_memory(&self, number: u64, writes: Vec<RdmaWrite>, message: Vec<u8>) {
        self.send(number, false, |_| Item::Send { writes, message });
    }

    /// A host takes the memory of a task back; its content after a read.
    pub(super) fn take_back(&self, number: u64, itt: Itt) -> Option<Bytes> {
        lock(&self.inside).links.get_mut(&number)?.memory.as_mut()?.take_back(itt)
    }

    /// PDUs have digests from now on.
    pub fn use_digests(&self, number: u64) {
        if let Some(link) = lock(&self.inside).links.get_mut(&number) {
            link.has_digests = true;
        }
    }

    /// Flips bits of a host's PDUs for this time.
    pub fn corrupt(&self, host: usize, nanos: u64) {
        lock(&self.inside).corrupt_until.insert(host, self.executor.nanos() + nanos);
    }

    /// The faults are over.
    pub fn heal(&self) {
        let mut inside = lock(&self.inside);
        inside.corrupt_until.clear();
        inside.cuts.clear();
    }

    /// Sends a PDU to the target.
    pub fn send_up(&self, number: u64, pdu: Outgoing) {
        self.send_pdu(number, true, pdu);
    }

    /// Sends a PDU to the host.
    pub fn send_down(&self, number: u64, pdu: Outgoing) {
        self.send_pdu(number, false, pdu);
    }

    /// The target closes a connection, behind what it has sent.
    pub fn close_down(&self, number: u64) {
        self.send(number, false, |_| Item::End);
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

    /// Breaks the connection on which a host sends its next command, so long
    /// after the command has reached the target.
    pub fn cut_next_command(&self, host: usize, after: u64) {
        lock(&self.inside).cuts.insert(host, after);
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
            (link.alive, link.survives) = (false, survives && link.memory.is_none());
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
