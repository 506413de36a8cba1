//! Cores and their threads: starting, ticking, draining.

use super::cores::{First, RdmaPortals, run_core};
use super::fabric::RdmaSettings;
use super::process::{divide_descriptors, obey_quotas, prefer_thread, raise_descriptor_limit};
use super::recovery::DirRecovery;
use super::state_dir::{StateDir, random_bytes};
use super::stores::{OpenStores, open_store};
use crate::block::service::BlockService;
use crate::block::settings::{BlockSettings, Portal};
use crate::block::unit::UnitHome;
use crate::follow::facts::{Facts, FollowedExport};
use crate::follow::numbers::with_volumes;
use crate::follow::plan::{DatasetRef, Volume};
use crate::follow::store::FollowedStore;
use crate::listen::accept::{Protocol, bind};
use crate::serve::boundary::bring_down;
use crate::serve::connections::{ConnectionLimits, Connections};
use crate::serve::counters::Counters;
use crate::serve::descriptors::Descriptors;
use crate::serve::fair_share::FairShare;
use crate::serve::health::Health;
use crate::serve::rdma_state::RdmaState;
use crate::serve::runtime::GatewayRuntime;
use crate::serve::service::{Drain, Shared};
use crate::serve::ways::Ways;
use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc;
use zgate_iscsi::login::Transport;
use zgate_nfs::namespace::{Export, Namespace, StableNames};
use zgate_nfs::runtime::Runtime;
use zgate_nfs::v4::guard::StateGuard;
use zgate_nfs::v4::server::{Identity, ServerOptions};
use zgate_nfs::v4::state::State;
use zgate_nfs::v4::state::grace::GracePeriod;
use zgate_posix::PosixOptions;
use zgate_store::{BufferPool, FileStore};

/// Unused buffer memory kept for the next requests, in bytes.
const IDLE_BUFFER_BYTES: usize = 256 << 20;

/// How long what is let go of may take to be closed.
const RELEASE_PATIENCE: Duration = Duration::from_secs(5);

/// How long cores may take to end once they are told to.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// What a gateway needs to know to start.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub state_dir: PathBuf,
    pub nfs: Vec<SocketAddr>,
    pub rdma: RdmaSettings,
    /// Addresses clients reach this server at.
    pub interfaces: Vec<zgate_config::InterfaceConfig>,
    pub cores: usize,
    pub lease_seconds: u32,
    pub grace: GracePeriod,
    pub identity: Identity,
    pub connections: ConnectionLimits,
    pub engine: zgate_io::EngineChoice,
    pub worker_threads: usize,
    /// How long a core stays awake after traffic, in microseconds.
    pub poll_microseconds: u32,
    /// Nice value of the cores' threads.
    pub core_nice: i32,
    pub fd_cache_entries: usize,
    /// What requests and replies may hold; 0: a quarter of the memory.
    pub buffer_bytes: usize,
    pub fair_shares: bool,
    pub drain: Duration,
}

/// An export to be opened.
#[derive(Clone, Debug)]
pub(crate) struct ExportSettings {
    pub path: PathBuf,
    pub pseudo_path: String,
    pub id: Option<u32>,
    pub clients: Vec<zgate_nfs::namespace::ClientRule>,
    pub read_only: bool,
    pub max_transfer_bytes: u32,
    pub versions: zgate_nfs::namespace::export::Versions,
    pub tcp: bool,
    pub rdma: bool,
    pub delegations: bool,
    pub delegated_times: bool,
    pub sync_names: bool,
    pub reserved_port_only: bool,
    pub snapshots_visible: bool,
    pub direct_io: zgate_posix::DirectIo,
    /// The dataset it follows, if it is one.
    pub dataset: Option<DatasetRef>,
}

/// A running gateway.
pub(crate) struct Gateway {
    pub shared: Arc<Shared>,
    pub addresses: Vec<SocketAddr>,
    threads: std::sync::Mutex<Vec<JoinHandle<()>>>,
    stop: tokio::sync::watch::Sender<bool>,
    options: PosixOptions,
    state_dir: Arc<StateDir>,
    stores: std::sync::Mutex<OpenStores>,
    drain: Duration,
}

