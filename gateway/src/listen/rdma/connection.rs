//! One RDMA connection: calls in, replies out, callbacks both ways.

use super::accept::RdmaArrival;
use super::callbacks::{Callbacks, MAX_OUTSTANDING};
use super::progress::Progress;
use super::reply::{Pieces, direct_items, post};
use crate::listen::receive::{Allowance, Received};
use crate::observe::throttle::warn_seldom;
use crate::serve::boundary::{self, answer};
use crate::serve::connections::{Registration, Slot};
use crate::serve::data_path::{DataDirection, Transport};
use crate::serve::dispatch::Answer;
use crate::serve::host::Host;
use crate::serve::service::Service;
use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU32;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use zgate_fabric::{
    Disconnect, Event, QueueOptions, ReadBatch, RemoteRead, RemoteSlice, RemoteWrite, SendBatch,
    SendPart, Setup, WorkId, WorkStatus,
};
use zgate_nfs::Peer;
use zgate_nfs::v4::bulk::{BulkPosition, bulk_position};
use zgate_rpcrdma::limits::{MAX_CALL_BYTES, PREFERRED_INLINE_BYTES};
use zgate_rpcrdma::server::{CallPlan, Place, ReplyPlan, ReplyShape, error_message};
use zgate_rpcrdma::{
    Body, Chunks, Direction, ErrorBody, Header, InlineBytes, PrivateData, ReceiveQueue, WriteChunk,
    Xid, direction, rkey_to_invalidate,
};
use zgate_store::AlignedBuf;

/// Calls a client may have outstanding.
const CREDITS: NonZeroU32 = NonZeroU32::new(64).unwrap();
/// Bytes of calls and replies in flight of one connection, so that a client
/// that takes nothing any more holds no more of the buffers until its
/// connection breaks.
const MAX_BYTES_IN_FLIGHT: usize = 64 << 20;
/// Replies on their way before further calls wait.
const MAX_REPLIES_IN_FLIGHT: usize = 256;
/// How often a silent client is asked whether it is still there.
const PROBE_PERIOD: Duration = Duration::from_secs(20);
/// Numbers of work that is no receive begin here.
const FIRST_WORK: u64 = 1 << 32;

/// What the reply to a call needs to know of it.
#[derive(Debug)]
struct Asked {
    xid: Xid,
    credits: u32,
    chunks: Chunks,
    /// The call, and the most its reply can be.
    bytes: usize,
}

/// A call whose parts are not all here.
#[derive(Debug)]
struct Incomplete {
    asked: Asked,
    plan: CallPlan,
    inline: Vec<u8>,
}

/// A call whose parts are being pulled.
#[derive(Debug)]
struct Pulling {
    asked: Asked,
    plan: CallPlan,
    /// The stream, when nothing of it is pulled.
    stream: Option<Vec<u8>>,
}

type Running = FuturesUnordered<LocalBoxFuture<'static, (Asked, Answer)>>;

struct Connection {
    verbs: Box<dyn zgate_fabric::Connection>,
    /// The client's offer, as far as it can be taken.
    offer: PrivateData,
    inline: InlineBytes,
    receives: ReceiveQueue,
    next_work: u64,
    incomplete: VecDeque<Incomplete>,
    pulling: HashMap<WorkId, Pulling>,
    running: Running,
    bytes_in_flight: usize,
    /// Bytes of the replies that the client may not have yet.
    sending: HashMap<WorkId, usize>,
    progress: Progress,
    callbacks: Callbacks,
    draining: bool,
    host: Host,
    peer: Rc<Peer>,
    service: Rc<Service>,
}

/// Accepts a connection and serves it until either side ends it.
pub(crate) async fn serve(arrival: RdmaArrival, peer: Peer, slot: Slot, service: Rc<Service>) {
    let registration = service.shared.connections.register(slot.id);
    let _counted = service.shared.rdma.connected();
    let peer = Rc::new(peer);
    let connection = match accept(arrival, &peer, &service).await {
        Ok(connection) => connection,
        Err(error) => {
            warn_seldom!(peer = %peer.address, %error, "an RDMA connection is not made");
            return;
        }
    };
    connection.run_to_end(registration).await;
}

