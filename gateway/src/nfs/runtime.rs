//! Runtime of the protocol: clocks, timers, background work, callbacks.

use super::back_channels::BackChannels;
use super::callback_connections::CallbackConnections;
use super::callback_stream::CallbackStream;
use super::gss::callbacks::ProtectedClient;
use super::gss::kerberos::Kerberos;
use super::limits::CALLBACK_TIMEOUT;
use super::name_service::NameService;
use crate::net::boundary;
use crate::net::connections::Connections;
use crate::net::peer;
use bytes::Bytes;
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::runtime::Handle;
use zgate_nfs::runtime::{
    BoxedFuture, CallbackFailure, CallbackPath, ConnectionId, Names, Now, Runtime,
};
use zgate_store::Timestamp;
use zgate_xdr::Message;

/// The gateway's [`Runtime`].
#[derive(Debug)]
pub(crate) struct GatewayRuntime {
    started: Instant,
    connections: Arc<Connections>,
    back_channels: Arc<BackChannels>,
    callbacks: Arc<CallbackConnections>,
    kerberos: Arc<Kerberos>,
    random: File,
    /// The core that works for threads that are none, once it runs.
    home: OnceLock<Handle>,
    /// Names and groups of users.
    pub name_service: NameService,
}

impl GatewayRuntime {
    /// # Errors
    /// If the system's random number generator cannot be opened.
    pub(crate) fn new(
        connections: Arc<Connections>,
        back_channels: Arc<BackChannels>,
        kerberos: Arc<Kerberos>,
    ) -> io::Result<Self> {
        let random = File::open("/dev/urandom")?;
        Ok(Self {
            started: Instant::now(),
            connections,
            back_channels,
            callbacks: Arc::default(),
            kerberos,
            random,
            home: OnceLock::new(),
            name_service: NameService::new(),
        })
    }

    /// Sets the core that works for threads that are none, such as those that follow datasets.
    pub(crate) fn set_home(&self, core: Handle) {
        // Set once: the first core calls this, when it starts.
        let _ = self.home.set(core);
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
        let work = boundary::caught("work behind a reply", work);
        let here = Handle::try_current().ok();
        // Before the first core runs nothing is sent: the clock of leases, which runs there, sends
        // recalls again.
        if let Some(core) = here.as_ref().or(self.home.get()) {
            core.spawn(work);
        }
    }

    fn callback(
        &self,
        path: CallbackPath,
        xid: u32,
        call: Message,
    ) -> BoxedFuture<Result<Bytes, CallbackFailure>> {
        let callbacks = Arc::clone(&self.callbacks);
        match path {
            CallbackPath::Connection(id) => {
                let back_channels = Arc::clone(&self.back_channels);
                Box::pin(timed(async move {
                    let reply = back_channels.call(peer::ConnectionId(id.0), xid, call);
                    reply.ok_or(CallbackFailure::Unreachable)?.await.map_err(unreachable)
                }))
            }
            CallbackPath::Address(address) => Box::pin(timed(async move {
                let leave = callbacks.leave(address.ip()).await;
                let _leave = leave.ok_or(CallbackFailure::Unreachable)?;
                let call = call.flatten().ok_or(CallbackFailure::Unreachable)?;
                let mut stream = CallbackStream::connect(address).await.map_err(unreachable)?;
                stream.exchange(&call).await.map_err(unreachable)
            })),
            CallbackPath::Protected(address, security) => {
                let (kerberos, started) = (Arc::clone(&self.kerberos), self.started);
                Box::pin(async move {
                    let (security, connections) = (&*security, &*callbacks);
                    let client = ProtectedClient { address, security, connections, started };
                    kerberos.call_client(client, xid, &call).await
                })
            }
        }
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

    fn seconds(&self) -> u64 {
        self.started.elapsed().as_secs()
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

async fn timed(
    exchange: impl Future<Output = Result<Bytes, CallbackFailure>>,
) -> Result<Bytes, CallbackFailure> {
    let timed = tokio::time::timeout(CALLBACK_TIMEOUT, exchange).await;
    timed.unwrap_or(Err(CallbackFailure::TimedOut))
}

fn unreachable<E>(_: E) -> CallbackFailure {
    CallbackFailure::Unreachable
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::connections::ConnectionLimits;

    /// Leases are renewed by [`Runtime::seconds`], and expire by the clock of [`Runtime::now`].
    #[test]
    fn the_seconds_are_those_of_the_clock_of_requests() {
        let connections = Connections::new(ConnectionLimits { total: 1, per_client: 1 });
        let runtime = GatewayRuntime::new(Arc::new(connections), Arc::default(), Arc::default());
        let mut runtime = runtime.unwrap();
        runtime.started -= Duration::from_secs(90);
        let before = runtime.now().seconds();
        let seconds = runtime.seconds();
        let after = runtime.now().seconds();
        assert!((before..=after).contains(&seconds), "{seconds} is not in {before} to {after}");
        assert!(before >= 90);
    }
}
