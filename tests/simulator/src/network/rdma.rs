//! RPC-over-RDMA between a client and the server: messages, the client's
//! registered memory, and what the server does to it. The framing, the credits
//! and the plans are the product's; what connects them follows
//! `gateway/src/nfs/rdma`.

use super::{Inside, Lost, Network};
use crate::dice::Dice;
use crate::executor::{Domain, SECOND, lock};
use crate::gateway::{Gateway, operand};
use crate::history::BLOCK_BYTES;
use crate::invariant::{ANSWER_SECONDS, Invariant};
use crate::mutant::Mutant;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU32;
use std::sync::Arc;
use tokio::sync::oneshot;
use zgate_nfs_wire::bulk::{BulkPosition, bulk_position};
use zgate_nfs_wire::v4::OpNum;
use zgate_rpcrdma::client::{CallFrame, CallParts, Reply, Results};
use zgate_rpcrdma::server::{CallPlan, DataItem, Destination, ReplyPlan, ReplyShape};
use zgate_rpcrdma::{
    Body, Chunks, Credit, Direction, Header, PrivateData, ReceiveQueue, Segment, SendCredits,
    WriteChunk, Xid, direction, rkey_to_invalidate,
};
use zgate_xdr::Message;

/// Credits that the server grants: fewer than a client would use.
const CREDITS: NonZeroU32 = NonZeroU32::new(2).unwrap();
/// Credits that a client asks for.
const WANTED_CREDITS: u32 = 8;
/// Receives for replies to the server's calls.
const RESERVED_RECEIVES: u32 = 8;
/// Bytes of a reply chunk.
const REPLY_BYTES: usize = 4096;
/// Inline thresholds: the usual one, and one that hardly anything fits.
const INLINE_BYTES: [u32; 2] = [1024, 200];

/// A call of the client that waits for its reply.
struct Pending {
    offered: Chunks,
    keys: Vec<u32>,
    credit: Credit,
    tell: oneshot::Sender<Bytes>,
}

/// Both ends of an RDMA connection.
pub(super) struct Nic {
    inline_bytes: u32,
    credits: SendCredits,
    /// Calls that wait for a credit.
    waiting: VecDeque<oneshot::Sender<()>>,
    /// Memory of the client by key, as long as the server may use it.
    memory: BTreeMap<u32, Vec<u8>>,
    next_key: u32,
    pending: BTreeMap<u32, Pending>,
    answered: BTreeSet<u32>,
    /// The server's receives, as it counts them, and as they are.
    receives: ReceiveQueue,
    posted: u32,
    /// Calls that the server has and has not answered.
    outstanding: u32,
    /// Latest arrival at the client: a connection keeps the order.
    last_arrival: u64,
    /// For a planted fault: memory of an earlier call.
    earlier_key: Option<u32>,
}

impl Nic {
    pub(super) fn new(dice: &mut Dice) -> Self {
        let mut receives = ReceiveQueue::new(CREDITS, RESERVED_RECEIVES);
        (0..receives.depth()).for_each(|_| receives.posted());
        Self {
            inline_bytes: INLINE_BYTES[dice.below(2) as usize],
            credits: SendCredits::default(),
            waiting: VecDeque::new(),
            memory: BTreeMap::new(),
            next_key: 1 + dice.below(1 << 20) as u32,
            pending: BTreeMap::new(),
            answered: BTreeSet::new(),
            posted: receives.depth(),
            receives,
            outstanding: 0,
            last_arrival: 0,
            earlier_key: None,
        }
    }

    /// The connection is gone: so are its calls, and the memory they offered.
    pub(super) fn end(&mut self) {
        self.pending.clear();
        self.waiting.clear();
        self.memory.clear();
    }

    /// Registers memory in pieces.
    fn register(&mut self, bytes: &[u8], piece: usize, keys: &mut Vec<u32>) -> Vec<Segment> {
        let mut segments = Vec::new();
        for part in bytes.chunks(piece.max(1)) {
            let key = self.next_key;
            self.next_key += 1;
            self.memory.insert(key, part.to_vec());
            keys.push(key);
            segments.push(Segment { handle: key, length: part.len() as u32, offset: 0 });
        }
        segments
    }