/// Opens the exports of a gateway.
fn open_exports(
    exports: &[ExportSettings],
    options: &PosixOptions,
    generation: u64,
    kept: &OpenStores,
) -> io::Result<(Namespace, OpenStores)> {
    let mut opened = Vec::new();
    let mut now = OpenStores::default();
    for export in exports {
        let id = match export.id {
            Some(number) => zgate_nfs::namespace::ExportId(number),
            None => zgate_nfs::namespace::ExportId::from_pseudo_path(&export.pseudo_path),
        };
        let store = match kept.find(id, export) {
            Some(store) => store,
            None if export.dataset.as_ref().is_some_and(|dataset| dataset.away) => continue,
            None => match open_store(export, id, options, exports.len()) {
                Ok(store) => store,
                // Found, not named: it may be gone again.
                Err(error) if export.dataset.is_some() => {
                    tracing::warn!(%error, "a dataset is not exported");
                    continue;
                }
                Err(error) => return Err(error),
            },
        };
        now.add(id, export, &store);
        let store = store.files();
        let store: Arc<dyn FileStore> =
            if export.sync_names { Arc::new(StableNames::over(store)) } else { store };
        opened.push(Arc::new(Export {
            id,
            pseudo_path: export.pseudo_path.clone(),
            source: export.path.display().to_string(),
            store,
            clients: export.clients.clone(),
            read_only: export.read_only,
            max_transfer_bytes: export.max_transfer_bytes,
            versions: export.versions,
            tcp: export.tcp,
            rdma: export.rdma,
            delegations: export.delegations,
            delegated_times: export.delegated_times,
            reserved_port_only: export.reserved_port_only,
        }));
    }
    let namespace = Namespace::new(opened, generation)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
    Ok((namespace, now))
}

/// Tells the stores of datasets where these are.
fn place_followed(exports: &[ExportSettings], stores: &OpenStores) -> Vec<FollowedExport> {
    let followed = stores.followed();
    let mut views = Vec::new();
    for export in exports {
        let Some(dataset) = &export.dataset else { continue };
        for (_, store) in followed.iter().filter(|(guid, _)| *guid == dataset.guid) {
            if dataset.away {
                store.hold(Duration::ZERO);
            } else {
                store.found_at(&export.path);
            }
            views.push(FollowedExport {
                pseudo_path: export.pseudo_path.clone(),
                dataset: dataset.clone(),
                store: Arc::clone(store),
            });
        }
    }
    views
}

