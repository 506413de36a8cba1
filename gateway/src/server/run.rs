//! Cores and their threads: start, drain, stop.

use super::absent::{AbsentList, Source};
use super::cores::{First, RdmaPortals, run_core};
use super::descriptors::Descriptors;
use super::health::Health;
use super::in_use;
use super::listen::Awaited;
use super::memory::{self, Memory, MemoryPlan};
use super::mount_table::MountTable;
use super::process::{
    divide_descriptors, drop_cap_sys_resource, prefer_thread, raise_descriptor_limit,
};
use super::recent::Recent;
use super::settings::Settings;
use super::shared::Shared;
use crate::exports::absent::{AbsentItem, AbsentKind, refusal};
use crate::exports::attempts::Wake;
use crate::exports::dataset::known::KnownDatasets;
use crate::exports::dataset::store::DatasetTree;
use crate::exports::granted::GrantedDisk;
use crate::exports::open::{Opened, Opener, Opening, place_datasets};
use crate::exports::plan::Volume;
use crate::exports::replaced::ReplacedDatasets;
use crate::exports::settings::ExportSet;
use crate::exports::stores::OpenStores;
use crate::iscsi::change::Resizes;
use crate::iscsi::granted::with_granted;
use crate::iscsi::luns::catalog::Catalog;
use crate::iscsi::luns::numbers::{NumberFiles, with_volumes};
use crate::iscsi::luns::state_files::{IfLate, StateFiles};
use crate::iscsi::luns::unit::UnitHome;
use crate::iscsi::luns::volumes::Volumes;
use crate::iscsi::service::IscsiService;
use crate::iscsi::settings::{IscsiSettings, Portal};
use crate::net::accept::{bind_in_advance, is_local};
use crate::net::arrival::Protocol;
use crate::net::boundary::bring_down;
use crate::net::connection_end::Ends;
use crate::net::connections::Connections;
use crate::net::core::Network;
use crate::net::drain::Drain;
use crate::net::interfaces::Interfaces;
use crate::net::memory_quota::MemoryQuota;
use crate::net::rdma::state::RdmaState;
use crate::nfs::service::{Nfs, NfsOptions};
use crate::state_dir::{StateDir, random_bytes};
use crate::state_writer::{START_STATE_PATIENCE, STATE_PATIENCE};
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc;
use zgate_control::DatasetName;
use zgate_io::mountinfo::MountLine;
use zgate_iscsi::login::Transport;
use zgate_nfs::namespace::{ExportId, Namespace};
use zgate_posix::PosixOptions;
use zgate_store::BufferPool;

/// Time limit for closing released files.
const RELEASE_PATIENCE: Duration = Duration::from_secs(5);

/// Time limit for cores to end.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// A running gateway.
pub(crate) struct Gateway {
    pub shared: Arc<Shared>,
    pub addresses: Vec<SocketAddr>,
    /// Addresses of NFS over RDMA.
    pub(super) rdma_addresses: Vec<SocketAddr>,
    threads: std::sync::Mutex<Vec<JoinHandle<()>>>,
    stop: tokio::sync::watch::Sender<bool>,
    pub(super) opener: Opener,
    /// Exports in effect, present or absent.
    pub(super) exports: std::sync::Mutex<ExportSet>,
    pub(super) awaited: Awaited,
    /// Wakes the thread that retries what is absent.
    pub(super) wake: Wake,
    /// Set if nothing may be absent.
    strict: bool,
    pub(super) state_dir: Arc<StateDir>,
    stores: std::sync::Mutex<Arc<OpenStores>>,
    /// Serializes changes of the stores, which may wait for storage that hangs.
    replacing: std::sync::Mutex<()>,
    /// The same for all who read it: of those that hang, one is enough.
    pub(super) mount_table: Arc<MountTable>,
    drain: Duration,
}

/// Refuses absent items in a strict gateway. A dataset may always come later.
fn refuse(items: &[AbsentItem]) -> io::Result<()> {
    let mut items = items.to_vec();
    items.retain(|item| item.kind != AbsentKind::Dataset);
    if items.is_empty() { Ok(()) } else { Err(refusal(&items)) }
}

