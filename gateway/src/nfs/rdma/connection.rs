//! One RDMA connection: calls, replies, and callbacks.

use super::callbacks::{Callbacks, MAX_OUTSTANDING};
use super::reply::{Pieces, direct_items, post};
use crate::net::arrival::RdmaArrival;
use crate::net::connection_end::{Bug, ConnectionEnd, Misbehaved, Refused};
use crate::net::connections::Slot;
use crate::net::event_loop::{self, Connection as _, Event};
use crate::net::in_flight::InFlight;
use crate::net::peer::Peer;
use crate::net::rdma::establish::establish;
use crate::nfs::answer::answer;
use crate::nfs::back_channels::{CallbackCall, Registration};
use crate::nfs::dispatch::Answer;
use crate::nfs::host::Host;
use crate::nfs::limits::MEMORY_RETRY;
use crate::nfs::record::{Allowance, BULK_BYTES, Received};
use crate::nfs::service::{CallSource, Protected, Service};
use crate::observe::data_path::{DataDirection, Transport};
use crate::observe::throttle::warn_seldom;
use bytes::Bytes;
use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zgate_fabric::{
    Endpoint, EndpointEvent, QueueOptions, RemoteRead, RemoteSlice, SendPart, Setup, WorkStatus,
    endpoint,
};
use zgate_nfs::limits::{MAX_GRACE_HELD_BYTES, MAX_GRACE_WAITERS};
use zgate_nfs_wire::bulk::{BulkPosition, bulk_position};
use zgate_rpcrdma::limits::{MAX_CALL_BYTES, PREFERRED_INLINE_BYTES};
use zgate_rpcrdma::server::{CallPlan, Destination, ReplyPlan, ReplyShape, error_message};
use zgate_rpcrdma::{
    Body, Chunks, Direction, ErrorBody, Header, InlineBytes, PrivateData, ReceiveQueue, WriteChunk,
    Xid, direction, rkey_to_invalidate,
};
use zgate_store::AlignedBuf;

/// Number of calls a client may have outstanding.
const CREDITS: NonZeroU32 = NonZeroU32::new(64).unwrap();
/// Most bytes of calls and replies in flight on one connection, so that a
/// client that completes nothing holds no more buffers until its connection
/// breaks.
const MAX_BYTES_IN_FLIGHT: usize = 64 << 20;
/// Most replies in flight before further calls wait.
const MAX_REPLIES_IN_FLIGHT: usize = 256;
// NFSv3 changes that wait for the end of grace keep no reads of their connection waiting.
const _: () = assert!(MAX_GRACE_WAITERS <= CREDITS.get() as usize / 2);
const _: () = assert!(MAX_GRACE_HELD_BYTES <= MAX_BYTES_IN_FLIGHT / 2);
/// Interval at which a silent client is probed.
const PROBE_PERIOD: Duration = Duration::from_secs(20);

/// Properties of a call that its reply needs.
#[derive(Debug)]
struct Asked {
    xid: Xid,
    credits: u32,
    chunks: Chunks,
    /// Length of the call, and the longest possible reply.
    bytes: usize,
}

/// A call whose parts have not all arrived.
#[derive(Debug)]
struct Incomplete {
    asked: Asked,
    plan: CallPlan,
    inline: Vec<u8>,
}

/// A call whose parts are being read.
#[derive(Debug)]
struct CallBeingRead {
    asked: Asked,
    plan: CallPlan,
    /// The stream, if no part of it is read by RDMA.
    stream: Option<Vec<u8>>,
}

struct Connection {
    endpoint: Endpoint<CallBeingRead>,
    registration: Registration,
    /// The client's offer, as far as it can be accepted.
    offer: PrivateData,
    inline: InlineBytes,
    receives: ReceiveQueue,
    /// Credits that the client has asked for in its last call; one before the first
    /// (RFC 8166 §3.3.3).
    wanted: u32,
    incomplete: VecDeque<Incomplete>,
    running: InFlight<(Asked, Answer)>,
    /// Bytes of the calls whose parts are being read from the client.
    pulling_bytes: usize,
    /// The first waiting call is a large one that must wait for memory.
    lacks_room: bool,
    callbacks: Callbacks,
    draining: bool,
    host: Host,
    source: Arc<CallSource>,
    service: Rc<Service>,
}

/// Accepts a connection and serves it until either side closes it.
pub(crate) async fn serve(arrival: RdmaArrival, peer: Peer, slot: Slot, service: Rc<Service>) {
    let registration = service.nfs.back_channels.register(slot.id);
    let _counted = service.core.network.rdma.connected();
    let source = service.call_source(peer, Protected::default());
    let mut connection = match accept(arrival, &source, &service, registration).await {
        Ok(connection) => connection,
        Err(error) => {
            warn_seldom!(peer = %source.peer.address, %error, "cannot establish an RDMA connection");
            return;
        }
    };
    let address = connection.source.peer.address;
    event_loop::serve(&mut connection, &service.core, Transport::Rdma, address, false).await;
    connection.close();
}