    fn slice(&mut self, segment: Segment) -> Option<&mut [u8]> {
        let start = usize::try_from(segment.offset).ok()?;
        let end = start.checked_add(segment.length as usize)?;
        self.memory.get_mut(&segment.handle)?.get_mut(start..end)
    }

    fn collect(&self, chunk: &WriteChunk, len: usize) -> Vec<u8> {
        let parts = chunk.segments.iter().filter_map(|segment| self.memory.get(&segment.handle));
        let mut all: Vec<u8> = parts.flatten().copied().collect();
        all.truncate(len);
        all
    }

    /// Frames a call, with memory for its data and its results.
    fn frame(&mut self, xid: u32, record: &[u8], dice: &mut Dice) -> (Vec<u8>, Chunks, Vec<u32>) {
        let mut keys = Vec::new();
        let small = self.inline_bytes < 1024;
        let piece = if dice.once_in(2) { BLOCK_BYTES / 2 } else { BLOCK_BYTES };
        let bulk = match bulk_position(record) {
            BulkPosition::At { offset, len } if len > 0 && dice.once_in(2) => {
                let segments = self.register(&record[offset..offset + len], piece, &mut keys);
                Some((offset, len, segments))
            }
            _ => None,
        };
        let whole = match small {
            true => self.register(record, record.len(), &mut keys),
            false => Vec::new(),
        };
        let is_read = operand(record, OpNum::Read, 6).is_some();
        let writes = match is_read && dice.once_in(2) {
            true => {
                let segments = self.register(&[0; BLOCK_BYTES], piece, &mut keys);
                vec![WriteChunk { segments }]
            }
            false => Vec::new(),
        };
        let reply = (small || dice.once_in(4)).then(|| WriteChunk {
            segments: self.register(&[0; REPLY_BYTES], REPLY_BYTES, &mut keys),
        });
        let parts = CallParts {
            len: record.len(),
            bulk: bulk.as_ref().map(|(at, len, segments)| (*at, *len, &segments[..])),
            whole: &whole,
            writes,
            reply,
        };
        let frame = CallFrame::new(Xid(xid), WANTED_CREDITS, self.inline_bytes, parts)
            .unwrap_or_else(|error| panic!("a call that cannot be framed: {error}"));
        let mut bytes = frame.header;
        frame.inline.iter().for_each(|range| bytes.extend_from_slice(&record[range.clone()]));
        (bytes, frame.offered, keys)
    }
}

/// Properties of a call that its reply needs.
struct Asked {
    xid: Xid,
    credits: u32,
    chunks: Chunks,
}

/// A reply on its way: RDMA Writes, then the message.
struct Sending {
    writes: Vec<(Segment, Vec<u8>)>,
    message: Vec<u8>,
    invalidate: Option<u32>,
}

impl Inside {
    fn nic(&mut self, number: u64) -> Option<&mut Nic> {
        let link = self.links.get_mut(&number).filter(|link| link.alive)?;
        link.nic.as_deref_mut()
    }
}

impl Network {
    fn with_nic<T>(&self, number: u64, use_it: impl FnOnce(&mut Nic) -> T) -> Result<T, Lost> {
        lock(&self.inside).nic(number).map(use_it).ok_or(Lost)
    }

    async fn credit(&self, number: u64) -> Result<Credit, Lost> {
        loop {
            let (tell, told) = oneshot::channel();
            let taken = self.with_nic(number, |nic| {
                let credit = nic.credits.take();
                if credit.is_none() {
                    nic.waiting.push_back(tell);
                }
                credit
            })?;
            match taken {
                Some(credit) => return Ok(credit),
                None => told.await.map_err(|_| Lost)?,
            }
        }
    }

