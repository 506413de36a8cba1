//! The gateway's side of a seed: listener, core, connections, sessions and SCSI, as shipped, on
//! this thread, over a disk in memory.

use super::draw::Plan;
use super::initiator::TARGET;
use crate::exports::attempts::Wake;
use crate::exports::open::Opening;
use crate::iscsi::luns::state_files::StateFiles;
use crate::iscsi::luns::unit::UnitHome;
use crate::iscsi::luns::volumes::Volumes;
use crate::iscsi::service::IscsiService;
use crate::iscsi::settings::settings;
use crate::iscsi::tcp;
use crate::iscsi::tests::gate;
use crate::net::arrival::{Arrival, NewConnection, Protocol};
use crate::net::connections::{ConnectionLimits, Connections};
use crate::net::core::{Core, Network};
use crate::net::memory_quota::MemoryQuota;
use crate::net::seeds::listener::{listen, network};
use crate::net::seeds::peer::Site;
use crate::net::seeds::run::Gateway;
use crate::net::seeds::served::Served;
use crate::state_dir::StateDir;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::spawn_local;
use zgate_io::{EngineChoice, IoEngine};
use zgate_memory::SimDisk;
use zgate_store::BufferPool;

/// Most connections, and most of one host. A crowd leaves room for the logins of others.
const LIMITS: ConnectionLimits = ConnectionLimits { total: 400, per_client: 40 };
/// Connections of which a drain that forgets some forgets one.
const FORGOTTEN_ONE_IN: usize = 3;
/// Unused buffers that the pool keeps, in bytes.
const IDLE_BYTES: usize = 64 << 20;
/// Length of the disk, and of the file in whose place it is, in bytes.
const DISK_BYTES: u64 = 32 << 20;
/// Memory that a connection keeps which gives not all of it back, in bytes.
const KEPT_BYTES: usize = 64 << 10;

/// A fault that is planted, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Connections keep a part of the quota when they end.
    QuotaKept,
    /// Some connections do not learn that the gateway stops.
    DrainForgets,
    /// Connections do not learn that the gateway is held.
    HoldUntold,
    /// Sessions are not told the time.
    TimeUntold,
}

/// The gateway's side, and what it needs from before its thread has a runtime.
pub(super) struct Room {
    iscsi: Arc<IscsiService>,
    pool: BufferPool,
    fault: Option<Fault>,
}

impl Room {
    /// Opens the disk, whose file is in `dir`.
    pub(super) fn open(dir: &Path, state_dir: &Arc<StateDir>, fault: Option<Fault>) -> Self {
        let file = dir.join("disk.img");
        std::fs::File::create(&file).unwrap().set_len(DISK_BYTES).unwrap();
        gate::replace(&file, Arc::new(SimDisk::new(DISK_BYTES)));
        let text = format!(
            "[server]\nstate_dir = \"{0}/state\"\n[iscsi]\nlisten = [\"127.0.0.1:3260\"]\n\
             [[target]]\nname = \"{TARGET}\"\nallow_any_initiator = true\n\
             [[target.lun]]\nnumber = 0\npath = \"{0}/disk.img\"\ndirect = \"never\"\n",
            dir.display()
        );
        let config = zgate_config::parse(&text, Path::new("seeds.toml")).unwrap();
        let settings = settings(&config).unwrap();
        let (engine, pool) =
            (IoEngine::new(EngineChoice::Threads, 1).unwrap(), BufferPool::new(IDLE_BYTES));
        let files = Arc::new(StateFiles::start(Arc::clone(state_dir)).unwrap());
        let home = UnitHome::new(engine, pool.clone(), files, &settings).unwrap();
        let volumes = Volumes::new(Wake::default());
        let service = IscsiService::new(&settings, home, volumes, Opening::StrictStart);
        Self { iscsi: Arc::new(service.unwrap()), pool, fault }
    }

