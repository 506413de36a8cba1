//! One run: a schedule, from the first connection to the check that nothing is
//! left.

use crate::client::{
    AnyClient, Files, GssClient, OwnerClient, SessionClient, StatelessClient, Wire, Worker,
};
use crate::dice::Dice;
use crate::disk::{Disk, at_once};
use crate::executor::{Domain, Executor, SECOND, lock};
use crate::gateway::{GRACE_SECONDS, Gateway, LEASE_SECONDS};
use crate::history::{BLOCK_BYTES, History, Register};
use crate::invariant::{Invariant, PROGRESS_SECONDS, Violation};
use crate::iscsi::{FIRST_HOST, HostSession, HostTransport, HostWorker, Wires};
use crate::loader::{Clock, LOADER, Loader, SHARDS, Surroundings, shard, shard_name};
use crate::mutant::Mutant;
use crate::network::Network;
use crate::plan::{BLOCKS_PER_WORKER, Fault, Plan, Version, WORKERS};
use crate::tls::TlsSetup;
use crate::trace::Trace;
use bytes::Bytes;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::runtime::Runtime;
use tokio::task::{LocalSet, spawn_local, unconstrained};
use zgate_nfs::runtime::Protection;
use zgate_nfs::v4::state::view::StateTotals;
use zgate_nfs_wire::v4::Fh;
use zgate_rpc::gss::Service;
use zgate_store::file_store::{CreateMode, Stability};
use zgate_store::{Caller, FileStore, SetAttr};

/// Time from the beginning to the end of all faults, in seconds.
const FAULTS_END_SECONDS: u64 = 60;
/// Time after which a server has dropped everything of a client that it keeps
/// by courtesy, in seconds: a day, and some more.
const FORGOTTEN_SECONDS: u64 = 25 * 3600;
/// Time between two ticks of the server while that time passes, in seconds: no
/// multiple of anything that the server counts.
const SLOW_TICK_SECONDS: u64 = 1801;

/// Result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Hash of the trace.
    pub hash: String,
    /// The first violation.
    pub violation: Option<Violation>,
    /// The trace.
    pub lines: Vec<String>,
    /// Virtual time, in nanoseconds.
    pub nanos: u64,
}

struct Run {
    plan: Plan,
    executor: Arc<Executor>,
    trace: Arc<Trace>,
    history: Arc<History>,
    disk: Arc<Disk>,
    network: Arc<Network>,
    wires: Arc<Wires>,
    gateway: Arc<Gateway>,
    tls: Option<Arc<TlsSetup>>,
    clock: Arc<Clock>,
    over: AtomicBool,
    /// The clients, for their end.
    clients: Mutex<Vec<AnyClient>>,
    hosts: Mutex<Vec<Arc<HostSession>>>,
}

