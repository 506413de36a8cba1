//! One TCP connection of the test suite and its RDMA connection to the gateway.

use super::Tally;
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use zgate_fabric::{
    Access, Connection, EmulatedFabric, Event, Exposed, Fabric, SendBatch, SendPart, Setup, WorkId,
};
use zgate_nfs_wire::bulk::{BulkPosition, DirectResults, bulk_position};
use zgate_rpc::record::{self, Marker, Parsed};
use zgate_rpcrdma::client::{CallFrame, CallParts, Reply, ReplyError, Results};
use zgate_rpcrdma::{
    Body, Chunks, Credit, Direction, Header, InlineBytes, PrivateData, Segment, SendCredits,
    WriteChunk, Xid, direction,
};
use zgate_store::AlignedBuf;

/// Inline size of a Linux client.
const INLINE_BYTES: u32 = 4096;
const CREDITS_WANTED: u32 = 64;
/// Enough for all credits and for callbacks.
const RECEIVES: u64 = 80;
/// Longest reply that a session may negotiate, in bytes.
const REPLY_BYTES: usize = (1 << 20) + (64 << 10);
const READ_BYTES: usize = 1 << 20;
/// Shorter results are sent inline, in bytes.
const DIRECT_BYTES: usize = 1024;
/// Longest segment offered, so that chunks have several.
const SEGMENT_BYTES: usize = 128 << 10;
/// Time for the gateway to become reachable again.
const PATIENCE: Duration = Duration::from_secs(10);
/// accept_stat SYSTEM_ERR (RFC 5531 §9).
const SYSTEM_ERR: u32 = 5;

type Lent = Box<dyn Exposed>;

/// A call in progress at the gateway, with the memory exposed for it.
struct Carried {
    credit: Credit,
    offered: Chunks,
    direct: DirectResults,
    results: Vec<Lent>,
    long: Lent,
    _arguments: Option<Lent>,
}

