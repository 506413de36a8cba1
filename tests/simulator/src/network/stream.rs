//! Connections of the loader: byte streams, whose bytes arrive in pieces, and of
//! which a reply may be cut in the middle.

use super::{Inside, Link, Network};
use crate::dice::Dice;
use crate::executor::{Domain, SECOND, lock};
use crate::gateway::operand;
use crate::invariant::{ANSWER_SECONDS, Invariant};
use crate::loader::{Clock, LOADER};
use crate::mutant::Mutant;
use bytes::{Buf, Bytes, BytesMut};
use std::collections::BTreeMap;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use zgate_loader::transport::{Dial, Dialing, Halves, ReceiveHalf};
use zgate_nfs_wire::v4::OpNum;
use zgate_rpc::record::{MARKER_BYTES, Marker};

/// Most bytes of a read that ends early.
const SHORT_READ_BYTES: u64 = 96;
/// A planted fault: bytes by which a read is shifted.
const SHIFT_BYTES: u64 = 8;

/// The loader's end of a connection.
#[derive(Default)]
struct End {
    /// Bytes that have arrived and are not read yet.
    arrived: BytesMut,
    /// Bytes sent that are no whole record yet.
    sent: BytesMut,
    is_closed: bool,
    reader: Option<Waker>,
    /// Calls of the server that wait for their replies.
    called: BTreeMap<u32, oneshot::Sender<Bytes>>,
}

/// A connection of the loader.
pub(super) struct Stream {
    end: Arc<Mutex<End>>,
    clock: Arc<Clock>,
    /// Requests without a reply, with the time at which they were sent.
    asked: BTreeMap<u32, u64>,
    /// A planted fault: a READ was sent.
    has_read: bool,
}

impl Stream {
    /// Bytes arrive.
    fn deliver(&self, record: &[u8], most: Option<usize>) {
        let Some(marker) = Marker::whole(record.len()) else { return };
        let mut end = lock(&self.end);
        let before = end.arrived.len();
        end.arrived.extend_from_slice(&marker);
        end.arrived.extend_from_slice(record);
        if let Some(most) = most {
            end.arrived.truncate(before + most);
        }
        self.wake(&mut end);
    }

    fn wake(&self, end: &mut End) {
        if let Some(reader) = end.reader.take() {
            self.clock.touch();
            reader.wake();
        }
    }

    /// The connection ends; what has arrived can still be read.
    pub(super) fn close(&mut self) {
        self.asked.clear();
        let mut end = lock(&self.end);
        end.is_closed = true;
        let called = std::mem::take(&mut end.called);
        self.wake(&mut end);
        drop(end);
        drop(called);
    }
}

/// Receiving half.
struct Receiving {
    end: Arc<Mutex<End>>,
    dice: Dice,
}

impl Receiving {
    /// Returns the number of bytes that can be taken now, at least one unless
    /// the stream has ended.
    fn poll_some(
        &mut self,
        context: &mut Context<'_>,
        take: impl FnOnce(&mut BytesMut, usize) -> usize,
    ) -> Poll<usize> {
        let mut end = lock(&self.end);
        if end.arrived.is_empty() {
            if end.is_closed {
                return Poll::Ready(0);
            }
            end.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        let all = end.arrived.len();
        let short = 1 + self.dice.below(SHORT_READ_BYTES) as usize;
        let most = if self.dice.once_in(4) { all.min(short) } else { all };
        Poll::Ready(take(&mut end.arrived, most))
    }
}

impl AsyncRead for Receiving {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let take = |arrived: &mut BytesMut, most: usize| {
            let count = most.min(buffer.remaining());
            buffer.put_slice(&arrived.split_to(count));
            count
        };
        self.get_mut().poll_some(context, take).map(|_| Ok(()))
    }
}

impl ReceiveHalf for Receiving {
    fn poll_read_vectored(
        &mut self,
        context: &mut Context<'_>,
        places: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        let take = |arrived: &mut BytesMut, most: usize| {
            let mut left = most;
            for place in places.iter_mut() {
                let count = left.min(place.len());
                arrived.copy_to_slice(&mut place[..count]);
                left -= count;
            }
            most - left
        };
        self.poll_some(context, take).map(Ok)
    }
}

/// Sending half.
struct Sending {
    end: Arc<Mutex<End>>,
    clock: Arc<Clock>,
    network: Weak<Network>,
    number: u64,
}

impl Drop for Sending {
    fn drop(&mut self) {
        if let Some(network) = self.network.upgrade() {
            self.clock.catch_up();
            network.cut(self.number);
            self.clock.ring();
        }
    }
}