async fn accept(
    arrival: RdmaArrival,
    peer: &Rc<Peer>,
    service: &Rc<Service>,
) -> std::io::Result<Connection> {
    let RdmaArrival { request, can_invalidate, .. } = arrival;
    let mut offer = PrivateData::decode(request.private_data());
    offer.remote_invalidation &= can_invalidate;
    let own = PrivateData {
        // Used when both say so (RFC 8797 §4.1).
        remote_invalidation: offer.remote_invalidation,
        send_bytes: PREFERRED_INLINE_BYTES,
        receive_bytes: PREFERRED_INLINE_BYTES,
    };
    let mut receives = ReceiveQueue::new(CREDITS, MAX_OUTSTANDING);
    let buffer = || service.shared.pool.take(PREFERRED_INLINE_BYTES as usize);
    let posted = (0..receives.depth()).map(|id| (WorkId(id.into()), buffer())).collect();
    let options = QueueOptions { receives: receives.depth(), ..QueueOptions::default() };
    let private_data = own.encode().to_vec();
    let verbs = request.accept(Setup { options, receives: posted, private_data }).await?;
    (0..receives.depth()).for_each(|_| receives.posted());
    let inline = InlineBytes::negotiate(&own, &offer);
    tracing::debug!(peer = %peer.address, ?inline, ?offer, "RDMA connection");
    Ok(Connection {
        verbs,
        offer,
        inline,
        receives,
        next_work: FIRST_WORK,
        incomplete: VecDeque::new(),
        pulling: HashMap::new(),
        running: FuturesUnordered::new(),
        bytes_in_flight: 0,
        sending: HashMap::new(),
        progress: Progress::new(),
        callbacks: Callbacks::default(),
        draining: false,
        host: Host::new(service, peer.address),
        peer: Rc::clone(peer),
        service: Rc::clone(service),
    })
}

impl Connection {
    async fn run_to_end(mut self, registration: Registration) {
        let why = boundary::connection(self.run(registration)).await;
        tracing::debug!(peer = %self.peer.address, why, "RDMA connection closed");
        self.service.connection_closed(self.peer.connection);
        // What they change is changed, and their replies are kept for a
        // retry, which may come over another transport.
        let Self { mut running, verbs, .. } = self;
        drop(verbs);
        if !running.is_empty() {
            tokio::task::spawn_local(async move { while running.next().await.is_some() {} });
        }
    }

    async fn run(&mut self, mut registration: Registration) -> &'static str {
        let service = Rc::clone(&self.service);
        let period = PROBE_PERIOD.min(service.shared.rdma_stall / 3);
        let mut probe = tokio::time::interval(period);
        let mut drain = pin!(service.shared.drain.wait());
        loop {
            if let Err(why) = self.begin_calls().await {
                return why;
            }
            if self.draining && self.is_idle() {
                return "draining";
            }
            let result = tokio::select! {
                biased;
                Some((asked, answer)) = self.running.next(), if !self.running.is_empty() => {
                    self.reply(asked, answer)
                }
                event = self.verbs.event() => self.events(event).await,
                Some(call) = registration.calls.recv() => {
                    self.callbacks.push(call);
                    Ok(())
                }
                () = drain.as_mut(), if !self.draining => {
                    self.draining = true;
                    Ok(())
                }
                _ = probe.tick() => self.must_be_named().and_then(|()| self.probe()),
            };
            if let Err(why) = result.and_then(|()| self.send_callbacks()) {
                return why;
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.running.is_empty() && self.pulling.is_empty() && self.sending.is_empty()
    }

    /// Takes in an event and what came together with it.
    async fn events(&mut self, first: Event) -> Result<(), &'static str> {
        let mut next = Some(first);
        while let Some(event) = next {
            self.event(event).await?;
            next = self.verbs.next_at_hand();
        }
        Ok(())
    }

