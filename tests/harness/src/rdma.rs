//! A client that speaks RPC-over-RDMA over the emulated fabric.

use bytes::Bytes;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::mpsc;
use zgate_fabric::{
    Access, Connection, EmulatedFabric, Event, Exposed, Fabric, SendBatch, SendPart, Setup, WorkId,
};
use zgate_rpcrdma::client::{CallFrame, CallParts, Reply, ReplyError, Results};
use zgate_rpcrdma::{Chunks, PrivateData, Segment, WriteChunk, Xid};
use zgate_store::AlignedBuf;
use zgate_xdr::{Message, Segment as Piece};

const RECEIVE_BYTES: usize = 4096;

/// Memory that the server may access.
pub type Lent = Box<dyn Exposed>;

/// Memory that a call offers to the server.
#[derive(Default)]
pub struct Offer<'a> {
    /// The bulk data of the call, at this position.
    pub bulk: Option<(usize, usize, Vec<Segment>)>,
    /// The whole call.
    pub whole: Vec<Segment>,
    /// Chunks for results.
    pub writes: Vec<WriteChunk>,
    /// Chunk for a long reply.
    pub reply: Option<&'a Lent>,
}

/// A received reply.
#[derive(Debug)]
pub struct Answer {
    /// The RPC message, without results that were written directly.
    pub message: Bytes,
    /// Number of bytes in each write chunk.
    pub written: Vec<usize>,
    pub credits: u32,
    /// Key that the server invalidated.
    pub invalidated: Option<u32>,
    /// Set if the reply arrived in the reply chunk.
    pub long: bool,
}

/// A connection.
pub struct RdmaClient {
    pub fabric: EmulatedFabric,
    pub connection: Box<dyn Connection>,
    pub server: PrivateData,
    answers: HashMap<u32, (Vec<u8>, Option<u32>)>,
}

/// Returns a segment of a part of exposed memory.
pub fn part(lent: &Lent, offset: usize, len: usize) -> Segment {
    let (handle, offset) = (lent.rkey(), lent.address() + offset as u64);
    Segment { handle, length: len as u32, offset }
}

/// Returns segments of all of it, with at most `piece` bytes each.
pub fn segments(lent: &Lent, piece: usize) -> Vec<Segment> {
    let starts = (0..lent.len()).step_by(piece);
    starts.map(|at| part(lent, at, piece.min(lent.len() - at))).collect()
}

/// Number of turns of the runtime of a client before it gets stuck, so that its
/// calls are sent.
const LAST_TURNS: usize = 100;

/// Sends READs of `each` bytes on a separate thread, whose device then stops
/// completing data while the connection stays open. Dropping the result ends
/// the thread.
pub fn stuck(
    fabric: EmulatedFabric,
    to: SocketAddr,
    each: usize,
    calls: Vec<(u32, Message)>,
) -> mpsc::Sender<()> {
    let (sent, wait) = mpsc::channel();
    let (keep, kept) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        // Kept until the end: without it the connection is closed.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let client = runtime.block_on(async {
            let mut client = RdmaClient::connect_over(fabric, to).await;
            client.fabric.stop_taking();
            let lent = client.lend(&vec![0; each]);
            for (xid, message) in &calls {
                let writes = vec![WriteChunk { segments: segments(&lent, each) }];
                client.send(*xid, message, &Offer { writes, ..Offer::default() });
            }
            for _ in 0..LAST_TURNS {
                tokio::task::yield_now().await;
            }
            (client, lent)
        });
        sent.send(()).expect("somebody waits");
        // Until the test drops the result.
        let _ = kept.recv();
        drop(client);
    });
    wait.recv().expect("a stuck client");
    keep
}

impl RdmaClient {
    pub async fn connect(to: SocketAddr) -> Self {
        Self::connect_over(EmulatedFabric::new(), to).await
    }

    pub async fn connect_over(fabric: EmulatedFabric, to: SocketAddr) -> Self {
        Self::try_connect_over(fabric, to).await.expect("a connection")
    }