impl AsyncWrite for Sending {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.clock.catch_up();
        let Some(network) = self.network.upgrade() else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        let mut whole = Vec::new();
        {
            let mut end = lock(&self.end);
            if end.is_closed {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            end.sent.extend_from_slice(bytes);
            while let Some(record) = next_record(&mut end.sent) {
                whole.push(record);
            }
        }
        for record in whole {
            network.sent_by_loader(self.number, record);
        }
        self.clock.ring();
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

pub(crate) fn next_record(sent: &mut BytesMut) -> Option<Bytes> {
    let marker = *sent.first_chunk::<MARKER_BYTES>()?;
    let len = Marker::parse(marker).len;
    if sent.len() < MARKER_BYTES + len {
        return None;
    }
    sent.advance(MARKER_BYTES);
    Some(sent.split_to(len).freeze())
}

/// The loader's way to the server.
pub struct LoaderDial {
    pub network: Arc<Network>,
    pub clock: Arc<Clock>,
}

impl std::fmt::Debug for LoaderDial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LoaderDial")
    }
}

impl Dial for LoaderDial {
    fn dial(&self, _: SocketAddr) -> Dialing {
        let (tell, told) = oneshot::channel();
        let (network, clock) = (Arc::clone(&self.network), Arc::clone(&self.clock));
        clock.catch_up();
        let executor = Arc::clone(&network.executor);
        executor.spawn(Domain::Outside, async move {
            let made = network.dialed(&clock).await;
            clock.touch();
            // The loader may have given up: its halves end the connection.
            let _ = tell.send(made);
        });
        self.clock.ring();
        Box::pin(async move {
            told.await.unwrap_or_else(|_| Err(io::ErrorKind::ConnectionRefused.into()))
        })
    }
}

impl Network {
    /// Connects the loader, if there is a server.
    async fn dialed(self: &Arc<Self>, clock: &Arc<Clock>) -> io::Result<Halves> {
        self.executor.sleep(2 * self.delay()).await;
        self.passage(LOADER).await;
        let server = self.gateway().and_then(|gateway| gateway.running());
        let server = server.ok_or(io::ErrorKind::ConnectionRefused)?;
        let end = Arc::<Mutex<End>>::default();
        let (number, dice) = {
            let mut inside = lock(&self.inside);
            let number = inside.next;
            inside.next += 1;
            let dice = Dice::new(inside.dice.u64(), "pieces");
            let stream = Stream {
                end: Arc::clone(&end),
                clock: Arc::clone(clock),
                asked: BTreeMap::new(),
                has_read: false,
            };
            let link = Link {
                client: LOADER,
                server,
                alive: true,
                last_arrival: 0,
                waiting: BTreeMap::new(),
                nic: None,
                stream: Some(stream),
                secure: None,
            };
            inside.links.insert(number, link);
            (number, dice)
        };
        self.trace.note("network", format_args!("the loader connects: #{number}"));
        let receiving = Receiving { end: Arc::clone(&end), dice };
        let (clock, network) = (Arc::clone(clock), Arc::downgrade(self));
        Ok((Box::new(receiving), Box::new(Sending { end, clock, network, number })))
    }

    /// The loader has sent a record.
    fn sent_by_loader(self: &Arc<Self>, number: u64, record: Bytes) {
        let Some(xid) = xid_of(&record) else { return };
        let now = self.executor.nanos();
        let (arrival, record, survives) = {
            let mut inside = lock(&self.inside);
            let delay = inside.dice.spread(10_000, super::USUAL_NANOS);
            let survives = inside.dice.once_in(2);
            let Some(link) = inside.links.get_mut(&number).filter(|link| link.alive) else {
                return;
            };
            let Some(stream) = &mut link.stream else { return };
            if is_reply(&record) {
                let told = lock(&stream.end).called.remove(&xid);
                if let Some(told) = told {
                    // The server may have given up.
                    let _ = told.send(record);
                }
                return;
            }
            stream.asked.insert(xid, now);
            link.last_arrival = link.last_arrival.max(now + delay);
            (link.last_arrival, self.mistaken(&mut inside, number, record), survives)
        };
        let me = Arc::clone(self);
        self.executor.spawn(Domain::Outside, async move {
            me.executor.sleep_until(arrival).await;
            me.passage(LOADER).await;
            me.arrive(number, xid, record, survives);
        });
    }