/// Carries out a schedule.
#[must_use]
pub fn run(plan: &Plan, mutant: Option<Mutant>) -> Outcome {
    let (seed, executor) = (plan.seed, Executor::new(plan.seed));
    let trace = Arc::new(Trace::new(Arc::clone(&executor)));
    let history = Arc::new(History::new(Arc::clone(&executor), Arc::clone(&trace)));
    let disk = Disk::new(&executor, &history, &trace, seed, mutant);
    let network = Network::new(&executor, &history, &trace, seed, mutant);
    let wires = Wires::new((&executor, &trace), &history, &network, seed, mutant);
    let tls = tls_setup(plan, &network);
    let (time, ways) = ((&executor, &trace), (&network, &wires));
    let gateway = Gateway::new(time, ways, &disk, tls.clone(), seed, mutant);
    let run = Arc::new(Run {
        plan: plan.clone(),
        executor: Arc::clone(&executor),
        trace: Arc::clone(&trace),
        history: Arc::clone(&history),
        disk,
        network,
        wires,
        gateway: Arc::clone(&gateway),
        tls,
        clock: Clock::new(&executor),
        over: AtomicBool::new(false),
        clients: Mutex::default(),
        hosts: Mutex::default(),
    });
    let course = Arc::clone(&run);
    executor.spawn(Domain::Outside, async move { course.course().await });
    let done = || run.over.load(Ordering::Acquire) || history.is_violated();
    let runtime = plan.loader.is_some().then(|| (loader_runtime(), LocalSet::new()));
    let ran = std::panic::catch_unwind(AssertUnwindSafe(|| match &runtime {
        Some((runtime, tasks)) => {
            // The run's tasks use channels of tokio, which would make them pause.
            runtime.block_on(tasks.run_until(unconstrained(run.clock.run(done))))
        }
        None => executor.run(done),
    }));
    match ran {
        Ok(true) => {}
        Ok(false) => history.fail(Invariant::Progress, "everybody waits for nobody".to_owned()),
        Err(panic) => history.fail(Invariant::NoPanic, text_of(&*panic)),
    }
    let outcome = Outcome {
        hash: trace.hash(),
        violation: history.violation(),
        lines: trace.lines(),
        nanos: executor.elapsed(),
    };
    // The loader's tasks may still begin something.
    if let Some((runtime, tasks)) = runtime {
        drop(tasks);
        drop(runtime);
    }
    // Tasks hold what starts them: the run would never be freed.
    gateway.end_all_replaced();
    gateway.kill();
    executor.end_all();
    outcome
}

/// TLS of a run, if its clients have it.
fn tls_setup(plan: &Plan, network: &Network) -> Option<Arc<TlsSetup>> {
    let planned = plan.tls.as_ref()?;
    crate::tls::seed(plan.seed);
    let least = if planned.is_mutual { Protection::MutualTls } else { Protection::Tls };
    let setup = TlsSetup::new(least, planned.with_certificate.clone());
    network.use_tls(&setup, plan.seed);
    Some(setup)
}

/// The runtime of a loader: one thread, a clock that stands still until all tasks
/// wait, and tasks that run until none can.
fn loader_runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let builder = builder.enable_time().start_paused(true).event_interval(u32::MAX);
    builder.build().unwrap_or_else(|error| panic!("tokio: {error}"))
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
}