    /// Sends a call over RDMA and waits for its reply.
    ///
    /// # Errors
    /// [`Lost`] if the connection has ended.
    pub(super) async fn call_by_rdma(
        self: &Arc<Self>,
        number: u64,
        xid: u32,
        record: Bytes,
    ) -> Result<Bytes, Lost> {
        let limit = ANSWER_SECONDS * SECOND;
        let waited = self.executor.within(limit, self.credit(number)).await;
        let credit = waited.unwrap_or(Err(Lost))?;
        let sent = self.executor.nanos();
        let (tell, told) = oneshot::channel();
        let (client, arrival, survives, message) = {
            let mut inside = lock(&self.inside);
            let inside = &mut *inside;
            let dice = &mut inside.dice;
            let (delay, survives) = (dice.spread(10_000, super::USUAL_NANOS), dice.once_in(2));
            let link = inside.links.get_mut(&number).filter(|link| link.alive).ok_or(Lost)?;
            let nic = link.nic.as_deref_mut().ok_or(Lost)?;
            let (message, offered, keys) = nic.frame(xid, &record, dice);
            nic.pending.insert(xid, Pending { offered, keys, credit, tell });
            link.last_arrival = link.last_arrival.max(sent + delay);
            (link.client, link.last_arrival, survives, message)
        };
        let me = Arc::clone(self);
        self.executor.spawn(Domain::Outside, async move {
            me.executor.sleep_until(arrival).await;
            me.passage(client).await;
            me.message_arrives(number, message, survives);
        });
        self.answer_within_limit(number, (xid, sent), told).await
    }

    /// A message reaches the server.
    fn message_arrives(self: &Arc<Self>, number: u64, message: Vec<u8>, survives: bool) {
        let Some(gateway) = self.gateway() else { return };
        let fault = {
            let mut inside = lock(&self.inside);
            let Some(link) = inside.links.get_mut(&number) else { return };
            if !link.alive && !survives {
                return;
            }
            let server = link.server;
            let Some(nic) = link.nic.as_deref_mut() else { return };
            if nic.posted == 0 {
                Some("no receive is posted for a call within the granted credits".to_owned())
            } else {
                nic.posted -= 1;
                nic.receives.consumed();
                let asked = Self::planned(&message);
                // Posted before any answer: the grant depends on it.
                nic.posted += 1;
                nic.receives.posted();
                match asked {
                    Err(why) => Some(why),
                    // As the gateway: a requester that has more is dropped.
                    Ok(_) if nic.outstanding >= CREDITS.get() => {
                        Some("a client within its credits has too many calls".to_owned())
                    }
                    Ok((asked, plan, inline)) => {
                        nic.outstanding += 1;
                        let me = Arc::clone(self);
                        self.executor.spawn(Domain::Server(server), async move {
                            me.serve_call(&gateway, (number, server), (asked, plan, inline)).await;
                        });
                        None
                    }
                }
            }
        };
        if let Some(text) = fault {
            self.history.fail(Invariant::Credits, format!("#{number}: {text}"));
        }
    }

    fn planned(message: &[u8]) -> Result<(Asked, CallPlan, Vec<u8>), String> {
        let decoded = Header::decode(message).map_err(|error| error.to_string())?;
        let inline = decoded.inline.to_vec();
        let Header { xid, credits, body } = decoded.header;
        let bulk = |prefix: &[u8]| match bulk_position(prefix) {
            BulkPosition::At { offset, len } => Some((offset, len)),
            BulkPosition::NeedMore | BulkPosition::None => None,
        };
        let plan = CallPlan::new(&body, &inline, bulk).map_err(|fault| fault.to_string())?;
        let (Body::Message(chunks) | Body::NoMessage(chunks)) = body else {
            return Err("no call".to_owned());
        };
        Ok((Asked { xid, credits, chunks }, plan, inline))
    }