    /// A planted fault: what a faulty loader would send.
    fn mistaken(&self, inside: &mut Inside, number: u64, record: Bytes) -> Bytes {
        match self.mutant {
            Some(Mutant::OffsetAfterReconnect) => {
                let reconnected = inside.loader_lost > 0;
                let Some(at) = operand(&record, OpNum::Read, u32::MAX) else { return record };
                let stream = inside.links.get_mut(&number).and_then(|link| link.stream.as_mut());
                let first = stream.is_some_and(|s| !std::mem::replace(&mut s.has_read, true));
                // Behind the stateid.
                if first && reconnected { shifted(&record, at + 16) } else { record }
            }
            Some(Mutant::LeavesWithoutAWord) => with_shifted(record, OpNum::DestroyClientid),
            Some(Mutant::DelegationKept) => with_shifted(record, OpNum::Delegreturn),
            _ => record,
        }
    }

    /// A reply reaches the loader; `false` if the connection is none of its.
    pub(super) fn reply_to_loader(
        self: &Arc<Self>,
        number: u64,
        client: usize,
        xid: u32,
        mut reply: Bytes,
    ) -> bool {
        if client != LOADER {
            return false;
        }
        let cut = {
            let mut inside = lock(&self.inside);
            let inside = &mut *inside;
            let link = inside.links.get_mut(&number).filter(|link| link.alive);
            let stream = match link {
                None if self.mutant == Some(Mutant::DeadReplyTaken) => {
                    let mut links = inside.links.values_mut().filter(|link| link.alive);
                    links.find_map(|link| link.stream.as_mut().filter(|s| !s.asked.is_empty()))
                }
                link => link.and_then(|link| link.stream.as_mut()),
            };
            let Some(stream) = stream else { return true };
            if stream.asked.remove(&xid).is_none()
                && self.mutant == Some(Mutant::DeadReplyTaken)
                && let Some((other, _)) = stream.asked.pop_first()
            {
                reply =
                    [&other.to_be_bytes()[..], reply.get(4..).unwrap_or_default()].concat().into();
            }
            let most = inside.cut_reply.take();
            stream.deliver(&reply, most);
            most.is_some()
        };
        if cut {
            self.cut(number);
        }
        true
    }

    /// The next reply to the loader arrives up to this byte; then its connection
    /// breaks.
    pub fn cut_next_reply(&self, bytes: usize) {
        lock(&self.inside).cut_reply = Some(bytes);
    }

    /// Checks that all requests of the loader have their replies in time, once
    /// the faults are over.
    pub fn check_loader(&self) {
        let now = self.executor.nanos();
        let late = {
            let inside = lock(&self.inside);
            let Some(end) = inside.faults_end else { return };
            let is_late = |sent: u64| now.saturating_sub(sent.max(end)) > ANSWER_SECONDS * SECOND;
            let links = inside.links.iter().filter(|(_, link)| link.alive);
            let late = links.filter_map(|(number, link)| {
                let asked = &link.stream.as_ref()?.asked;
                asked.iter().find(|(_, sent)| is_late(**sent)).map(|(xid, _)| (*number, *xid))
            });
            late.into_iter().next()
        };
        if let Some((number, xid)) = late {
            let text = format!("the loader's request {xid:x} on #{number}: no reply, no end of it");
            self.history.fail(Invariant::BoundedAnswer, text);
        }
    }

    /// The server calls the loader over one of its connections; pending if the
    /// connection ends first.
    pub(super) async fn call_loader(&self, number: u64, call: &[u8]) -> Bytes {
        let (tell, told) = oneshot::channel();
        if let Some(xid) = xid_of(call) {
            let inside = lock(&self.inside);
            let link = inside.links.get(&number).filter(|link| link.alive);
            if let Some(stream) = link.and_then(|link| link.stream.as_ref()) {
                lock(&stream.end).called.insert(xid, tell);
                stream.deliver(call, None);
            }
        }
        match told.await {
            Ok(reply) => reply,
            // The server does not know yet that the connection is gone.
            Err(_) => std::future::pending().await,
        }
    }
}

pub(crate) fn xid_of(record: &[u8]) -> Option<u32> {
    record.first_chunk::<4>().map(|xid| u32::from_be_bytes(*xid))
}

/// The message type behind the transaction id (RFC 5531 §9).
pub(crate) fn is_reply(record: &[u8]) -> bool {
    record.get(4..8) == Some(&1u32.to_be_bytes()[..])
}

/// The record with another number at the beginning of this operation's arguments,
/// if it has the operation.
fn with_shifted(record: Bytes, wanted: OpNum) -> Bytes {
    operand(&record, wanted, u32::MAX).map_or(record.clone(), |at| shifted(&record, at))
}

/// The record with another number at this place.
fn shifted(record: &Bytes, at: usize) -> Bytes {
    let mut changed = record.to_vec();
    if let Some(place) = changed.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<8>()) {
        *place = (u64::from_be_bytes(*place) ^ SHIFT_BYTES).to_be_bytes();
    }
    changed.into()
}