impl Gateway {
    /// Opens everything, then listens: a client that connects is served.
    ///
    /// # Errors
    /// Naming the thing, the reason and the next step.
    pub(crate) fn start(
        settings: &Settings,
        exports: &[ExportSettings],
        block: &BlockSettings,
        volumes: &[Volume],
    ) -> io::Result<Self> {
        raise_descriptor_limit();
        obey_quotas();
        let state_dir = Arc::new(StateDir::open(&settings.state_dir)?);
        let block = &with_volumes(block, volumes, &state_dir)?;
        let engine = zgate_io::IoEngine::new(settings.engine, settings.worker_threads)?;
        let kind = engine.kind();
        tracing::info!(engine = ?kind, reason = engine.reason(), "io engine");
        let pool = settings.rdma.pool(IDLE_BUFFER_BYTES);
        let source = settings.rdma.source(&pool, &settings.state_dir);
        let ways = Ways::new(&settings.interfaces, &settings.rdma.listen);
        let nfs = settings.rdma.listen.iter().map(|address| (*address, Protocol::Rpc));
        let disks = block.iser().map(|address| (address, Protocol::Iscsi));
        let rdma_portals: RdmaPortals = nfs.chain(disks).collect();
        let rdma = RdmaState::new(&rdma_portals);
        let uses_rdma = source.is_some();
        let fabric = source.map(|source| (source, rdma_portals));
        let mut options = PosixOptions::new(engine.clone(), pool.clone());
        let plan = divide_descriptors(settings, exports, block);
        options.fd_cache_entries = settings.fd_cache_entries;
        options.descriptors = plan.budget();
        options.handle_secret = Some(state_dir.handle_secret()?);
        let (namespace, stores) = open_exports(exports, &options, 1, &OpenStores::default())?;
        let followed = place_followed(exports, &stores);
        let home = UnitHome::new(engine, pool.clone(), Arc::clone(&state_dir), block)?;
        let block_service = Arc::new(BlockService::new(block, home)?);
        let shared = build(
            settings,
            Arc::clone(&state_dir),
            namespace,
            pool,
            block_service,
            kind,
            (ways, rdma, Descriptors::new(plan, Arc::clone(&options.descriptors))),
        )?;
        shared.facts.set_followed(followed);
        let mut listeners = Vec::new();
        let mut addresses = Vec::new();
        for address in &settings.nfs {
            let listener = bind(*address)?;
            addresses.push(listener.local_addr()?);
            listeners.push((listener, Protocol::Rpc));
        }
        let mut portals = Vec::new();
        for portal in &block.portals {
            if portal.transport == Transport::Iser {
                portals.push(*portal);
                continue;
            }
            let listener = bind(portal.address)?;
            portals.push(Portal { address: listener.local_addr()?, ..*portal });
            listeners.push((listener, Protocol::Iscsi));
        }
        shared.block.set_portals(portals);
        let (background, units) = mpsc::unbounded_channel();
        shared.block.set_background(background);
        // Set once, here.
        let _ = shared.nfs_addresses.set(addresses.clone());
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..settings.cores.max(1)).map(|_| mpsc::unbounded_channel()).unzip();
        let mut threads = Vec::new();
        let mut first = Some(First { listeners, fabric, cores: senders, units });
        let questions = shared.health.open(receivers.len());
        for (core, (incoming, questions)) in receivers.into_iter().zip(questions).enumerate() {
            let (shared, stopped) = (Arc::clone(&shared), stopped.clone());
            let first = first.take();
            let thread = std::thread::Builder::new().name(format!("zgate-core{core}"));
            let nice = settings.core_nice;
            let run = move || {
                prefer_thread(nice);
                if uses_rdma {
                    zgate_io::credentials::keep_identity();
                }
                let run = || run_core(core, shared, (incoming, questions), first, stopped);
                if !std::panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or(false) {
                    bring_down("a core");
                }
            };
            threads.push(thread.spawn(run)?);
        }
        Ok(Self {
            shared,
            addresses,
            threads: threads.into(),
            stop,
            options,
            state_dir,
            stores: stores.into(),
            drain: settings.drain,
        })
    }

    /// Replaces the exports and targets; connections and state stay.
    ///
    /// # Errors
    /// As [`Self::start`]; nothing has changed then.
    pub(crate) fn replace(
        &self,
        exports: &[ExportSettings],
        block: &BlockSettings,
        volumes: &[Volume],
    ) -> io::Result<()> {
        let block = &with_volumes(block, volumes, &self.state_dir)?;
        let generation = self.shared.v4.namespace().generation + 1;
        let mut stores = self.stores.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (namespace, now) = open_exports(exports, &self.options, generation, &stores)?;
        let prepared = self.shared.block.prepare(block)?;
        self.put_in_place(exports, namespace, &mut stores, now);
        self.shared.block.commit(prepared);
        Ok(())
    }

    /// Replaces the exports alone: datasets came, went or moved.
    ///
    /// # Errors
    /// As [`Self::start`]; nothing has changed then.
    pub(crate) fn replace_exports(&self, exports: &[ExportSettings]) -> io::Result<()> {
        let generation = self.shared.v4.namespace().generation + 1;
        let mut stores = self.stores();
        let (namespace, now) = open_exports(exports, &self.options, generation, &stores)?;
        self.put_in_place(exports, namespace, &mut stores, now);
        Ok(())
    }

    fn put_in_place(
        &self,
        exports: &[ExportSettings],
        namespace: Namespace,
        stores: &mut OpenStores,
        now: OpenStores,
    ) {
        let followed = place_followed(exports, &now);
        self.shared.v4.replace_namespace(namespace);
        self.shared.exports_generation.fetch_add(1, Ordering::Release);
        let namespace = self.shared.v4.namespace();
        self.shared.connections.exports_changed(|host| namespace.names_host(host));
        let before = std::mem::replace(stores, now).followed();
        // What is not exported any more is let go of, whoever still looks.
        for (_, store) in before {
            if !followed.iter().any(|export| Arc::ptr_eq(&export.store, &store)) {
                store.hold(Duration::ZERO);
            }
        }
        self.shared.facts.set_followed(followed);
    }

    /// Replaces the zvols of the targets alone.
    ///
    /// # Errors
    /// When their numbers cannot be kept, or a target is not there.
    pub(crate) fn replace_volumes(
        &self,
        block: &BlockSettings,
        volumes: &[Volume],
    ) -> io::Result<()> {
        self.shared.block.replace_followed(&with_volumes(block, volumes, &self.state_dir)?)
    }

    fn stores(&self) -> std::sync::MutexGuard<'_, OpenStores> {
        self.stores.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The stores of datasets, by their guids.
    pub(crate) fn followed(&self) -> Vec<(u64, Arc<FollowedStore>)> {
        self.stores().followed()
    }

    /// Lets go of what lies below exported paths and no client has open.
    pub(crate) fn release_paths(&self) {
        let fixed = self.stores().fixed();
        let (told, ended) = std::sync::mpsc::channel::<()>();
        for store in fixed {
            let told = told.clone();
            // Each on a worker of its own storage, which may not answer.
            store.engine().clone().detach(move || {
                store.release();
                drop(told);
            });
        }
        drop(told);
        // Ends when all have ended: nothing is ever sent.
        let _ = ended.recv_timeout(RELEASE_PATIENCE);
    }

    /// Finishes what runs, closes the connections and ends.
    pub(crate) fn stop(&self) {
        self.shared.drain.begin();
        let deadline = std::time::Instant::now() + self.drain;
        while self.shared.connections.len() > 0 && std::time::Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        // The cores have gone already when nobody hears this.
        let _ = self.stop.send(true);
        let threads = std::mem::take(
            &mut *self.threads.lock().unwrap_or_else(std::sync::PoisonError::into_inner),
        );
        let deadline = std::time::Instant::now() + END_PATIENCE;
        for thread in threads {
            while !thread.is_finished() && std::time::Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
            if !thread.is_finished() {
                tracing::error!(
                    "a core does not end: it waits for storage that does not answer; the process \
                     ends without it"
                );
            } else if thread.join().is_err() {
                tracing::error!("a core ended by a panic");
            }
        }
    }
}