    /// Starts to serve.
    pub(super) fn start(self, plan: &Plan) -> (Target, Site) {
        let Self { iscsi, pool, fault } = self;
        let connections = Arc::new(Connections::new(LIMITS));
        let quota = MemoryQuota::new(plan.budget_bytes, true, pool.clone());
        let network_of_core = || network((&connections, &quota), &pool, Box::new(|_| false));
        let (main, other) = (network_of_core(), network_of_core());
        let [all, forgotten] = [&main, &other].map(|one| Rc::new(Core::new(0, Arc::clone(one))));
        let (address, arrivals) = listen(Protocol::Iscsi, &main);
        let served = Rc::<Served>::default();
        let site = Site { address, served: Rc::clone(&served) };
        let of_core = OneCore { iscsi: Arc::clone(&iscsi), all, forgotten, served, fault };
        spawn_local(of_core.run(arrivals));
        spawn_local(tick(Arc::clone(&iscsi), Arc::clone(&main), fault));
        (Target { network: main, iscsi, served: Rc::clone(&site.served), fault }, site)
    }
}

/// Tells sessions the time, as the first core of a gateway does.
async fn tick(iscsi: Arc<IscsiService>, network: Arc<Network>, fault: Option<Fault>) {
    let mut every = tokio::time::interval(Duration::from_secs(1));
    loop {
        every.tick().await;
        if fault != Some(Fault::TimeUntold) && !network.drain.keeps_waiting() {
            iscsi.tick();
        }
        iscsi.look_after_sessions();
    }
}

/// A gateway that serves.
pub(super) struct Target {
    network: Arc<Network>,
    iscsi: Arc<IscsiService>,
    served: Rc<Served>,
    fault: Option<Fault>,
}

impl Gateway for Target {
    fn network(&self) -> &Arc<Network> {
        &self.network
    }

    fn resume(&self, held: Duration) {
        self.iscsi.resume(held);
    }

    fn keeps_hold_secret(&self) -> bool {
        self.fault == Some(Fault::HoldUntold)
    }

    fn sound(&self) -> Result<(), String> {
        self.served.check_hosts(LIMITS)
    }

    fn remains(&self) -> Vec<(&'static str, usize)> {
        let running_bytes = self.iscsi.stats.running_bytes() as usize;
        let sessions = self.iscsi.sessions().len();
        vec![("sessions", sessions), ("bytes of running commands", running_bytes)]
    }
}

/// The core that serves all connections.
struct OneCore {
    iscsi: Arc<IscsiService>,
    all: Rc<Core>,
    /// For connections that do not learn of a drain.
    forgotten: Rc<Core>,
    served: Rc<Served>,
    fault: Option<Fault>,
}

impl OneCore {
    async fn run(self, mut incoming: UnboundedReceiver<NewConnection>) {
        let mut count = 0_usize;
        while let Some(NewConnection { arrival, peer, slot }) = incoming.recv().await {
            let Arrival::Tcp(_, stream) = arrival else { continue };
            let stream = TcpStream::from_std(stream).unwrap();
            count += 1;
            let forgets = self.fault == Some(Fault::DrainForgets);
            let is_forgotten = forgets && count.is_multiple_of(FORGOTTEN_ONE_IN);
            let core = Rc::clone(if is_forgotten { &self.forgotten } else { &self.all });
            let (iscsi, served) = (Arc::clone(&self.iscsi), Rc::clone(&self.served));
            let keeps_quota = self.fault == Some(Fault::QuotaKept);
            let from = SocketAddr::new(peer.address, peer.port);
            served.begin(from);
            spawn_local(async move {
                tcp::serve(stream, peer, slot, iscsi, Rc::clone(&core)).await;
                if keeps_quota {
                    let mut kept = core.network.reservation(peer.address);
                    kept.set(KEPT_BYTES);
                    std::mem::forget(kept);
                }
                served.end(from);
            });
        }
    }
}
