//! Runtime of the protocol: clocks, timers, background work, callbacks.

use super::back_channels::BackChannels;
use super::callback_connections::CallbackConnections;
use super::name_service::NameService;
use crate::net::boundary;
use crate::net::connections::Connections;
use crate::net::peer;
use bytes::Bytes;
use std::cell::RefCell;
use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use zgate_nfs::runtime::{
    BoxedFuture, CallbackFailure, CallbackPath, ConnectionId, Names, Now, Runtime,
};
use zgate_rpc::record::{MARKER_BYTES, Marker};
use zgate_store::Timestamp;
use zgate_xdr::Message;

/// Time limit of a callback, including the wait for a connection and the
/// connect if it needs its own.
const CALLBACK_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest callback reply accepted, in bytes.
const MAX_CALLBACK_REPLY_BYTES: usize = 64 << 10;

/// The gateway's [`Runtime`].
#[derive(Debug)]
pub(crate) struct GatewayRuntime {
    started: Instant,
    connections: Arc<Connections>,
    back_channels: Arc<BackChannels>,
    callbacks: Arc<CallbackConnections>,
    random: File,
    /// Names and groups of users.
    pub name_service: NameService,
}

impl GatewayRuntime {
    /// # Errors
    /// If the system's random number generator cannot be opened.
    pub(crate) fn new(
        connections: Arc<Connections>,
        back_channels: Arc<BackChannels>,
    ) -> std::io::Result<Self> {
        let random = File::open("/dev/urandom")?;
        Ok(Self {
            started: Instant::now(),
            connections,
            back_channels,
            callbacks: Arc::default(),
            random,
            name_service: NameService::new(),
        })
    }

    /// Returns the time of [`Now::monotonic_nanos`].
    pub(crate) fn nanos(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Returns the origin of [`Now::monotonic_nanos`].
    pub(crate) fn started(&self) -> Instant {
        self.started
    }
}

/// Random numbers read at a time by each thread, so that an id costs no system
/// call of its own.
const RANDOM_AT_ONCE: usize = 64;

thread_local! {
    /// Random numbers read and not yet used.
    static RANDOM: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Takes a number from the thread's own buffer, which is refilled from
/// `source`.
fn draw(mut source: &File) -> u64 {
    RANDOM.with_borrow_mut(|supply| {
        if supply.is_empty() {
            let mut bytes = [0; 8 * RANDOM_AT_ONCE];
            // Predictable ids would let anybody in: rather stop the service.
            source.read_exact(&mut bytes).expect("the system's random numbers can be read");
            let (words, _) = bytes.as_chunks::<8>();
            supply.extend(words.iter().map(|word| u64::from_ne_bytes(*word)));
        }
        supply.pop().unwrap_or_default()
    })
}

impl Runtime for GatewayRuntime {
    fn spawn(&self, work: BoxedFuture<()>) {
        tokio::spawn(boundary::caught("work behind a reply", work));
    }

    fn callback(
        &self,
        path: CallbackPath,
        xid: u32,
        call: Message,
    ) -> BoxedFuture<Result<Bytes, CallbackFailure>> {
        let back_channels = Arc::clone(&self.back_channels);
        let callbacks = Arc::clone(&self.callbacks);
        Box::pin(async move {
            let exchange = async {
                match path {
                    CallbackPath::Connection(id) => {
                        let reply = back_channels
                            .call(peer::ConnectionId(id.0), xid, call)
                            .ok_or(CallbackFailure::Unreachable)?;
                        reply.await.map_err(|_| CallbackFailure::Unreachable)
                    }
                    CallbackPath::Address(address) => {
                        let leave = callbacks.leave(address.ip()).await;
                        let _leave = leave.ok_or(CallbackFailure::Unreachable)?;
                        call_address(address, &call).await.map_err(|_| CallbackFailure::Unreachable)
                    }
                }
            };
            let timed = tokio::time::timeout(CALLBACK_TIMEOUT, exchange).await;
            timed.unwrap_or(Err(CallbackFailure::TimedOut))
        })
    }

    fn sleep(&self, milliseconds: u64) -> BoxedFuture<()> {
        Box::pin(tokio::time::sleep(Duration::from_millis(milliseconds)))
    }

    fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now {
            wall: Timestamp { seconds: wall.as_secs() as i64, nanoseconds: wall.subsec_nanos() },
            monotonic_nanos: self.nanos(),
        }
    }

    fn connected(&self, connection: ConnectionId) -> bool {
        self.connections.contains(peer::ConnectionId(connection.0))
    }

    fn random(&self) -> u64 {
        draw(&self.random)
    }

    fn names(&self) -> Option<&dyn Names> {
        self.name_service.names()
    }
}

/// Sends one call over its own connection: callbacks of minor version 0 are
/// rare.
async fn call_address(address: SocketAddr, call: &Message) -> std::io::Result<Bytes> {
    let invalid = || std::io::Error::from(std::io::ErrorKind::InvalidData);
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let body = call.flatten().ok_or_else(invalid)?;
    let marker = Marker::whole(body.len()).ok_or_else(invalid)?;
    stream.write_all(&[&marker[..], &body].concat()).await?;
    let mut reply = Vec::new();
    loop {
        let mut raw = [0; MARKER_BYTES];
        stream.read_exact(&mut raw).await?;
        let marker = Marker::parse(raw);
        let at = reply.len();
        if at + marker.len > MAX_CALLBACK_REPLY_BYTES {
            return Err(invalid());
        }
        reply.resize(at + marker.len, 0);
        stream.read_exact(&mut reply[at..]).await?;
        if marker.last {
            return Ok(Bytes::from(reply));
        }
    }
}