async fn accept(
    arrival: RdmaArrival,
    source: &Arc<CallSource>,
    service: &Rc<Service>,
    registration: Registration,
) -> std::io::Result<Connection> {
    let RdmaArrival { request, can_invalidate, .. } = arrival;
    let mut offer = PrivateData::decode(request.private_data());
    offer.remote_invalidation &= can_invalidate;
    let own = PrivateData {
        // Used only if both sides offer it (RFC 8797 §4.1).
        remote_invalidation: offer.remote_invalidation,
        send_bytes: PREFERRED_INLINE_BYTES,
        receive_bytes: PREFERRED_INLINE_BYTES,
    };
    let mut receives = ReceiveQueue::new(CREDITS, MAX_OUTSTANDING);
    let pool = &service.core.network.pool;
    let posted = endpoint::receives(pool, receives.depth(), PREFERRED_INLINE_BYTES as usize);
    let options = QueueOptions { receives: receives.depth(), ..QueueOptions::default() };
    let private_data = own.encode().to_vec();
    let setup = Setup { options, receives: posted, private_data };
    let verbs = establish(request, setup, &service.core.network.drain).await?;
    (0..receives.depth()).for_each(|_| receives.posted());
    let inline = InlineBytes::negotiate(&own, &offer);
    tracing::debug!(peer = %source.peer.address, ?inline, ?offer, "RDMA connection");
    Ok(Connection {
        endpoint: Endpoint::new(verbs),
        registration,
        offer,
        inline,
        receives,
        wanted: 1,
        incomplete: VecDeque::new(),
        running: InFlight::default(),
        pulling_bytes: 0,
        lacks_room: false,
        callbacks: Callbacks::default(),
        draining: false,
        host: Host::new(service, source.peer.address),
        source: Arc::clone(source),
        service: Rc::clone(service),
    })
}

impl event_loop::Connection for Connection {
    type Event = Event<(Asked, Answer), EndpointEvent<CallBeingRead>, CallbackCall>;

    async fn advance(&mut self) -> Result<(), ConnectionEnd> {
        self.send_callbacks()?;
        self.begin_calls().await
    }

    async fn event(&mut self) -> Result<Self::Event, ConnectionEnd> {
        Ok(tokio::select! {
            biased;
            Some(finished) = self.running.next(), if !self.running.is_empty() => {
                Event::Finished(finished)
            }
            event = self.endpoint.event() => Event::Transport(event),
            Some(call) = self.registration.calls.recv() => Event::Outside(call),
        })
    }

    async fn handle(&mut self, event: Self::Event) -> Result<bool, ConnectionEnd> {
        match event {
            Event::Finished((asked, answer)) => self.reply(asked, answer)?,
            Event::Transport(event) => self.events(event).await?,
            Event::Outside(call) => self.callbacks.push(call),
        }
        Ok(true)
    }

    fn begin_drain(&mut self) {
        self.draining = true;
    }

    fn is_idle(&self) -> bool {
        self.running.is_empty() && !self.endpoint.has_work()
    }

    fn check_period(&mut self) -> Option<Duration> {
        Some(PROBE_PERIOD.min(self.service.core.network.rdma_stall / 3))
    }

    /// Probes a silent client; its buffers are released if the connection is
    /// broken.
    fn check(&mut self) -> Result<(), ConnectionEnd> {
        self.must_be_named()?;
        self.service.core.network.check_stall(self.endpoint.stalled_for(Instant::now()))?;
        Ok(self.endpoint.probe()?)
    }

    fn retry_after(&self) -> Option<Duration> {
        self.awaits_memory().then_some(MEMORY_RETRY)
    }
}

impl Connection {
    fn close(self) {
        self.service.connection_closed(self.source.peer.connection);
        let Self { running, endpoint, .. } = self;
        drop(endpoint);
        running.finish_alone();
    }

    /// Processes an event and those that arrived with it.
    async fn events(&mut self, first: EndpointEvent<CallBeingRead>) -> Result<(), ConnectionEnd> {
        let mut next = Some(first);
        while let Some(event) = next {
            self.event(event).await?;
            next = self.endpoint.next_at_hand();
        }
        Ok(())
    }