    /// Makes a call whole, runs it and answers it.
    async fn serve_call(
        self: &Arc<Self>,
        gateway: &Arc<Gateway>,
        (number, server): (u64, u32),
        (asked, plan, inline): (Asked, CallPlan, Vec<u8>),
    ) {
        let mut stream = vec![0; plan.stream_bytes()];
        plan.place_inline(&inline, &mut stream);
        let mut body = vec![0; plan.body().map_or(0, |body| body.len)];
        for read in plan.rdma_reads() {
            self.executor.sleep(self.delay()).await;
            let Some(data) = self.read_memory(number, read.source) else { return };
            let to = match read.destination {
                Destination::Stream => &mut stream,
                Destination::Body => &mut body,
            };
            to[read.offset..read.offset + data.len()].copy_from_slice(&data);
        }
        if let Some(place) = plan.body() {
            stream.splice(place.position..place.position, body);
        }
        assert_eq!(direction(asked.xid, &stream), Some(Direction::Call), "a call made whole");
        let Some(peer) = self.peer(number) else { return };
        let record = Bytes::from(stream);
        let client = lock(&self.inside).links.get(&number).map_or(0, |link| link.client);
        let replay = self.intrude(gateway, (server, client), &peer, &record).await;
        let answer = gateway.answer_message(server, peer, record).await;
        self.intrude_later(replay.filter(|_| answer.is_some()));
        let sending = {
            let mut inside = lock(&self.inside);
            let inside = &mut *inside;
            let Some(link) = inside.links.get_mut(&number) else { return };
            let Some(nic) = link.nic.as_deref_mut() else { return };
            nic.outstanding -= 1;
            let Some(message) = answer else { return };
            self.planned_reply(nic, &asked, &message, &mut inside.dice)
        };
        let me = Arc::clone(self);
        self.executor.spawn(Domain::Outside, async move { me.deliver(number, sending).await });
    }

    fn planned_reply(
        &self,
        nic: &mut Nic,
        asked: &Asked,
        message: &Message,
        dice: &mut Dice,
    ) -> Vec<Sending> {
        let flat = message.flatten().unwrap_or_default();
        let items: Vec<DataItem> = message
            .direct
            .iter()
            .map(|direct| DataItem { offset: direct.offset, len: direct.len })
            .collect();
        let grant = nic
            .receives
            .grant(asked.credits)
            .unwrap_or_else(|| panic!("a receive is posted before each answer"));
        let shape = ReplyShape { len: flat.len(), items: &items };
        let plan = ReplyPlan::new(asked.xid, grant, &asked.chunks, nic.inline_bytes, shape)
            .unwrap_or_else(|fault| panic!("a reply to a client with room for it: {fault}"));
        let gather = |ranges: &[std::ops::Range<usize>]| -> Vec<u8> {
            ranges.iter().flat_map(|range| flat[range.clone()].to_vec()).collect()
        };
        let mut writes: Vec<_> =
            plan.rdma_writes.iter().map(|write| (write.target, gather(&write.from))).collect();
        let mut message = plan.header.clone();
        message.extend(gather(&plan.inline));
        let offer = PrivateData { remote_invalidation: true, ..PrivateData::default() };
        let mut invalidate = rkey_to_invalidate(&offer, &asked.chunks);
        match self.mutant {
            Some(Mutant::KeyReused) => {
                let earlier = writes.first().map(|(target, _)| target.handle);
                if let (Some((target, _)), Some(key)) = (writes.first_mut(), nic.earlier_key) {
                    target.handle = key;
                }
                nic.earlier_key = earlier.or(nic.earlier_key);
            }
            Some(Mutant::CreditsDoubled) => {
                message[8..12].copy_from_slice(&(2 * grant.get()).to_be_bytes());
            }
            Some(Mutant::AnotherInvalidated) => {
                let own = |key: &u32| Some(*key) != invalidate;
                invalidate = nic.memory.keys().copied().find(own).or(invalidate);
            }
            _ => {}
        }
        let sending = |writes| Sending { writes, message: message.clone(), invalidate };
        match self.mutant {
            Some(Mutant::ReplySentTwice) if dice.once_in(20) => {
                vec![sending(writes), Sending { invalidate: None, ..sending(Vec::new()) }]
            }
            Some(Mutant::WriteBehindSend) => {
                let late = Sending { writes, message: Vec::new(), invalidate: None };
                vec![sending(Vec::new()), late]
            }
            _ => vec![sending(writes)],
        }
    }

