//! Which fabric RDMA is served over, if any.

use std::net::SocketAddr;
use std::sync::Arc;
use zgate_config::FabricChoice;
use zgate_fabric::{EmulatedFabric, Fabric};
use zgate_store::BufferPool;
use zgate_verbs::VerbsFabric;

/// What the configuration says about RDMA.
#[derive(Clone, Debug, Default)]
pub(crate) struct RdmaSettings {
    /// Where NFS listens; empty: nowhere.
    pub listen: Vec<SocketAddr>,
    /// Whether iSCSI has portals on it, too.
    pub iser: bool,
    pub fabric: FabricChoice,
    /// Memory registered with the devices, in bytes.
    pub arena_bytes: usize,
}

impl RdmaSettings {
    /// Whether RDMA is wanted at all.
    fn is_wanted(&self) -> bool {
        !self.listen.is_empty() || self.iser
    }

    /// The pool of the process: over an arena when devices are to use it.
    pub(crate) fn pool(&self, idle_bytes: usize) -> BufferPool {
        if self.is_wanted() && self.fabric == FabricChoice::Auto {
            BufferPool::with_arena(idle_bytes, self.arena_bytes)
        } else {
            BufferPool::new(idle_bytes)
        }
    }

    /// Opens the fabric. What is missing is said in one line, and TCP goes on.
    pub(crate) fn open(&self, pool: &BufferPool) -> Option<Arc<dyn Fabric>> {
        if !self.is_wanted() {
            return None;
        }
        match self.fabric {
            FabricChoice::Emulated => Some(Arc::new(EmulatedFabric::new())),
            FabricChoice::Auto => match VerbsFabric::open(pool.clone()) {
                Ok(fabric) => Some(Arc::new(fabric)),
                Err(reason) => {
                    tracing::warn!(%reason, "no RDMA; clients are served over TCP");
                    None
                }
            },
        }
    }
}