impl Run {
    fn file(&self, name: &str) -> Fh {
        let store = &self.disk.store;
        let (who, root) = (Caller::root(), store.root());
        let attrs = SetAttr { mode: Some(0o666), ..SetAttr::default() };
        let made = store.create_file(&who, &root, name.as_bytes(), CreateMode::Guarded, &attrs);
        let made = at_once(made).unwrap_or_else(|error| panic!("{name}: {error}"));
        let zeros = Bytes::from(vec![0; BLOCK_BYTES * (WORKERS * BLOCKS_PER_WORKER) as usize]);
        if let Some(file) = &made.open {
            let written = at_once(store.write(file, 0, zeros, Stability::FileSync));
            written.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        self.gateway.fh(made.node.handle)
    }

    fn client(&self, number: usize, version: Version, files: &Files) -> AnyClient {
        let wire = Wire::new(number, (&self.executor, &self.trace), &self.network, self.plan.seed)
            .with_kerberos(self.kerberos(number));
        match version {
            Version::V3 => AnyClient::Stateless(Arc::new(StatelessClient::new(
                wire,
                files.clone(),
                &self.gateway,
            ))),
            Version::V4(0) => {
                let client = OwnerClient::new(wire, files.clone(), &self.history, &self.gateway);
                let client = Arc::new(client);
                let returner = Arc::clone(&client);
                let returns = async move { returner.return_delegations().await };
                self.executor.spawn(Domain::Outside, returns);
                let renewer = Arc::clone(&client);
                self.executor.spawn(Domain::Outside, async move { renewer.renew().await });
                AnyClient::Owners(client)
            }
            Version::V4(minor) => {
                let client =
                    Arc::new(SessionClient::new(wire, minor, files.clone(), &self.history));
                let returner = Arc::clone(&client);
                let returns = async move { returner.return_delegations().await };
                self.executor.spawn(Domain::Outside, returns);
                let renewer = Arc::clone(&client);
                self.executor.spawn(Domain::Outside, async move { renewer.renew().await });
                AnyClient::Session(client)
            }
        }
    }

    /// Kerberos of a client: in one seed of three most clients have it.
    fn kerberos(&self, number: usize) -> Option<GssClient> {
        let seed = self.plan.seed;
        let some_have_it = Dice::new(seed, "kerberos").once_in(3);
        let mut dice = Dice::new(seed, &format!("service{number}"));
        let service = Service::ALL[dice.below(3) as usize];
        (some_have_it && !dice.once_in(4))
            .then(|| GssClient::new((seed, number), service, &self.executor, &self.history))
    }

    /// The whole run.
    async fn course(self: &Arc<Self>) {
        let count = self.plan.clients.len();
        let files = Files {
            root: self.gateway.fh(self.disk.store.root()),
            own: (0..count).map(|number| self.file(&format!("f{number}"))).collect(),
            locks: self.file("locks"),
            shares: self.file("shares"),
        };
        if self.plan.loader.is_some() {
            self.model_files();
        }
        let mut dice = Dice::new(self.plan.seed, "rdma");
        match &self.tls {
            None => (0..count)
                .filter(|_| dice.once_in(3))
                .for_each(|client| self.network.use_rdma(client)),
            Some(setup) => setup.want(files.own[0].clone()),
        }
        self.gateway.start();
        let clients: Vec<AnyClient> = (0..count)
            .map(|number| self.client(number, self.plan.clients[number], &files))
            .collect();
        lock(&self.clients).extend(clients.iter().cloned());
        let working = Arc::new(AtomicUsize::new(0));
        for (number, client) in clients.iter().enumerate() {
            for (worker, steps) in (0..).zip(self.plan.steps[number].clone()) {
                let mut worker = Worker::new(client.clone(), worker, &self.history);
                working.fetch_add(1, Ordering::AcqRel);
                let working = Arc::clone(&working);
                self.executor.spawn(Domain::Outside, async move {
                    worker.run(steps).await;
                    working.fetch_sub(1, Ordering::AcqRel);
                });
            }
        }
        self.start_hosts(&working);
        self.start_loader(&working);
        if self.tls.is_some() {
            self.network.begin_strangers();
        }
        self.faults().await;
        self.all_faults_end();
        self.wait_for(&working, "the clients").await;
        self.check_what_is_stable(&clients).await;
        self.check_what_is_left().await;
        self.over.store(true, Ordering::Release);
    }

    /// Starts the loader, if there is one, as a task of its runtime.
    fn start_loader(self: &Arc<Self>, working: &Arc<AtomicUsize>) {
        let Some((connections, steps)) = self.plan.loader.clone() else { return };
        let loader = Loader::new(
            Surroundings {
                clock: Arc::clone(&self.clock),
                network: Arc::clone(&self.network),
                gateway: Arc::clone(&self.gateway),
                history: Arc::clone(&self.history),
                trace: Arc::clone(&self.trace),
                faults_end_seconds: FAULTS_END_SECONDS,
            },
            connections,
        );
        working.fetch_add(1, Ordering::AcqRel);
        let (working, running) = (Arc::clone(working), self.clock.running());
        let (clock, history) = (Arc::clone(&self.clock), Arc::clone(&self.history));
        spawn_local(async move {
            if let Err(error) = spawn_local(loader.run(steps)).await {
                let text = error
                    .try_into_panic()
                    .map_or_else(|error| error.to_string(), |panic| text_of(&*panic));
                history.fail(Invariant::NoPanic, format!("the loader: {text}"));
            }
            working.fetch_sub(1, Ordering::AcqRel);
            clock.ring();
            drop(running);
        });
        self.clock.touch();
    }

    /// The files of the loader's model.
    fn model_files(&self) {
        let (who, store, root) = (Caller::root(), &self.disk.store, self.disk.store.root());
        let attrs = SetAttr { mode: Some(0o644), ..SetAttr::default() };
        for number in 0..SHARDS {
            let name = shard_name(number);
            let made = store.create_file(&who, &root, name.as_bytes(), CreateMode::Guarded, &attrs);
            let made = at_once(made).unwrap_or_else(|error| panic!("{name}: {error}"));
            if let Some(file) = &made.open {
                let write = store.write(file, 0, Bytes::from(shard(number)), Stability::FileSync);
                at_once(write).unwrap_or_else(|error| panic!("{name}: {error}"));
            }
        }
    }

    fn start_hosts(self: &Arc<Self>, working: &Arc<AtomicUsize>) {
        let mut dice = Dice::new(self.plan.seed, "transports");
        for (number, workers) in self.plan.hosts.iter().enumerate() {
            let outside = (&self.executor, &self.trace);
            let transport = match dice.below(6) {
                0 => HostTransport::Plain,
                1 => HostTransport::Digests,
                2 | 3 => HostTransport::Iser,
                4 => HostTransport::Recovering(1),
                _ => HostTransport::Recovering(2),
            };
            let host = HostSession::new(number, outside, &self.history, &self.wires, transport);
            lock(&self.hosts).push(Arc::clone(&host));
            for (worker, steps) in (0..).zip(workers.clone()) {
                let mut worker = HostWorker::new(&host, worker);
                working.fetch_add(1, Ordering::AcqRel);
                let working = Arc::clone(working);
                self.executor.spawn(Domain::Outside, async move {
                    worker.run(steps).await;
                    working.fetch_sub(1, Ordering::AcqRel);
                });
            }
        }
    }

    /// The number of a client or host in the network.
    fn party(&self, number: usize) -> (usize, bool) {
        let clients = self.plan.clients.len();
        match number.checked_sub(clients) {
            Some(host) => (FIRST_HOST + host, true),
            None => (number, false),
        }
    }

    async fn faults(self: &Arc<Self>) {
        let begin = self.executor.nanos();
        for planned in &self.plan.faults {
            self.executor.sleep_until(begin + planned.at).await;
            self.trace.note("FAULT", format_args!("!{} {:?}", planned.number, planned.fault));
            match planned.fault {
                Fault::Kill { down } => {
                    // Unstable data lies in the memory of the system: it is
                    // kept, but NFS promises nothing.
                    self.gateway.kill();
                    self.restart_after(down);
                }
                Fault::PowerLoss { down } => {
                    self.gateway.lose_power();
                    self.restart_after(down);
                }
                Fault::Cut { client } => match self.party(client) {
                    (host, true) => self.wires.cut_host(host),
                    (client, false) => self.network.cut_client(client),
                },
                Fault::CutCommand { client, after } => {
                    if let (host, true) = self.party(client) {
                        self.wires.cut_next_command(host, after);
                    }
                }
                Fault::Partition { client, length } => {
                    self.network.partition(self.party(client).0, length);
                }
                Fault::Hang { length } => self.disk.hang(length),
                Fault::Slow { length, delay } => self.disk.slow_down(length, delay),
                Fault::HoldWrite { length } => self.disk.hold_next_write(length),
                Fault::Error => self.disk.fail_next(),
                Fault::WriteBack => self.disk.lose_next(),
                Fault::Full { length } => self.disk.fill(length),
                Fault::Reload => self.gateway.reload(),
                Fault::Rename => self.gateway.rename(),
                Fault::Drain { down } => self.drain_and_restart(down),
                Fault::ClockJump { seconds } => self.gateway.jump_wall_clock(seconds),
                Fault::ExportAway { length } => self.export_away(length),
                Fault::Rollback { after, away } => self.roll_back(after, away),
                Fault::Takeover { late } => self.gateway.take_over(late),
                Fault::TakeoverInGrace { down, late } => self.take_over_in_grace(down, late),
                Fault::CutLoader => self.network.cut_client(LOADER),
                Fault::CutReply { bytes } => self.network.cut_next_reply(bytes as usize),
                Fault::PartitionLoader { length } => self.network.partition(LOADER, length),
                Fault::ReplaceCertificate => self.replace_certificates(None),
                Fault::RevokeCertificate { client } => self.replace_certificates(Some(client)),
                Fault::Corrupt { client, length } => {
                    if let (host, true) = self.party(client) {
                        self.wires.corrupt(host, length);
                    }
                }
            }
        }
        self.executor.sleep_until(begin + FAULTS_END_SECONDS * SECOND).await;
    }

    /// The server has another certificate, or its list names that of a client.
    fn replace_certificates(&self, revoked: Option<usize>) {
        let Some(setup) = &self.tls else { return };
        match revoked {
            None => setup.replace(),
            Some(client) => setup.revoke(client),
        }
        self.gateway.reload_certificates();
    }

    fn restart_after(self: &Arc<Self>, nanos: u64) {
        let me = Arc::clone(self);
        self.executor.spawn(Domain::Outside, async move {
            me.executor.sleep(nanos).await;
            if me.gateway.running().is_none() {
                me.gateway.start();
            }
        });
    }

    fn export_away(self: &Arc<Self>, nanos: u64) {
        self.gateway.set_away(true);
        let me = Arc::clone(self);
        self.executor.spawn(Domain::Outside, async move {
            me.executor.sleep(nanos).await;
            me.gateway.set_away(false);
        });
    }

    /// Takes a snapshot, and goes back to it so much later.
    fn roll_back(self: &Arc<Self>, after: u64, away: u64) {
        self.disk.take_snapshot();
        let me = Arc::clone(self);
        self.executor.spawn(Domain::Outside, async move {
            me.executor.sleep(after).await;
            me.gateway.set_away(true);
            me.executor.sleep(away).await;
            me.gateway.roll_back(me.plan.clients.len());
        });
    }

    fn take_over_in_grace(self: &Arc<Self>, down: u64, late: u64) {
        self.gateway.kill();
        self.restart_after(down);
        let me = Arc::clone(self);
        self.executor.spawn(Domain::Outside, async move {
            me.executor.sleep(down + SECOND).await;
            me.gateway.take_over(late);
            let grace = u64::from(GRACE_SECONDS) * SECOND;
            me.executor.sleep(grace + late).await;
            // Nothing may last beyond the end of the faults.
            if me.executor.elapsed() < FAULTS_END_SECONDS * SECOND {
                me.gateway.kill();
                me.restart_after(down);
            }
        });
    }

    fn drain_and_restart(self: &Arc<Self>, nanos: u64) {
        let me = Arc::clone(self);
        self.executor.spawn(Domain::Outside, async move {
            me.gateway.drain().await;
            me.restart_after(nanos);
        });
    }

    fn all_faults_end(&self) {
        if self.gateway.running().is_none() {
            self.gateway.start();
        }
        self.gateway.set_away(false);
        self.gateway.end_all_replaced();
        self.disk.heal();
        self.network.heal();
        self.wires.heal();
        lock(&self.hosts).iter().for_each(|host| host.heal());
        self.trace.note("FAULT", format_args!("all faults end"));
    }

    /// Waits, for a bounded time, until nobody works any more.
    async fn wait_for(&self, working: &AtomicUsize, who: &str) {
        for _ in 0..PROGRESS_SECONDS {
            if working.load(Ordering::Acquire) == 0 {
                return;
            }
            self.network.check_loader();
            self.executor.sleep(SECOND).await;
        }
        self.history.fail(
            Invariant::Progress,
            format!("{who} are not done {PROGRESS_SECONDS} s after the faults"),
        );
    }

    /// A last power loss; then everything is read.
    async fn check_what_is_stable(self: &Arc<Self>, clients: &[AnyClient]) {
        self.trace.note("FAULT", format_args!("the last power loss"));
        self.network.end_strangers();
        self.gateway.lose_power();
        self.check_names();
        self.gateway.start();
        let Some(reader) = clients.first() else { return };
        let registers: Vec<Register> = (0..clients.len())
            .flat_map(|client| {
                (0..WORKERS * BLOCKS_PER_WORKER).map(move |block| Register { client, block })
            })
            .collect();
        let mut worker = Worker::new(reader.clone(), 0, &self.history);
        let working = Arc::new(AtomicUsize::new(1));
        self.read_units(&working);
        let ended = Arc::clone(&working);
        self.executor.spawn(Domain::Outside, async move {
            worker.read_all(registers).await;
            ended.fetch_sub(1, Ordering::AcqRel);
        });
        self.wait_for(&working, "reads after the last power loss").await;
    }

    /// Reads all blocks of hosts.
    fn read_units(&self, working: &Arc<AtomicUsize>) {
        let hosts = lock(&self.hosts).clone();
        let Some(reader) = hosts.first() else { return };
        let blocks = 0..WORKERS * BLOCKS_PER_WORKER;
        let registers = hosts
            .iter()
            .flat_map(|host| blocks.clone().map(|block| Register { client: host.number, block }));
        let registers: Vec<Register> = registers.collect();
        let mut worker = HostWorker::new(reader, 0);
        let working = Arc::clone(working);
        working.fetch_add(1, Ordering::AcqRel);
        self.executor.spawn(Domain::Outside, async move {
            worker.read_all(registers).await;
            working.fetch_sub(1, Ordering::AcqRel);
        });
    }

    /// Compares the names that clients know with those that are there.
    fn check_names(&self) {
        let (store, root) = (&self.disk.store, self.disk.store.root());
        for (name, exists) in self.history.names() {
            let found = at_once(store.lookup(&Caller::root(), &root, name.as_bytes())).is_ok();
            if found != exists {
                self.history.fail(
                    Invariant::DurableNames,
                    format!("{name} was acknowledged; exists: {found}, expected: {exists}"),
                );
            }
        }
    }

    /// All clients go away; in the end the server has nothing of them.
    async fn check_what_is_left(&self) {
        for client in lock(&self.clients).drain(..) {
            client.vanish();
        }
        lock(&self.hosts).iter().for_each(|host| host.vanish());
        self.executor.sleep(u64::from(GRACE_SECONDS + LEASE_SECONDS) * SECOND).await;
        self.gateway.tick_every(SLOW_TICK_SECONDS);
        self.executor.sleep(FORGOTTEN_SECONDS * SECOND).await;
        if let Some(target) = self.gateway.target() {
            let (sessions, commands) = target.left();
            if sessions + commands > 0 {
                let text = format!("a day later: {sessions} iSCSI sessions, {commands} commands");
                self.history.fail(Invariant::NothingLeft, text);
            }
        }
        let handshakes = self.gateway.handshakes();
        if handshakes > 0 {
            let text = format!("a day later: {handshakes} TLS handshakes");
            self.history.fail(Invariant::NothingLeft, text);
        }
        let contexts = self.gateway.contexts();
        if contexts > 0 {
            let text = format!("a day later: {contexts} security contexts");
            self.history.fail(Invariant::NothingLeft, text);
        }
        let Some((totals, files)) = self.gateway.totals() else { return };
        self.trace.note("server", format_args!("{totals:?}, {files} files"));
        let StateTotals { clients, sessions, opens, locks, delegations, record_changes, .. } =
            totals;
        let left = clients + sessions + opens + locks + delegations + record_changes + files;
        if left > 0 || totals.grace_seconds > 0 {
            self.history.fail(
                Invariant::NothingLeft,
                format!("a day after the last request: {totals:?}, {files} files"),
            );
        }
    }
}