    /// The same; an error if the server refuses.
    pub async fn try_connect_over(fabric: EmulatedFabric, to: SocketAddr) -> std::io::Result<Self> {
        let own = PrivateData { remote_invalidation: true, send_bytes: 4096, receive_bytes: 4096 };
        let receives = (0..80).map(|id| (WorkId(id), AlignedBuf::zeroed(RECEIVE_BYTES))).collect();
        let private_data = own.encode().to_vec();
        let setup = Setup { receives, private_data, ..Setup::default() };
        let made = fabric.connect(to, setup).await.map_err(std::io::Error::other)?;
        let server = PrivateData::decode(&made.private_data);
        Ok(Self { fabric, connection: made.connection, server, answers: HashMap::new() })
    }

    /// Exposes memory with this content.
    pub fn lend(&self, bytes: &[u8]) -> Lent {
        let mut buffer = AlignedBuf::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        self.fabric.expose(buffer, Access { read: true, write: true }).expect("memory")
    }

    /// Sends raw bytes.
    pub fn send_raw(&mut self, bytes: Vec<u8>) {
        let send = Some(SendPart { gather: vec![Bytes::from(bytes)], invalidate: None });
        let batch = SendBatch { id: WorkId(1), writes: Vec::new(), send };
        self.connection.post_send(batch).expect("a good batch");
    }

    /// Sends a call and returns its chunk lists.
    pub fn send(&mut self, xid: u32, message: &Message, offer: &Offer<'_>) -> Chunks {
        let flat = message.flatten().expect("in memory");
        let bulk = offer.bulk.as_ref();
        let parts = CallParts {
            len: flat.len(),
            bulk: bulk.map(|(at, len, segments)| (*at, *len, &segments[..])),
            whole: &offer.whole,
            writes: offer.writes.clone(),
            reply: offer.reply.map(|lent| WriteChunk { segments: segments(lent, 4096) }),
        };
        let frame = CallFrame::new(Xid(xid), 32, 4096, parts).expect("a call that fits");
        let mut bytes = frame.header;
        frame.inline.iter().for_each(|range| bytes.extend_from_slice(&flat[range.clone()]));
        self.send_raw(bytes);
        frame.offered
    }

    /// Waits for the next message from the server.
    pub async fn receive(&mut self) -> (Vec<u8>, Option<u32>) {
        loop {
            match self.connection.event().await {
                Event::Received { id, buffer, len, invalidated } => {
                    let message = buffer[..len].to_vec();
                    self.connection.post_receive(id, buffer);
                    return (message, invalidated);
                }
                Event::Sent { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Waits for the reply to a call.
    pub async fn answer(
        &mut self,
        xid: u32,
        offered: &Chunks,
        offer: &Offer<'_>,
    ) -> Result<Answer, ReplyError> {
        while !self.answers.contains_key(&xid) {
            let (message, invalidated) = self.receive().await;
            let Xid(of) = Reply::xid(&message).expect("a message");
            self.answers.insert(of, (message, invalidated));
        }
        let (raw, invalidated) = self.answers.remove(&xid).expect("just seen");
        let reply = Reply::read(&raw, offered)?;
        let (message, long) = match reply.results {
            Results::Inline(bytes) => (Bytes::copy_from_slice(bytes), false),
            Results::InReplyChunk { len } => {
                assert!(offer.reply.is_some_and(|lent| lent.len() >= len));
                (Bytes::from(vec![0; len]), true)
            }
        };
        let (credits, written) = (reply.credits, reply.written);
        Ok(Answer { message, written, credits, invalidated, long })
    }

    /// Sends a call and waits for its reply.
    pub async fn call(
        &mut self,
        xid: u32,
        message: &Message,
        offer: &Offer<'_>,
    ) -> Result<Answer, ReplyError> {
        let offered = self.send(xid, message, offer);
        self.answer(xid, &offered, offer).await
    }
}

/// Returns the position of the bulk data in a message, and the data.
pub fn bulk_of(message: &Message) -> (usize, Bytes) {
    let mut at = 0;
    for piece in &message.segments {
        if let Piece::Payload(zgate_store::Payload::Bytes(data)) = piece {
            return (at, data.clone());
        }
        at += piece.len();
    }
    panic!("no bulk data")
}