/// A quarter of the machine's memory, at least 256 MiB.
fn quarter_of_memory() -> usize {
    let machine = rustix::system::sysinfo();
    let total = machine.totalram as usize * machine.mem_unit as usize;
    (total / 4).max(256 << 20)
}

/// Seconds since 1970, as far as 32 bits reach.
fn unix_seconds() -> u32 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u32::try_from(since.as_secs()).unwrap_or(u32::MAX))
}

fn build(
    settings: &Settings,
    state_dir: Arc<StateDir>,
    namespace: Namespace,
    pool: BufferPool,
    block: Arc<BlockService>,
    engine: zgate_io::EngineKind,
    (ways, rdma, descriptors): (Ways, Arc<RdmaState>, Descriptors),
) -> io::Result<Arc<Shared>> {
    let boot_epoch = state_dir.next_epoch(unix_seconds())?;
    let connections = Arc::new(Connections::new(descriptors.plan.connections));
    let runtime = Arc::new(GatewayRuntime::new(Arc::clone(&connections))?);
    let metrics = Arc::new(Counters::counting_data(Arc::clone(&block.figures.data)));
    let random = random_bytes()?;
    let mut write_verifier = [0; 8];
    write_verifier.copy_from_slice(&random[..8]);
    let state = State::new(
        boot_epoch,
        settings.lease_seconds,
        settings.grace,
        Arc::new(DirRecovery::start(state_dir)?),
        runtime.now().seconds(),
        Arc::<GatewayRuntime>::clone(&runtime),
    )
    .with_open_files(descriptors.plan.open_files);
    let options = ServerOptions {
        identity: settings.identity.clone(),
        boot_epoch,
        write_verifier,
        lease_seconds: settings.lease_seconds,
        grace_seconds: settings.grace.seconds,
        max_minor: 2,
        trunks: ways.trunks(),
    };
    let observer: Arc<dyn zgate_nfs::v4::server::Observer> = Arc::<Counters>::clone(&metrics);
    let outside: Arc<dyn Runtime> = Arc::<GatewayRuntime>::clone(&runtime);
    let v4 = Arc::new(zgate_nfs::v4::Server::new(options, state, namespace, outside, observer));
    let guard = Arc::new(StateGuard::default());
    guard.connect(&v4);
    let of_v4 = Arc::clone(&v4);
    let source: zgate_nfs::v3::NamespaceSource = Arc::new(move || of_v4.namespace());
    let buffer_bytes = match settings.buffer_bytes {
        0 => quarter_of_memory(),
        bytes => bytes,
    };
    Ok(Arc::new(Shared {
        v3: zgate_nfs::v3::Server {
            namespace: Arc::clone(&source),
            write_verifier: v4.write_verifier,
            guard,
        },
        v4,
        mount: zgate_nfs::mount::Server::new(source),
        replies: zgate_rpc::drc::ReplyCache::new(),
        connections,
        exports_generation: AtomicU64::new(0),
        runtime,
        pool,
        engine,
        started_unix_seconds: unix_seconds(),
        nfs_addresses: std::sync::OnceLock::new(),
        ways,
        rdma,
        rdma_stall: settings.rdma.stall,
        buffer_bytes,
        shares: FairShare::new(if settings.fair_shares { buffer_bytes } else { usize::MAX }),
        poll_microseconds: settings.poll_microseconds,
        metrics,
        drain: Drain::default(),
        health: Health::default(),
        descriptors,
        block,
        pools: Arc::default(),
        schedules: Arc::default(),
        facts: Facts::default(),
    }))
}