    async fn event(&mut self, event: Event) -> Result<(), &'static str> {
        match event {
            Event::Received { id, buffer, len, .. } => {
                self.service.shared.metrics.bytes_in(len);
                self.receives.consumed();
                let taken = self.take_message(&buffer[..len.min(buffer.len())]);
                // Before anything is answered: the grant counts on it.
                self.verbs.post_receive(id, buffer);
                self.receives.posted();
                match taken {
                    Some(Err((xid, error))) => self.send_error(xid, error),
                    Some(Ok(call)) if !self.draining => {
                        self.must_be_named()?;
                        self.take_call(call)
                    }
                    _ => Ok(()),
                }
            }
            Event::Read { id, buffers } => {
                self.progress.made();
                match self.pulling.remove(&id) {
                    Some(pulled) => self.pulled(pulled, buffers).await,
                    None => Ok(()),
                }
            }
            Event::Sent { id } => {
                self.progress.made();
                self.bytes_in_flight -= self.sending.remove(&id).unwrap_or_default();
                Ok(())
            }
            Event::Failed { id, kind, status, .. } => {
                self.pulling.remove(&id);
                // What is flushed comes behind what failed.
                if status != WorkStatus::Flushed {
                    tracing::info!(peer = %self.peer.address, ?kind, %status, "RDMA work failed");
                }
                Ok(())
            }
            Event::Disconnected(Disconnect::DeviceGone) => Err("the device is gone"),
            Event::Disconnected(Disconnect::Error) => Err("broken by failed work"),
            Event::Disconnected(_) => Err("disconnected"),
        }
    }

    /// The exports may have changed since the connection was accepted.
    fn must_be_named(&mut self) -> Result<(), &'static str> {
        if self.host.is_named() { Ok(()) } else { Err("no export names the host any more") }
    }

    /// Takes in a call. RFC 8166 §3.3.1: a requester must not have more
    /// outstanding than it was granted.
    fn take_call(&mut self, call: Incomplete) -> Result<(), &'static str> {
        let outstanding = self.incomplete.len() + self.pulling.len() + self.running.len();
        if outstanding >= CREDITS.get() as usize {
            return Err("more calls than were granted");
        }
        self.incomplete.push_back(call);
        Ok(())
    }

    /// Reads a message: a call, or something that is dealt with at once.
    /// An error is one to be sent.
    fn take_message(&mut self, message: &[u8]) -> Option<Result<Incomplete, (Xid, ErrorBody)>> {
        let decoded = match Header::decode(message) {
            Ok(decoded) => decoded,
            Err(error) => {
                tracing::debug!(peer = %self.peer.address, %error, "bad transport header");
                return error.answer().map(Err);
            }
        };
        let Header { xid, credits, body } = decoded.header;
        let inline = decoded.inline;
        match &body {
            Body::Error(_) => self.callbacks.failed(xid),
            Body::Done => {}
            Body::Message(_) => match direction(xid, inline) {
                Some(Direction::Reply) => self.callbacks.answered(xid, credits, inline),
                Some(Direction::Call) => return Some(self.plan(xid, credits, body, inline)),
                None => return Some(Err((xid, ErrorBody::Chunk))),
            },
            // No reply comes this way: callbacks offer no memory for one.
            Body::NoMessage(_) => return Some(self.plan(xid, credits, body, inline)),
        }
        None
    }

    fn plan(
        &self,
        xid: Xid,
        credits: u32,
        body: Body,
        inline: &[u8],
    ) -> Result<Incomplete, (Xid, ErrorBody)> {
        let bulk = |prefix: &[u8]| match bulk_position(prefix) {
            BulkPosition::At { offset, len } => Some((offset, len)),
            BulkPosition::NeedMore | BulkPosition::None => None,
        };
        let plan = CallPlan::new(&body, inline, bulk).map_err(|fault| {
            tracing::debug!(peer = %self.peer.address, %fault, "a call that cannot be pulled");
            (xid, ErrorBody::Chunk)
        })?;
        let (Body::Message(chunks) | Body::NoMessage(chunks)) = body else {
            return Err((xid, ErrorBody::Chunk));
        };
        let bytes = plan.total_bytes() + reply_bytes(&chunks);
        let asked = Asked { xid, credits, chunks, bytes };
        Ok(Incomplete { asked, plan, inline: inline.to_vec() })
    }

    /// Whether another call may take buffers. When they run short, a
    /// connection with calls under way waits for one of them to end.
    fn may_begin(&self) -> bool {
        (self.is_idle() || self.host.may_take_request())
            && self.bytes_in_flight < MAX_BYTES_IN_FLIGHT
            && self.sending.len() < MAX_REPLIES_IN_FLIGHT
    }

    /// Begins the calls that wait, as far as there are buffers.
    async fn begin_calls(&mut self) -> Result<(), &'static str> {
        self.host.holds(self.bytes_in_flight);
        while self.may_begin() {
            let Some(call) = self.incomplete.pop_front() else { break };
            self.begin(call).await?;
            self.host.holds(self.bytes_in_flight);
        }
        Ok(())
    }

    /// Runs a call that is whole, or pulls what is missing.
    async fn begin(&mut self, call: Incomplete) -> Result<(), &'static str> {
        let Incomplete { asked, plan, inline } = call;
        self.bytes_in_flight += asked.bytes;
        if plan.pulls().is_empty() {
            // Without pulls the stream is what came inline, copied once out of
            // its receive.
            let head = Bytes::from(inline);
            let received = Received { head, bulk: None, head_copies: 1, copied_bytes: 0 };
            return self.start(asked, received).await;
        }
        let pool = &self.service.shared.pool;
        let mut buffers = Vec::new();
        let stream = if plan.pulls_stream() {
            let mut stream = pool.take(plan.stream_bytes());
            plan.place_inline(&inline, &mut stream);
            buffers.push(stream);
            None
        } else {
            let mut stream = vec![0; plan.stream_bytes()];
            plan.place_inline(&inline, &mut stream);
            Some(stream)
        };
        let body = buffers.len();
        buffers.extend(plan.body().map(|body| pool.take(body.len)));
        let reads = plan.pulls().iter().map(|pull| RemoteRead {
            from: RemoteSlice {
                rkey: pull.source.handle,
                address: pull.source.offset,
                len: pull.source.length,
            },
            buffer: if pull.place == Place::Body { body } else { 0 },
            offset: pull.offset,
        });
        let id = self.work_id();
        let batch = ReadBatch { id, buffers, reads: reads.collect() };
        self.progress.work_begins(self.has_work());
        self.pulling.insert(id, Pulling { asked, plan, stream });
        self.verbs.post_read(batch).map_err(|_| "a plan outside its buffers")
    }

    fn work_id(&mut self) -> WorkId {
        self.next_work += 1;
        WorkId(self.next_work)
    }

    async fn pulled(
        &mut self,
        pulled: Pulling,
        buffers: Vec<AlignedBuf>,
    ) -> Result<(), &'static str> {
        let Pulling { asked, plan, stream } = pulled;
        self.service
            .shared
            .metrics
            .bytes_in(plan.pulls().iter().map(|p| p.source.length as usize).sum());
        let mut buffers = buffers.into_iter();
        // What is pulled is where the device put it.
        let (head, head_copies) = match stream {
            Some(stream) => (Bytes::from(stream), 2),
            None => (buffers.next().map(AlignedBuf::into_bytes).unwrap_or_default(), 0),
        };
        let bulk = plan.body().zip(buffers.next());
        let bulk = bulk.map(|(body, buffer)| (body.position, buffer.into_bytes()));
        self.start(asked, Received { head, bulk, head_copies, copied_bytes: 0 }).await
    }

    /// Runs a call. One that needs no waiting is answered on the spot.
    async fn start(&mut self, asked: Asked, call: Received) -> Result<(), &'static str> {
        // RFC 8166 §4.2.1: header and message have one transaction id.
        if direction(asked.xid, &call.head) != Some(Direction::Call) {
            self.bytes_in_flight -= asked.bytes;
            return self.send_error(asked.xid, ErrorBody::Chunk);
        }
        let (service, peer) = (Rc::clone(&self.service), Rc::clone(&self.peer));
        let mut request: LocalBoxFuture<'static, (Asked, Answer)> =
            Box::pin(async move { (asked, answer(&service, &peer, call).await) });
        let first =
            std::future::poll_fn(|task: &mut Context<'_>| Poll::Ready(request.as_mut().poll(task)));
        match first.await {
            Poll::Ready((asked, answer)) => self.reply(asked, answer),
            Poll::Pending => {
                self.running.push(request);
                Ok(())
            }
        }
    }

    fn reply(&mut self, asked: Asked, answer: Answer) -> Result<(), &'static str> {
        self.bytes_in_flight -= asked.bytes;
        let message = match answer {
            Answer::Reply(message) => message,
            Answer::Nothing => return Ok(()),
            Answer::Close(why) => return Err(why),
        };
        let pieces = Pieces::of(&message).ok_or("a reply that is not in memory")?;
        let credits = self.receives.grant(asked.credits).ok_or("no receive is posted")?;
        let items = direct_items(&message);
        let shape = ReplyShape { len: message.len(), items: &items };
        match ReplyPlan::new(asked.xid, credits, &asked.chunks, self.inline.send, shape) {
            Ok(plan) => {
                let metrics = &self.service.shared.metrics;
                metrics.bytes_out(message.len());
                // The device takes data from the buffers storage filled.
                let data = message.payload_bytes();
                metrics.data.carried(Transport::Rdma, DataDirection::Read, data, 0);
                let invalidate = rkey_to_invalidate(&self.offer, &asked.chunks);
                let (writes, send) = post(&plan, &pieces, invalidate);
                self.send(SendBatch { id: WorkId(0), writes, send: Some(send) }, message.len())
            }
            Err(fault) => {
                tracing::debug!(peer = %self.peer.address, %fault, "a reply does not fit");
                self.send_error(asked.xid, ErrorBody::Chunk)
            }
        }
    }

    fn send_error(&mut self, xid: Xid, error: ErrorBody) -> Result<(), &'static str> {
        let credits = self.receives.grant(1).ok_or("no receive is posted")?;
        let gather = vec![Bytes::from(error_message(xid, credits, error))];
        let send = Some(SendPart { gather, invalidate: None });
        self.send(SendBatch { id: WorkId(0), writes: Vec::new(), send }, 0)
    }

    fn send_callbacks(&mut self) -> Result<(), &'static str> {
        while let Some(send) = self.callbacks.next(self.inline.send) {
            self.send(SendBatch { id: WorkId(0), writes: Vec::new(), send: Some(send) }, 0)?;
        }
        Ok(())
    }

    /// Whether the client's side has work of this side to complete.
    fn has_work(&self) -> bool {
        !(self.sending.is_empty() && self.pulling.is_empty())
    }

    /// Writes nothing to nowhere: a client that is gone does not acknowledge
    /// it, the connection breaks, and its buffers are free again.
    fn probe(&mut self) -> Result<(), &'static str> {
        if self.has_work() {
            let stalled = self.progress.has_stalled(self.service.shared.rdma_stall);
            return if stalled { Err("nothing gets through to the client") } else { Ok(()) };
        }
        let to = RemoteSlice { rkey: 0, address: 0, len: 0 };
        let writes = vec![RemoteWrite { to, gather: Vec::new() }];
        self.send(SendBatch { id: WorkId(0), writes, send: None }, 0)
    }

    /// Sends a batch that keeps so many bytes until the client has them.
    fn send(&mut self, batch: SendBatch, bytes: usize) -> Result<(), &'static str> {
        let id = self.work_id();
        self.progress.work_begins(self.has_work());
        self.sending.insert(id, bytes);
        self.bytes_in_flight += bytes;
        self.verbs.post_send(SendBatch { id, ..batch }).map_err(|_| "a plan of other lengths")
    }
}

/// The most a reply can be whose results go into these chunks.
fn reply_bytes(chunks: &Chunks) -> usize {
    let offered = chunks.writes.iter().chain(&chunks.reply);
    let most = offered.map(WriteChunk::capacity_bytes).sum::<u64>();
    usize::try_from(most).unwrap_or(usize::MAX).min(MAX_CALL_BYTES)
}