struct Carrier {
    stream: TcpStream,
    fabric: EmulatedFabric,
    verbs: Box<dyn Connection>,
    inline: InlineBytes,
    credits: SendCredits,
    waiting: VecDeque<Bytes>,
    /// By transaction id: a client may use one twice.
    under_way: HashMap<u32, VecDeque<Carried>>,
    tally: Arc<Tally>,
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

fn segments(lent: &Lent) -> Vec<Segment> {
    let part = |at: usize| Segment {
        handle: lent.rkey(),
        length: SEGMENT_BYTES.min(lent.len() - at) as u32,
        offset: lent.address() + at as u64,
    };
    (0..lent.len()).step_by(SEGMENT_BYTES).map(part).collect()
}

async fn connect(
    fabric: &EmulatedFabric,
    to: SocketAddr,
) -> io::Result<(Box<dyn Connection>, InlineBytes)> {
    let own = PrivateData {
        remote_invalidation: true,
        send_bytes: INLINE_BYTES,
        receive_bytes: INLINE_BYTES,
    };
    let begun = std::time::Instant::now();
    loop {
        let buffer = || AlignedBuf::zeroed(INLINE_BYTES as usize);
        let receives = (0..RECEIVES).map(|id| (WorkId(id), buffer())).collect();
        let private_data = own.encode().to_vec();
        let setup = Setup { receives, private_data, ..Setup::default() };
        match fabric.connect(to, setup).await {
            Ok(made) => {
                let theirs = PrivateData::decode(&made.private_data);
                return Ok((made.connection, InlineBytes::negotiate(&own, &theirs)));
            }
            Err(error) if begun.elapsed() > PATIENCE => return Err(io::Error::other(error)),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Serves the test suite's connection until either side closes it.
///
/// # Errors
/// Protocol errors of either side.
pub(super) async fn serve(stream: TcpStream, to: SocketAddr, tally: Arc<Tally>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let fabric = EmulatedFabric::new();
    let (verbs, inline) = connect(&fabric, to).await?;
    let mut carrier = Carrier {
        stream,
        fabric,
        verbs,
        inline,
        credits: SendCredits::default(),
        waiting: VecDeque::new(),
        under_way: HashMap::new(),
        tally,
    };
    carrier.run().await
}

impl Carrier {
    async fn run(&mut self) -> io::Result<()> {
        let mut received = Vec::new();
        let mut part = vec![0; 64 << 10];
        loop {
            tokio::select! {
                got = self.stream.read(&mut part) => {
                    let got = got?;
                    if got == 0 {
                        return Ok(());
                    }
                    received.extend_from_slice(&part[..got]);
                    while let Parsed::Record(found) =
                        record::parse(&received).map_err(io::Error::other)?
                    {
                        let message = Bytes::copy_from_slice(&found.body(&received));
                        received.drain(..found.consumed);
                        self.take_from_judge(message)?;
                    }
                    self.send_waiting()?;
                }
                event = self.verbs.event() => match event {
                    Event::Received { id, buffer, len, .. } => {
                        let message = Bytes::copy_from_slice(&buffer[..len]);
                        self.verbs.post_receive(id, buffer);
                        self.take_from_gateway(&message).await?;
                        self.send_waiting()?;
                    }
                    Event::Disconnected(why) => return Err(io::Error::other(why.to_string())),
                    Event::Sent { .. } | Event::Read { .. } | Event::Failed { .. } => {}
                }
            }
        }
    }

    /// A call, or the reply to a callback.
    fn take_from_judge(&mut self, message: Bytes) -> io::Result<()> {
        let Some(xid) = Reply::xid(&message) else {
            return Err(io::Error::other("a record without transaction id"));
        };
        if direction(xid, &message) == Some(Direction::Reply) {
            let body = Body::Message(Chunks::default());
            let header = Header { xid, credits: CREDITS_WANTED, body }.encode();
            return self.post(vec![Bytes::from(header), message]);
        }
        self.waiting.push_back(message);
        Ok(())
    }

    fn send_waiting(&mut self) -> io::Result<()> {
        while !self.waiting.is_empty() {
            let Some(credit) = self.credits.take() else { return Ok(()) };
            if let Some(call) = self.waiting.pop_front() {
                self.send(credit, &call)?;
            }
        }
        Ok(())
    }

    fn lend(&self, bytes: &[u8], len: usize, access: Access) -> io::Result<Lent> {
        let mut buffer = AlignedBuf::zeroed(len);
        buffer[..bytes.len()].copy_from_slice(bytes);
        self.fabric.expose(buffer, access)
    }

    fn send(&mut self, credit: Credit, call: &Bytes) -> io::Result<()> {
        let xid = Reply::xid(call).unwrap_or(Xid(0));
        let (to_read, to_write) =
            (Access { read: true, write: false }, Access { read: false, write: true });
        let direct = DirectResults::of_call(call);
        let mut results = Vec::new();
        for count in direct.max_bytes.iter().take_while(|count| **count >= DIRECT_BYTES) {
            results.push(self.lend(&[], (*count).min(READ_BYTES), to_write)?);
        }
        let long = self.lend(&[], REPLY_BYTES, to_write)?;
        let writes: Vec<WriteChunk> =
            results.iter().map(|lent| WriteChunk { segments: segments(lent) }).collect();
        let parts = |bulk, whole| CallParts {
            len: call.len(),
            bulk,
            whole,
            writes: writes.clone(),
            reply: Some(WriteChunk { segments: segments(&long) }),
        };
        let frame = |parts| CallFrame::new(xid, CREDITS_WANTED, self.inline.send, parts);
        // Inline if it fits, otherwise the data of a WRITE in a chunk,
        // otherwise the whole call.
        let (frame, arguments) = match frame(parts(None, &[])) {
            Ok(inline) => (inline, None),
            Err(_) => {
                let (lent, framed) = match bulk_position(call) {
                    BulkPosition::At { offset, len } => {
                        add(&self.tally.read_chunks);
                        let lent = self.lend(&call[offset..offset + len], len, to_read)?;
                        let framed = frame(parts(Some((offset, len, &segments(&lent))), &[]));
                        (lent, framed)
                    }
                    BulkPosition::NeedMore | BulkPosition::None => {
                        add(&self.tally.whole_calls);
                        let lent = self.lend(call, call.len(), to_read)?;
                        let framed = frame(parts(None, &segments(&lent)));
                        (lent, framed)
                    }
                };
                (framed.map_err(io::Error::other)?, Some(lent))
            }
        };
        add(&self.tally.calls);
        let mut gather = vec![Bytes::from(frame.header)];
        gather.extend(frame.inline.iter().map(|range| call.slice(range.clone())));
        let offered = frame.offered;
        let carried = Carried { credit, offered, direct, results, long, _arguments: arguments };
        self.under_way.entry(xid.0).or_default().push_back(carried);
        self.post(gather)
    }

    fn post(&mut self, gather: Vec<Bytes>) -> io::Result<()> {
        let send = Some(SendPart { gather, invalidate: None });
        let batch = SendBatch { id: WorkId(1 << 40), writes: Vec::new(), send };
        self.verbs.post_send(batch).map_err(io::Error::other)
    }

    async fn pass_to_judge(&mut self, message: &[u8]) -> io::Result<()> {
        let marker = Marker::whole(message.len()).ok_or(io::ErrorKind::InvalidData)?;
        self.stream.write_all(&marker).await?;
        self.stream.write_all(message).await
    }

    /// A reply, or a callback.
    async fn take_from_gateway(&mut self, message: &Bytes) -> io::Result<()> {
        let decoded = Header::decode(message).map_err(io::Error::other)?;
        let xid = decoded.header.xid;
        if matches!(decoded.header.body, Body::Message(_))
            && direction(xid, decoded.inline) == Some(Direction::Call)
        {
            add(&self.tally.callbacks);
            return self.pass_to_judge(decoded.inline).await;
        }
        let Some(carried) = self.under_way.get_mut(&xid.0).and_then(VecDeque::pop_front) else {
            return Err(io::Error::other("a reply to no call"));
        };
        let Carried { credit, offered, direct, results, long, .. } = carried;
        let reply = match Reply::read(message, &offered) {
            Ok(reply) => reply,
            Err(ReplyError::Chunk) => {
                add(&self.tally.refused);
                self.credits.forfeit(credit);
                let words = [xid.0, 1, 0, 0, 0, SYSTEM_ERR];
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
                return self.pass_to_judge(&bytes).await;
            }
            Err(error) => return Err(io::Error::other(error)),
        };
        self.credits.answered(credit, reply.credits);
        let long = long.withdraw();
        let body = match reply.results {
            Results::Inline(bytes) => bytes,
            Results::InReplyChunk { len } => {
                add(&self.tally.reply_chunks);
                &long[..len]
            }
        };
        let results: Vec<AlignedBuf> = results.into_iter().map(|lent| lent.withdraw()).collect();
        let whole = self.put_back(body, &direct, &reply.written, &results);
        self.pass_to_judge(&whole).await
    }

    /// Converts the reply to the form it has over TCP.
    fn put_back(
        &self,
        body: &[u8],
        direct: &DirectResults,
        written: &[usize],
        results: &[AlignedBuf],
    ) -> Vec<u8> {
        let mut whole = Vec::with_capacity(body.len() + written.iter().sum::<usize>() + 16);
        let mut from = 0;
        let places = direct.offsets(body, written.len());
        for ((place, written), result) in places.into_iter().zip(written).zip(results) {
            whole.extend_from_slice(&body[from..place]);
            whole.extend_from_slice(&result[..*written]);
            whole.resize(whole.len().next_multiple_of(4), 0);
            from = place;
            if *written > 0 {
                add(&self.tally.write_chunks);
            }
        }
        whole.extend_from_slice(&body[from..]);
        whole
    }
}
