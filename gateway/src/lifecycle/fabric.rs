//! Which fabric RDMA is served over, if any.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use zgate_config::FabricChoice;
use zgate_fabric::{EmulatedFabric, Fabric};
use zgate_store::BufferPool;
use zgate_verbs::VerbsFabric;

/// The file in the state directory that says what the emulated device does:
/// `gone`, or `down` for its port. Without it all is well.
const EMULATED_DEVICE: &str = "emulated-device";
/// How often it is looked at.
const EMULATED_PERIOD: Duration = Duration::from_millis(100);

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
    /// How long a client may complete nothing of what it was sent.
    pub stall: Duration,
}

/// How to get at the fabric: its libraries and devices may be yet to come.
#[derive(Clone, Debug)]
pub(crate) struct FabricSource {
    choice: FabricChoice,
    pool: BufferPool,
    state_dir: PathBuf,
}

impl RdmaSettings {
    /// Whether RDMA is wanted at all.
    fn is_wanted(&self) -> bool {
        !self.listen.is_empty() || self.iser
    }

    /// The pool of the process: over an arena when devices are to use it.
    pub(crate) fn pool(&self, idle_bytes: usize) -> BufferPool {
        if self.is_wanted() && self.fabric == FabricChoice::Auto {
            let (memory, pages) = zgate_io::arena::allocate(self.arena_bytes);
            tracing::info!(bytes = memory.len(), %pages, "arena for RDMA devices");
            BufferPool::with_arena(idle_bytes, memory)
        } else {
            BufferPool::new(idle_bytes)
        }
    }

    /// Where the fabric comes from; `None` when RDMA is not wanted.
    pub(crate) fn source(&self, pool: &BufferPool, state_dir: &Path) -> Option<FabricSource> {
        let (choice, pool) = (self.fabric, pool.clone());
        self.is_wanted().then(|| FabricSource { choice, pool, state_dir: state_dir.to_owned() })
    }
}

impl FabricSource {
    /// Opens it. May take a while: the arena is pinned and registered.
    ///
    /// # Errors
    /// What is missing, in one line.
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

/// The emulated fabric, and a thread that does to its device what the file in
/// the state directory says.
fn emulated(state_dir: &Path) -> Result<Arc<dyn Fabric>, String> {
    let path = state_dir.join(EMULATED_DEVICE);
    let said = move || std::fs::read_to_string(&path).unwrap_or_default();
    if said().trim() == "gone" {
        return Err("no RDMA device: the emulated one is taken away".to_owned());
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
