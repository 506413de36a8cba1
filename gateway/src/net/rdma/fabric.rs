//! Choice of the RDMA fabric.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use zgate_config::FabricChoice;
use zgate_fabric::{EmulatedFabric, Fabric};
use zgate_store::BufferPool;
use zgate_verbs::VerbsFabric;

/// File in the state directory that controls the emulated device: `gone`, or
/// `down` for its port. Without it the device works.
const EMULATED_DEVICE: &str = "emulated-device";
/// Interval at which that file is read.
const EMULATED_PERIOD: Duration = Duration::from_millis(100);

/// RDMA settings of the configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct RdmaSettings {
    /// Addresses for NFS; empty: none.
    pub listen: Vec<SocketAddr>,
    /// Set if iSCSI has portals on it, too.
    pub iser: bool,
    pub fabric: FabricChoice,
    /// Memory registered with the devices, in bytes.
    pub arena_bytes: usize,
    /// Time without completed work after which a client's connection is closed.
    pub stall: Duration,
}

/// Means of opening the fabric, whose libraries and devices may not be present
/// yet.
#[derive(Clone, Debug)]
pub(crate) struct FabricSource {
    choice: FabricChoice,
    pool: BufferPool,
    state_dir: PathBuf,
}

impl RdmaSettings {
    /// Returns whether RDMA is configured.
    fn is_wanted(&self) -> bool {
        !self.listen.is_empty() || self.iser
    }

    /// Memory that is pinned for devices, in bytes.
    pub(crate) fn pinned_bytes(&self) -> usize {
        let pins = self.is_wanted() && self.fabric == FabricChoice::Auto;
        if pins { self.arena_bytes } else { 0 }
    }

    /// Creates the pool of the process, over an arena if devices use it.
    pub(crate) fn pool(&self, idle_bytes: usize) -> BufferPool {
        if self.is_wanted() && self.fabric == FabricChoice::Auto {
            let (memory, pages) = zgate_io::arena::allocate(self.arena_bytes);
            tracing::info!(bytes = memory.len(), %pages, "arena for RDMA devices");
            BufferPool::with_arena(idle_bytes, memory)
        } else {
            BufferPool::new(idle_bytes)
        }
    }

    /// Returns the source of the fabric; `None` if RDMA is not configured.
    pub(crate) fn source(&self, pool: &BufferPool, state_dir: &Path) -> Option<FabricSource> {
        let (choice, pool) = (self.fabric, pool.clone());
        self.is_wanted().then(|| FabricSource { choice, pool, state_dir: state_dir.to_owned() })
    }
}

impl FabricSource {
    /// Opens the fabric. May take long: the arena is pinned and registered.
    ///
    /// # Errors
    /// The missing part, in one line.
    pub(crate) fn open(&self) -> Result<Arc<dyn Fabric>, String> {
        match self.choice {
            FabricChoice::Emulated => emulated(&self.state_dir),
            FabricChoice::Auto => match VerbsFabric::open(self.pool.clone()) {
                Ok(fabric) => Ok(Arc::new(fabric)),
                Err(reason) => Err(reason.to_string()),
            },
        }
    }
}

/// Creates the emulated fabric, and a thread that applies the control file in
/// the state directory to its device.
fn emulated(state_dir: &Path) -> Result<Arc<dyn Fabric>, String> {
    let path = state_dir.join(EMULATED_DEVICE);
    let said = move || std::fs::read_to_string(&path).unwrap_or_default();
    if said().trim() == "gone" {
        return Err("no RDMA device: the emulated device was removed".to_owned());
    }
    let fabric = EmulatedFabric::new();
    let device = fabric.clone();
    let watch = move || {
        let mut down = false;
        loop {
            let said = said();
            match said.trim() {
                "gone" => device.unplug(),
                _ => device.plug(),
            }
            if (said.trim() == "down") != down {
                down = !down;
                device.set_port(!down);
            }
            std::thread::sleep(EMULATED_PERIOD);
        }
    };
    let thread = std::thread::Builder::new().name("zgate-emulated".to_owned());
    thread.spawn(watch).map_err(|error| error.to_string())?;
    Ok(Arc::new(fabric))
}