    /// RDMA Writes and messages reach the client, in their order.
    async fn deliver(self: &Arc<Self>, number: u64, all: Vec<Sending>) {
        for Sending { writes, message, invalidate } in all {
            let delay = self.delay();
            let arrival = {
                let now = self.executor.nanos();
                let mut inside = lock(&self.inside);
                let Some(link) = inside.links.get_mut(&number) else { return };
                let client = link.client;
                let Some(nic) = link.nic.as_deref_mut() else { return };
                nic.last_arrival = nic.last_arrival.max(now + delay);
                (nic.last_arrival, client)
            };
            self.executor.sleep_until(arrival.0).await;
            self.passage(arrival.1).await;
            for (target, data) in writes {
                if !self.write_memory(number, target, &data) {
                    return;
                }
            }
            if !message.is_empty() {
                self.reply_arrives(number, &message, invalidate);
            }
        }
    }

    fn reply_arrives(&self, number: u64, message: &[u8], invalidate: Option<u32>) {
        let Some(Xid(xid)) = Reply::xid(message) else { return };
        let fault = {
            let mut inside = lock(&self.inside);
            let Some(nic) = inside.nic(number) else { return };
            nic.take_reply(xid, message, invalidate).err()
        };
        if let Some((invariant, text)) = fault {
            self.history.fail(invariant, format!("#{number}, call {xid:x}: {text}"));
        }
    }

    fn read_memory(&self, number: u64, source: Segment) -> Option<Vec<u8>> {
        let read = self.with_nic(number, |nic| nic.slice(source).map(|part| part.to_vec())).ok()?;
        if read.is_none() {
            let text = format!("#{number}: a read of memory that is not offered: {source:?}");
            self.history.fail(Invariant::RemoteMemory, text);
        }
        read
    }

    /// Returns whether the connection still exists.
    fn write_memory(&self, number: u64, target: Segment, data: &[u8]) -> bool {
        let written = self.with_nic(number, |nic| {
            let part = nic.slice(target)?;
            (part.len() == data.len()).then(|| part.copy_from_slice(data))
        });
        if written == Ok(None) {
            let text = format!("#{number}: a write of memory that is not offered: {target:?}");
            self.history.fail(Invariant::RemoteMemory, text);
        }
        written.is_ok()
    }
}

impl Nic {
    /// Takes a reply, and the memory of its call back.
    fn take_reply(
        &mut self,
        xid: u32,
        message: &[u8],
        invalidate: Option<u32>,
    ) -> Result<(), (Invariant, String)> {
        let Some(pending) = self.pending.remove(&xid) else {
            let text = "a second reply on one connection".to_owned();
            return match self.answered.contains(&xid) {
                true => Err((Invariant::ExactlyOnce, text)),
                false => Ok(()),
            };
        };
        self.answered.insert(xid);
        let Pending { offered, keys, credit, tell } = pending;
        let reply = Reply::read(message, &offered)
            .map_err(|error| (Invariant::RemoteMemory, error.to_string()))?;
        let mut bytes = match reply.results {
            Results::Inline(inline) => inline.to_vec(),
            Results::InReplyChunk { len } => {
                offered.reply.as_ref().map(|chunk| self.collect(chunk, len)).unwrap_or_default()
            }
        };
        // Data of a READ, the last result, and its padding.
        if let (Some(chunk), Some(len @ 1..)) = (offered.writes.first(), reply.written.first()) {
            bytes.extend(self.collect(chunk, *len));
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        self.credits.answered(credit, reply.credits);
        // Those that find no credit wait again; some may have given up.
        for next in self.waiting.drain(..) {
            let _ = next.send(());
        }
        let strange = invalidate.filter(|key| !keys.contains(key));
        keys.iter().for_each(|key| {
            self.memory.remove(key);
        });
        // The call may have been given up.
        let _ = tell.send(bytes.into());
        match strange {
            Some(key) => {
                Err((Invariant::RemoteMemory, format!("key {key} of another call is invalidated")))
            }
            None => Ok(()),
        }
    }
}

/// The server's call through its RDMA framing, as the client gets it.
pub(super) fn framed_callback(call: &[u8]) -> Option<Bytes> {
    let xid = Reply::xid(call)?;
    let header = Header { xid, credits: RESERVED_RECEIVES, body: Body::Message(Chunks::default()) };
    let message = [&header.encode()[..], call].concat();
    let decoded = Header::decode(&message).ok()?;
    let inline = Bytes::copy_from_slice(decoded.inline);
    (direction(decoded.header.xid, &inline) == Some(Direction::Call)).then_some(inline)
}