    async fn event(&mut self, event: EndpointEvent<CallBeingRead>) -> Result<(), ConnectionEnd> {
        match event {
            EndpointEvent::Received(message) => {
                self.service.nfs.metrics.bytes_in(message.bytes().len());
                self.receives.consumed();
                let taken = self.take_message(message.bytes());
                // Post the receive before any answer: the grant depends on it.
                self.endpoint.post_receive(message.buffer);
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
            EndpointEvent::Read { note, buffers } => self.call_read(note, buffers).await,
            EndpointEvent::Sent => Ok(()),
            EndpointEvent::Failed { kind, status } => {
                // Flushed work follows the work that failed.
                if status != WorkStatus::Flushed {
                    tracing::info!(peer = %self.source.peer.address, ?kind, %status, "RDMA work failed");
                }
                Ok(())
            }
            EndpointEvent::Disconnected(why) => Err(why.into()),
        }
    }

    /// Checks the host again, because the exports may have changed since the
    /// connection was accepted.
    fn must_be_named(&mut self) -> Result<(), ConnectionEnd> {
        if self.host.is_named() { Ok(()) } else { Err(Refused::Host.into()) }
    }

    /// Accepts a call. RFC 8166 §3.3.1: a requester must not have more
    /// outstanding than it was granted.
    fn take_call(&mut self, call: Incomplete) -> Result<(), ConnectionEnd> {
        let outstanding = self.incomplete.len() + self.endpoint.reads() + self.running.len();
        if outstanding >= CREDITS.get() as usize {
            return Err(Misbehaved::TooManyCalls.into());
        }
        self.incomplete.push_back(call);
        Ok(())
    }

    /// Reads a message: a call, or one that is handled at once. The error is to
    /// be sent.
    fn take_message(&mut self, message: &[u8]) -> Option<Result<Incomplete, (Xid, ErrorBody)>> {
        let decoded = match Header::decode(message) {
            Ok(decoded) => decoded,
            Err(error) => {
                tracing::debug!(peer = %self.source.peer.address, %error, "bad transport header");
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
                Some(Direction::Call) => {
                    self.wanted = credits;
                    return Some(self.plan(xid, credits, body, inline));
                }
                None => return Some(Err((xid, ErrorBody::Chunk))),
            },
            // No reply arrives this way: callbacks offer no memory for one.
            Body::NoMessage(_) => {
                self.wanted = credits;
                return Some(self.plan(xid, credits, body, inline));
            }
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
            tracing::debug!(peer = %self.source.peer.address, %fault, "a call that cannot be read");
            (xid, ErrorBody::Chunk)
        })?;
        let (Body::Message(chunks) | Body::NoMessage(chunks)) = body else {
            return Err((xid, ErrorBody::Chunk));
        };
        let bytes = plan.total_bytes() + reply_bytes(&chunks);
        let asked = Asked { xid, credits, chunks, bytes };
        Ok(Incomplete { asked, plan, inline: inline.to_vec() })
    }

    /// Returns whether another call may use buffers. If they run short, a
    /// connection with running calls waits for one of them to end.
    fn may_begin(&self) -> bool {
        let may_take =
            if self.is_idle() { self.host.may_begin() } else { self.host.may_take_request() };
        may_take
            && self.bytes_in_flight() < MAX_BYTES_IN_FLIGHT
            && self.endpoint.sends() < MAX_REPLIES_IN_FLIGHT
    }

    /// Returns whether there is memory for all data of a call, which is taken before the
    /// first byte of it is read. A call with little data waits for nobody's memory.
    fn has_room_for(&self, call: &Incomplete) -> bool {
        let bytes = call.plan.total_bytes();
        call.plan.rdma_reads().is_empty() || bytes < BULK_BYTES || self.host.may_pull(bytes)
    }

    /// Returns whether a call waits for memory that others hold.
    fn awaits_memory(&self) -> bool {
        let is_first = !self.incomplete.is_empty() && self.is_idle();
        self.lacks_room || (is_first && !self.host.may_begin())
    }

    /// Begins waiting calls while there are buffers.
    async fn begin_calls(&mut self) -> Result<(), ConnectionEnd> {
        self.host.holds(self.bytes_in_flight());
        self.lacks_room = false;
        while self.may_begin() {
            let Some(call) = self.incomplete.pop_front() else { break };
            if !self.has_room_for(&call) {
                self.incomplete.push_front(call);
                self.lacks_room = true;
                break;
            }
            self.begin(call).await?;
            self.host.holds(self.bytes_in_flight());
        }
        Ok(())
    }

    /// Runs a complete call, or reads its missing parts.
    async fn begin(&mut self, call: Incomplete) -> Result<(), ConnectionEnd> {
        let Incomplete { asked, plan, inline } = call;
        if plan.rdma_reads().is_empty() {
            // Without RDMA Reads the stream is the inline part, copied once out
            // of its receive.
            let head = Bytes::from(inline);
            let received = Received { head, bulk: None, head_copies: 1, copied_bytes: 0 };
            return self.start(asked, received).await;
        }
        let pool = &self.service.core.network.pool;
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
        let reads = plan.rdma_reads().iter().map(|read| RemoteRead {
            from: RemoteSlice {
                rkey: read.source.handle,
                address: read.source.offset,
                len: read.source.length,
            },
            buffer: if read.destination == Destination::Body { body } else { 0 },
            offset: read.offset,
        });
        let reads = reads.collect();
        self.pulling_bytes += asked.bytes;
        Ok(self.endpoint.read(CallBeingRead { asked, plan, stream }, buffers, reads)?)
    }