impl Gateway {
    /// Opens everything, then listens, so that a client that connects is
    /// served. What is absent comes later, unless the start is strict. `prepare` puts in
    /// place what clients may ask for with their first request; nothing listens before.
    ///
    /// # Errors
    /// The thing, the reason and the next step; the error of `prepare`.
    pub(crate) fn start(
        settings: &Settings,
        exports: &ExportSet,
        block: &IscsiSettings,
        (volumes, granted): (&[Volume], &[GrantedDisk]),
        how: Opening,
        prepare: impl FnOnce(&Shared) -> io::Result<()>,
    ) -> io::Result<Self> {
        raise_descriptor_limit();
        drop_cap_sys_resource();
        let state_dir = Arc::new(StateDir::open(&settings.state_dir)?);
        let strict = how == Opening::StrictStart;
        let state_files = Arc::new(StateFiles::start(Arc::clone(&state_dir))?);
        state_files.set_patience(START_STATE_PATIENCE);
        let (block, numbers) = with_volumes(block, volumes, &state_files, &Catalog::default());
        numbers.require_answers()?;
        if strict {
            numbers.require_all()?;
        }
        numbers.report();
        let block = &with_granted(block, granted);
        let engine = zgate_io::IoEngine::new(settings.engine, settings.worker_threads)?;
        let kind = engine.kind();
        tracing::info!(engine = ?kind, reason = engine.reason(), "io engine");
        let memory = MemoryPlan::for_machine(settings);
        let pool = settings.rdma.pool(memory.idle_bytes);
        let source = settings.rdma.source(&pool, &settings.state_dir);
        let interfaces = Interfaces::new(&settings.interfaces, &settings.rdma.listen);
        let nfs = settings.rdma.listen.iter().map(|address| (*address, Protocol::Rpc));
        let disks = block.iser().map(|address| (address, Protocol::Iscsi));
        let rdma_portals: RdmaPortals = nfs.chain(disks).collect();
        let rdma = RdmaState::new(&rdma_portals);
        let uses_rdma = source.is_some();
        let fabric = source.map(|source| (source, rdma_portals));
        let mut options = PosixOptions::new(engine.clone(), pool.clone());
        let mut plan = divide_descriptors(settings, exports, block);
        plan.limit_connections(memory.connections);
        options.fd_cache_entries = settings.fd_cache_entries;
        options.descriptors = plan.budget();
        options.handle_secret = Some(state_dir.handle_secret()?);
        let (wake, descriptors) = (Wake::default(), Arc::clone(&options.descriptors));
        let opener = Opener::new(options, &settings.state_dir, &wake);
        let Opened { namespace, stores, absent } =
            opener.open(exports, 1, &OpenStores::default(), how)?;
        let (followed, _) = place_datasets(exports, &stores);
        let home = UnitHome::new(engine, pool.clone(), Arc::clone(&state_files), block)?;
        let files = Volumes::new(wake.clone());
        let block_service = Arc::new(IscsiService::new(block, home, files, how)?);
        if strict {
            refuse(&[absent.clone(), block_service.named_absent()].concat())?;
        }
        let shared = build(
            settings,
            Arc::clone(&state_dir),
            namespace,
            pool,
            block_service,
            kind,
            (interfaces, rdma, Descriptors::new(plan, descriptors), memory),
        )?;
        memory::watch(&shared)?;
        prepare(&shared)?;
        shared.absent.update(Source::Exports, absent);
        shared.absent.update(Source::Luns, shared.iscsi.absent());
        shared.datasets.set_followed(followed);
        let (mut listeners, awaited) = (Vec::new(), Awaited::default());
        let mut addresses = Vec::new();
        for address in &settings.nfs {
            let listener = awaited.listen("NFS", *address, how)?;
            addresses.push(listener.local_addr()?);
            listeners.push((listener, Protocol::Rpc));
        }
        let mut portals = Vec::new();
        for portal in &block.portals {
            if portal.transport == Transport::Iser {
                portals.push(*portal);
                continue;
            }
            let listener = if block.asymmetric && !is_local(portal.address.ip()) {
                // The other machine's; it is not missed here.
                bind_in_advance(portal.address)?
            } else {
                awaited.listen("iSCSI", portal.address, how)?
            };
            portals.push(Portal { address: listener.local_addr()?, ..*portal });
            listeners.push((listener, Protocol::Iscsi));
        }
        shared.iscsi.set_portals(portals);
        shared.absent.update(Source::Addresses, awaited.absent());
        // Last of what may fail: a start that ends leaves zvols the numbers that are stored.
        numbers.store(&state_files, IfLate::PutBack)?;
        state_files.set_patience(STATE_PATIENCE);
        let (background, units) = mpsc::unbounded_channel();
        shared.iscsi.set_background(background);
        // Set only here.
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
            rdma_addresses: settings.rdma.listen.clone(),
            threads: threads.into(),
            stop,
            opener,
            exports: exports.clone().into(),
            awaited,
            wake,
            strict,
            state_dir,
            stores: Arc::new(stores).into(),
            replacing: std::sync::Mutex::new(()),
            mount_table: Arc::new(MountTable::of_this_process()),
            drain: settings.drain,
        })
    }

    /// Replaces the exports and targets; connections and state stay. What is in
    /// use is only taken away with `force`. Returns the sizes of files that are to change:
    /// the caller carries that out once it has no lock.
    ///
    /// # Errors
    /// As [`Self::start`], and what is in use; nothing has changed then.
    pub(crate) fn replace(
        &self,
        exports: &ExportSet,
        block: &IscsiSettings,
        (volumes, granted): (&[Volume], &[GrantedDisk]),
        force: bool,
    ) -> io::Result<Resizes> {
        let (block, numbers) = self.with_volumes(block, volumes);
        numbers.require_answers()?;
        if self.strict {
            numbers.require_all()?;
        }
        let block = &with_granted(block, granted);
        let _one = self.replacing();
        let kept = self.stores();
        let opened = self.opener.open(exports, self.generation(), &kept, Opening::Reload)?;
        let prepared = self.shared.iscsi.prepare(block, Opening::Reload)?;
        if self.strict {
            refuse(&[opened.absent.clone(), prepared.named_absent()].concat())?;
        }
        if !force {
            in_use::refuse(&self.shared, exports, &opened.namespace, &prepared)?;
        }
        // Last of what may fail: zvols in use keep the numbers that are stored.
        numbers.store(self.state_files(), IfLate::PutBack)?;
        numbers.report();
        self.put_in_place(exports, opened);
        let resizes = self.shared.iscsi.commit(prepared);
        self.shared.absent.update(Source::Luns, self.shared.iscsi.absent());
        Ok(resizes)
    }

    /// Replaces only the exports: datasets were added, removed or moved, or
    /// something absent has appeared.
    ///
    /// # Errors
    /// As [`Self::start`]; nothing has changed then.
    pub(crate) fn replace_exports(&self, exports: &ExportSet, how: Opening) -> io::Result<()> {
        let _one = self.replacing();
        let opened = self.opener.open(exports, self.generation(), &self.stores(), how)?;
        self.put_in_place(exports, opened);
        Ok(())
    }

    /// Returns the number of the next exports.
    fn generation(&self) -> u64 {
        self.shared.nfs.v4.namespace().generation + 1
    }

    /// The caller holds [`Self::replacing`].
    fn put_in_place(&self, exports: &ExportSet, opened: Opened) {
        let Opened { namespace, stores: now, absent } = opened;
        *self.exports.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = exports.clone();
        self.opener.in_effect(exports);
        self.shared.absent.update(Source::Exports, absent);
        self.wake.wake();
        let (followed, back) = place_datasets(exports, &now);
        // Before clients find them: what is replaced from now on is noted in these.
        let before = std::mem::replace(&mut *self.lock_stores(), Arc::new(now));
        let earlier = self.shared.nfs.v4.namespace();
        let present = namespace.exports().map(|export| export.id);
        let appeared = present.filter(|id| earlier.is_absent(*id)).collect();
        self.shared.nfs.replace_exports(namespace, &self.shared.network.connections);
        self.shared.nfs.v4.content_replaced(&back);
        self.shared.nfs.v4.appeared(&appeared);
        // Stores that are no longer exported are closed, even if requests still
        // use them.
        for (_, store) in before.followed() {
            if !followed.iter().any(|export| Arc::ptr_eq(&export.store, &store)) {
                store.hold(Duration::ZERO);
            }
        }
        self.shared.datasets.set_followed(followed);
    }

    /// Adds zvols to the settings of targets; nothing is stored.
    fn with_volumes(
        &self,
        block: &IscsiSettings,
        volumes: &[Volume],
    ) -> (IscsiSettings, NumberFiles) {
        with_volumes(block, volumes, self.state_files(), &self.shared.iscsi.rules().catalog)
    }

    fn state_files(&self) -> &StateFiles {
        &self.shared.iscsi.home.state_files
    }

    /// Replaces only the zvols of the targets.
    ///
    /// # Errors
    /// If a target does not exist. If numbers cannot be stored: all zvols are replaced but those
    /// that need one. A target whose numbers cannot be read: the zvols of the others are replaced.
    pub(crate) fn replace_volumes(
        &self,
        block: &IscsiSettings,
        volumes: &[Volume],
    ) -> io::Result<()> {
        let (block, numbers) = self.with_volumes(block, volumes);
        let stored = numbers.store(self.state_files(), IfLate::Keep);
        let block = if stored.is_ok() { block } else { numbers.without_new(block) };
        self.shared.iscsi.replace_followed(&block)?;
        stored?;
        numbers.require_all()
    }

    fn lock_stores(&self) -> std::sync::MutexGuard<'_, Arc<OpenStores>> {
        self.stores.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Returns the stores in effect, also while others are being opened in their place.
    pub(super) fn stores(&self) -> Arc<OpenStores> {
        Arc::clone(&self.lock_stores())
    }

    /// Keeps others from opening stores in the place of those in effect.
    pub(super) fn replacing(&self) -> std::sync::MutexGuard<'_, ()> {
        self.replacing.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Returns the stores of datasets, by their guids.
    pub(crate) fn followed(&self) -> Vec<(u64, Arc<DatasetTree>)> {
        self.stores().followed()
    }

    /// Returns the directories of the exports in effect.
    pub(super) fn export_paths(&self) -> BTreeSet<PathBuf> {
        let exports = self.exports.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        exports.iter().map(|export| export.path.clone()).collect()
    }

    /// Tells NFS clients that the content of datasets may have been replaced, by a rollback: they
    /// write again what they have not committed, and return their delegations.
    pub(crate) fn content_replaced(&self, datasets: &[DatasetName]) {
        self.content_replaced_by(datasets, &self.mount_table);
    }

    /// Does the same by this mount table.
    pub(super) fn content_replaced_by(&self, datasets: &[DatasetName], table: &MountTable) {
        // After an error, the stores of the datasets alone are found, by their names.
        let mounts = table.read().map(Result::unwrap_or_default);
        let replaced = ReplacedDatasets::named(datasets);
        self.note_replaced(&replaced, mounts.as_deref(), &BTreeSet::new());
    }

    /// Does the same by a mount table that was read before, but not in exports whose clients
    /// were `told` of it; without a table, any export may show the datasets. In LUNs, what
    /// initiators discarded counts as content again. Waits for no storage. Returns the exports,
    /// and the number of LUNs, that may show one of the datasets.
    pub(crate) fn note_replaced(
        &self,
        replaced: &ReplacedDatasets<'_>,
        mounts: Option<&[MountLine]>,
        told: &BTreeSet<ExportId>,
    ) -> (BTreeSet<ExportId>, usize) {
        let exports = self.stores().content_replaced(replaced, mounts, told);
        self.shared.nfs.v4.content_replaced(&exports);
        (exports, self.shared.iscsi.content_replaced(replaced))
    }

    /// Returns whether anything that is served lies in ZFS, by the mount table.
    pub(crate) fn serves_zfs(&self, mounts: &[MountLine]) -> bool {
        self.stores().show_any_dataset(mounts) || self.shared.iscsi.serves_zvols()
    }

    /// Closes cached objects of exported paths that no client has open.
    pub(crate) fn release_paths(&self) {
        let fixed = self.stores().fixed();
        let (told, ended) = std::sync::mpsc::channel::<()>();
        for store in fixed {
            let told = told.clone();
            // Each on a worker of its own storage, which may hang.
            store.engine().clone().detach(move || {
                store.release();
                drop(told);
            });
        }
        drop(told);
        // The channel closes when all have ended; nothing is ever sent.
        let _ = ended.recv_timeout(RELEASE_PATIENCE);
    }

    /// Returns the time within which [`Gateway::stop`] ends.
    pub(super) fn longest_stop(&self) -> Duration {
        self.drain + END_PATIENCE
    }

    /// Finishes running requests, closes the connections and ends.
    pub(crate) fn stop(&self) {
        self.shared.network.drain.begin();
        let deadline = std::time::Instant::now() + self.drain;
        while self.shared.network.connections.len() > 0 && std::time::Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        // If there is no receiver, the cores have ended already.
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
                    "a core does not end because its storage hangs; the process ends without it"
                );
            } else if thread.join().is_err() {
                tracing::error!("a core ended with a panic");
            }
        }
    }
}

