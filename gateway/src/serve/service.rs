//! What every core shares, and what each has of its own.

use super::admitted::Admitted;
use super::attention::Attention;
use super::connections::Connections;
use super::counters::Counters;
use super::fair_share::{FairShare, Held};
use super::health::Health;
use super::rdma_state::RdmaState;
use super::runtime::GatewayRuntime;
use super::ways::Ways;
use crate::block::service::BlockService;
use crate::observe::pools::PoolWatch;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::Notify;
use zgate_nfs::runtime::ConnectionId;
use zgate_rpc::drc::ReplyCache;
use zgate_store::BufferPool;

/// One for the process.
pub(crate) struct Shared {
    pub v4: Arc<zgate_nfs::v4::Server>,
    pub v3: zgate_nfs::v3::Server,
    pub mount: zgate_nfs::mount::Server,
    pub replies: ReplyCache,
    pub connections: Arc<Connections>,
    /// Counts replacements of the exports: what connections know of their hosts
    /// is about one of them.
    pub exports_generation: AtomicU64,
    pub runtime: Arc<GatewayRuntime>,
    pub pool: BufferPool,
    /// What files are read and written with.
    pub engine: zgate_io::EngineKind,
    /// When the process started, in seconds since 1970.
    pub started_unix_seconds: u32,
    /// Where NFS listens.
    pub nfs_addresses: std::sync::OnceLock<Vec<std::net::SocketAddr>>,
    /// The ways clients are told to take.
    pub ways: Ways,
    /// Where RDMA is served, and why it is not.
    pub rdma: Arc<RdmaState>,
    /// How long an RDMA client may complete nothing of what it was sent.
    pub rdma_stall: std::time::Duration,
    /// Above this many bytes of buffers in use, connections take in one
    /// request at a time.
    pub buffer_bytes: usize,
    /// What of them each client may hold.
    pub shares: Arc<FairShare>,
    /// How long a core stays awake after traffic, in microseconds.
    pub poll_microseconds: u32,
    pub metrics: Arc<Counters>,
    pub drain: Drain,
    /// The way to the cores, to ask whether they answer.
    pub health: Health,
    /// What the process's descriptors are for.
    pub descriptors: super::descriptors::Descriptors,
    pub block: Arc<BlockService>,
    /// The datasets behind exports and logical units.
    pub facts: crate::follow::facts::Facts,
    /// How the machine's pools are.
    pub pools: Arc<PoolWatch>,
    /// What the snapshot schedules did.
    pub schedules: crate::schedule::Views,
}

/// One for each core.
pub(crate) struct Service {
    pub shared: Arc<Shared>,
    /// Whether this core stays awake.
    pub attention: Attention,
    /// Which of its connections may call.
    pub admitted: Admitted,
}

impl Service {
    /// What a new connection of this client holds: nothing yet.
    pub(crate) fn held_by(&self, client: IpAddr) -> Held {
        self.shared.shares.connect(client, self.shared.ways.weight_of(client))
    }

    /// Forgets a connection everywhere.
    pub(crate) fn connection_closed(&self, connection: ConnectionId) {
        self.shared.connections.remove(connection);
        self.shared.v4.connection_closed(connection);
    }
}

/// The wish to stop: new requests are not read any more, those that run are
/// finished.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    wanted: AtomicBool,
    changed: Notify,
}

impl Drain {
    pub(crate) fn begin(&self) {
        self.wanted.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Whether draining has begun.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    /// Returns once draining has begun.
    pub(crate) async fn wait(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.wanted.load(Ordering::Acquire) {
                return;
            }
            changed.await;
        }
    }
}
