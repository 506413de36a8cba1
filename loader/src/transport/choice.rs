//! Choice of the transport of a client's calls, with the reason.

use super::dial::Dial;
use crate::url::Rdma;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use zgate_fabric::Fabric;
use zgate_nfs_wire::rdma::PORT as NFS_RDMA_PORT;
use zgate_store::BufferPool;
use zgate_verbs::VerbsFabric;

/// Memory for messages, registered once: receives and sends of a few dozen
/// connections, well below the usual limit of locked memory.
const MESSAGE_ARENA_BYTES: usize = 4 << 20;

/// Transports that a client may use.
#[derive(Clone, Debug)]
pub struct TransportChoice {
    mode: Rdma,
    port: u16,
    fabric: Option<Arc<dyn Fabric>>,
    pool: BufferPool,
    reason: String,
    /// Makes connections in place of the system's sockets.
    dial: Option<Arc<dyn Dial>>,
}

/// TCP only.
impl Default for TransportChoice {
    fn default() -> Self {
        Self::tcp("rdma=off".to_owned())
    }
}

impl TransportChoice {
    fn tcp(reason: String) -> Self {
        let pool = BufferPool::new(MESSAGE_ARENA_BYTES);
        Self { mode: Rdma::Off, port: NFS_RDMA_PORT, fabric: None, pool, reason, dial: None }
    }

    /// Creates a choice with RDMA over a fabric, to this port of the server's
    /// addresses.
    #[must_use]
    pub fn over(fabric: Arc<dyn Fabric>, mode: Rdma, port: u16) -> Self {
        let pool = BufferPool::new(MESSAGE_ARENA_BYTES);
        let reason = mode.reason().to_owned();
        Self { mode, port, fabric: Some(fabric), pool, reason, dial: None }
    }

    /// Creates a choice of streams that are no sockets.
    #[must_use]
    pub fn dialed(dial: Arc<dyn Dial>) -> Self {
        Self { dial: Some(dial), ..Self::tcp("dialed".to_owned()) }
    }

    /// Creates a choice from this machine's devices: RDMA if there is one.
    ///
    /// # Errors
    /// With `rdma=on`: the reason for which there is no RDMA here.
    pub fn discover(mode: Rdma, port: u16) -> Result<Self, String> {
        if mode == Rdma::Off {
            return Ok(Self::default());
        }
        // Devices stay open while the process runs.
        static HERE: OnceLock<(u32, Opened)> = OnceLock::new();
        let process = std::process::id();
        let (of, here) = HERE.get_or_init(|| (process, open()));
        // A child created by fork can use neither the device nor the threads.
        let forked = Err("RDMA devices were opened before this process forked".to_owned());
        let here = if *of == process || here.is_err() { here } else { &forked };
        match (here, mode) {
            (Ok((fabric, pool)), _) => {
                let choice = Self::over(Arc::new(fabric.clone()), mode, port);
                Ok(Self { pool: pool.clone(), ..choice })
            }
            (Err(reason), Rdma::On) => Err(reason.clone()),
            (Err(reason), _) => Ok(Self::tcp(format!("rdma=auto: {reason}"))),
        }
    }

    /// Returns the maker of connections, if they are no sockets.
    pub(crate) fn dial(&self) -> Option<Arc<dyn Dial>> {
        self.dial.clone()
    }

    /// Returns whether TCP may be used.
    pub(crate) fn allows_tcp(&self) -> bool {
        self.mode != Rdma::On
    }

    /// Returns the fabric and the server's address on it, if RDMA may be used.
    pub(crate) fn rdma(&self, server: SocketAddr) -> Option<(Arc<dyn Fabric>, SocketAddr)> {
        let fabric = self.fabric.as_ref().filter(|_| self.mode != Rdma::Off)?;
        Some((Arc::clone(fabric), SocketAddr::new(server.ip(), self.port)))
    }

    /// Returns the fabric, if RDMA may be used.
    pub(crate) fn fabric(&self) -> Option<Arc<dyn Fabric>> {
        self.fabric.clone().filter(|_| self.mode != Rdma::Off)
    }

    /// Returns the pool for messages.
    pub(crate) fn pool(&self) -> &BufferPool {
        &self.pool
    }

    /// Returns the reason for this choice.
    pub(crate) fn reason(&self) -> &str {
        &self.reason
    }
}

type Opened = Result<(VerbsFabric, BufferPool), String>;

fn open() -> Opened {
    let (memory, _) = zgate_io::arena::allocate(MESSAGE_ARENA_BYTES);
    let pool = BufferPool::with_arena(MESSAGE_ARENA_BYTES, memory);
    let fabric = VerbsFabric::open(pool.clone()).map_err(|error| error.to_string())?;
    Ok((fabric, pool))
}

impl Rdma {
    fn reason(self) -> &'static str {
        match self {
            Self::Auto => "rdma=auto",
            Self::On => "rdma=on",
            Self::Off => "rdma=off",
        }
    }
}