/// Returns the seconds since 1970, limited to 32 bits.
fn unix_seconds() -> u32 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u32::try_from(since.as_secs()).unwrap_or(u32::MAX))
}

fn build(
    settings: &Settings,
    state_dir: Arc<StateDir>,
    namespace: Namespace,
    pool: BufferPool,
    iscsi: Arc<IscsiService>,
    engine: zgate_io::EngineKind,
    (interfaces, rdma, descriptors, memory): (Interfaces, Arc<RdmaState>, Descriptors, MemoryPlan),
) -> io::Result<Arc<Shared>> {
    // Before the first epoch is written: a directory that has one is older.
    let identity = settings.identity(&state_dir)?;
    let boot_epoch = state_dir.next_epoch(unix_seconds(), std::thread::sleep)?;
    let connections = Arc::new(Connections::new(descriptors.plan.connections));
    let random = random_bytes()?;
    let mut write_verifier = [0; 8];
    write_verifier.copy_from_slice(&random[..8]);
    let options = NfsOptions {
        identity,
        boot_epoch,
        write_verifier,
        lease_seconds: settings.lease_seconds,
        grace: settings.grace,
        open_files: descriptors.plan.open_files,
        state_bytes: memory.state_bytes,
    };
    let data = Arc::clone(&iscsi.stats.data);
    let nfs = Arc::new(Nfs::new(options, state_dir, namespace, &connections, &interfaces, data)?);
    let v4 = Arc::clone(&nfs.v4);
    let quota = MemoryQuota::new(memory.buffer_bytes, settings.fair_shares, pool.clone());
    let network = Arc::new(Network {
        ends: Ends::default(),
        connections,
        pool,
        interfaces,
        rdma,
        rdma_stall: settings.rdma.stall,
        quota,
        poll_microseconds: settings.poll_microseconds,
        pollers: Arc::default(),
        drain: Drain::default(),
        tls: Arc::default(),
        names_host: Box::new(move |host| v4.namespace().names_host(host)),
    });
    Ok(Arc::new(Shared {
        network,
        nfs,
        iscsi,
        engine,
        started_unix_seconds: unix_seconds(),
        started: std::time::Instant::now(),
        recent: Recent::default(),
        access: Arc::default(),
        metrics_clients: settings.metrics_clients,
        nfs_addresses: std::sync::OnceLock::new(),
        health: Health::default(),
        descriptors,
        memory: Memory::new(memory),
        pools: Arc::default(),
        schedules: Arc::default(),
        datasets: KnownDatasets::default(),
        absent: AbsentList::default(),
        doctor: Arc::default(),
        api: std::sync::RwLock::default(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::settings::settings as process_settings;
    use std::path::Path;

    #[test]
    fn a_start_that_fails_stores_no_numbers_of_zvols() {
        let dir = tempfile::tempdir().unwrap();
        let device = dir.path().join("zvol");
        std::fs::File::create(&device).unwrap().set_len(1 << 20).unwrap();
        let volume = Volume {
            target: 0,
            guid: 70,
            name: "tank/vm/a".parse().unwrap(),
            device,
            template: toml::from_str("dataset = \"tank/vm/*\"\ndirect = \"never\"\n").unwrap(),
        };
        let start = |address: SocketAddr, state: &Path| {
            let text = format!(
                "[server]\nlisten = [\"{address}\"]\nmetrics_listen = \"127.0.0.1:0\"\n\
                 state_dir = {state:?}\ncores = 1\ndrain_seconds = 1\n\
                 [iscsi]\nlisten = [\"127.0.0.1:0\"]\n\
                 [[target]]\nname = \"iqn.2026-11.test:vm\"\nallow_any_initiator = true\n"
            );
            let config = zgate_config::parse(&text, Path::new("x")).unwrap();
            let block = crate::iscsi::settings::settings(&config).unwrap();
            let (settings, exports) = (process_settings(&config), ExportSet::default());
            let volumes = std::slice::from_ref(&volume);
            Gateway::start(&settings, &exports, &block, (volumes, &[]), Opening::Start, |_| Ok(()))
        };
        let stored = |state: &Path| std::fs::read_dir(state.join("luns")).unwrap().count();
        let [failed, begun] = ["failed", "begun"].map(|name| dir.path().join(name));
        let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = start(other.local_addr().unwrap(), &failed);
        assert!(taken.is_err() && stored(&failed) == 0);
        let gateway = start("127.0.0.1:0".parse().unwrap(), &begun);
        let gateway = gateway.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(stored(&begun), 1);
        gateway.stop();
    }
}