    async fn call_read(
        &mut self,
        call: CallBeingRead,
        buffers: Vec<AlignedBuf>,
    ) -> Result<(), ConnectionEnd> {
        let CallBeingRead { asked, plan, stream } = call;
        self.pulling_bytes -= asked.bytes;
        self.service
            .nfs
            .metrics
            .bytes_in(plan.rdma_reads().iter().map(|p| p.source.length as usize).sum());
        let mut buffers = buffers.into_iter();
        // Data read by RDMA stays where the device put it.
        let (head, head_copies) = match stream {
            Some(stream) => (Bytes::from(stream), 2),
            None => (buffers.next().map(AlignedBuf::into_bytes).unwrap_or_default(), 0),
        };
        let bulk = plan.body().zip(buffers.next());
        let bulk = bulk.map(|(body, buffer)| (body.position, buffer.into_bytes()));
        self.start(asked, Received { head, bulk, head_copies, copied_bytes: 0 }).await
    }

    /// Executes a call.
    async fn start(&mut self, asked: Asked, call: Received) -> Result<(), ConnectionEnd> {
        // RFC 8166 §4.2.1: header and message have the same transaction id.
        if direction(asked.xid, &call.head) != Some(Direction::Call) {
            return self.send_error(asked.xid, ErrorBody::Chunk);
        }
        let (source, is_named) = (Arc::clone(&self.source), self.host.is_named());
        let bytes = asked.bytes;
        let request = Box::pin(async move { (asked, answer(&source, is_named, call).await) });
        match self.running.start(bytes, request).await {
            Some((asked, answer)) => self.reply(asked, answer),
            None => Ok(()),
        }
    }

    fn reply(&mut self, asked: Asked, answer: Answer) -> Result<(), ConnectionEnd> {
        let message = match answer {
            Answer::Reply(message) => message,
            Answer::Nothing => return Ok(()),
            Answer::Close(why) => return Err(why),
        };
        let pieces = Pieces::of(&message).ok_or(Bug::NotInMemory)?;
        let credits = self.receives.grant(asked.credits).ok_or(Bug::NoReceive)?;
        let items = direct_items(&message);
        let shape = ReplyShape { len: message.len(), items: &items };
        match ReplyPlan::new(asked.xid, credits, &asked.chunks, self.inline.send, shape) {
            Ok(plan) => {
                let metrics = &self.service.nfs.metrics;
                metrics.bytes_out(message.len());
                // The device reads data from the buffers that storage filled.
                let data = message.payload_bytes();
                metrics.data.carried(Transport::Rdma, DataDirection::Read, data, 0);
                let invalidate = rkey_to_invalidate(&self.offer, &asked.chunks);
                let (writes, send) = post(&plan, &pieces, invalidate);
                Ok(self.endpoint.send(writes, Some(send))?)
            }
            Err(fault) => {
                tracing::debug!(peer = %self.source.peer.address, %fault, "a reply does not fit");
                self.send_error(asked.xid, ErrorBody::Chunk)
            }
        }
    }

    fn send_error(&mut self, xid: Xid, error: ErrorBody) -> Result<(), ConnectionEnd> {
        if self.endpoint.sends() >= MAX_REPLIES_IN_FLIGHT {
            // It sends what is no call, and takes no answers.
            return Err(Misbehaved::TooManyCalls.into());
        }
        // As any reply: with fewer, the client would hold back its other calls.
        let credits = self.receives.grant(self.wanted).ok_or(Bug::NoReceive)?;
        let gather = vec![Bytes::from(error_message(xid, credits, error))];
        Ok(self.endpoint.send(Vec::new(), Some(SendPart { gather, invalidate: None }))?)
    }

    fn send_callbacks(&mut self) -> Result<(), ConnectionEnd> {
        while let Some(send) = self.callbacks.next(self.inline.send) {
            self.endpoint.send(Vec::new(), Some(send))?;
        }
        Ok(())
    }

    /// Bytes of calls being read or executed, and of replies that may not have
    /// arrived.
    fn bytes_in_flight(&self) -> usize {
        self.pulling_bytes + self.running.bytes() + self.endpoint.sending_bytes()
    }
}

/// Returns the longest possible reply whose results go into these chunks.
fn reply_bytes(chunks: &Chunks) -> usize {
    let offered = chunks.writes.iter().chain(&chunks.reply);
    let most = offered.map(WriteChunk::capacity_bytes).sum::<u64>();
    usize::try_from(most).unwrap_or(usize::MAX).min(MAX_CALL_BYTES)
}
