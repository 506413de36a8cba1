//! The server as a process that can die and start again: the protocol rooms of
//! the product over the simulated disk, network, clock and records.

mod callbacks;
mod gss;
mod operands;
mod runtime;
mod tls;

use crate::dice::Dice;
use crate::disk::Disk;
use crate::executor::{Domain, Executor, SECOND, lock};
use crate::iscsi::{Reservations, Target, Wires};
use crate::kerberos::Acceptor;
use crate::mutant::Mutant;
use crate::network::Network;
use crate::records::{Records, ServerRecords};
use crate::slots::RepeatedSlots;
use crate::tls::TlsSetup;
use crate::trace::Trace;
use bytes::Bytes;
use gss::{GssCall, Kerberos};
pub use operands::operand;
use operands::{renewed, without_deny};
use runtime::ServerRuntime;
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use tls::TlsService;
use zgate_nfs::dispatch::{Incoming, Once, Programs, Unaccepted, keep};
use zgate_nfs::namespace::{AbsentExport, Export, FileHandle, Flavor, Namespace, StableNames};
use zgate_nfs::runtime::{ConnectionId, Runtime};
use zgate_nfs::v4::guard::StateGuard;
use zgate_nfs::v4::server::{Identity, NoObserver, ServerAddresses, ServerOptions};
use zgate_nfs::v4::state::State;
use zgate_nfs::v4::state::grace::GracePeriod;
use zgate_nfs::v4::state::view::{ClientView, StateTotals};
use zgate_nfs::{Peer, mount, v3, v4};
use zgate_nfs_wire::v4::Fh;
use zgate_rpc::AcceptError;
use zgate_rpc::drc::ReplyCache;
use zgate_store::{FileStore, NodeHandle};
use zgate_test_harness::nfs::open_export;
use zgate_xdr::{Decoder, Message};

/// Lease, in seconds.
pub const LEASE_SECONDS: u32 = 10;
/// Grace period, in seconds; at most three times that.
pub const GRACE_SECONDS: u32 = 12;
/// Longest wait for running requests at a stop, in seconds.
const DRAIN_SECONDS: u64 = 5;
/// Time after which a server that cannot reach its disk is replaced, at most.
const TAKEOVER_NANOS: u64 = 6 * SECOND;
/// Most open files.
const OPEN_FILES: usize = 1000;
/// Paths of the export: the first one, and that after a rename.
pub const EXPORTS: [&str; 2] = ["/export", "/renamed"];
/// Difference of the wall clock to the monotonic clock, in seconds.
pub(crate) const WALL_SECONDS: i64 = 1_750_000_000;

/// One start of the server.
struct Instance {
    number: u32,
    v4: Arc<v4::Server>,
    v3: v3::Server,
    mount: mount::Server,
    replies: ReplyCache,
    runtime: Arc<ServerRuntime>,
    repeated: RepeatedSlots,
    /// No request begins any more.
    drains: AtomicBool,
    /// Requests that run.
    requests: AtomicUsize,
    kerberos: Kerberos,
    target: Arc<Target>,
    /// Absent: the clients have no TLS.
    tls: Option<TlsService>,
}

/// Counts a request while it runs.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(running: &'a AtomicUsize) -> Self {
        running.fetch_add(1, Ordering::AcqRel);
        Self(running)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The server of all starts.
pub struct Gateway {
    executor: Arc<Executor>,
    trace: Arc<Trace>,
    network: Arc<Network>,
    disk: Arc<Disk>,
    records: Arc<Records>,
    reservations: Arc<Reservations>,
    wires: Arc<Wires>,
    acceptor: Acceptor,
    export: Arc<Export>,
    seed: u64,
    mutant: Option<Mutant>,
    tls_setup: Option<Arc<TlsSetup>>,
    tick_seconds: AtomicU64,
    /// Generations of the exports.
    reloads: AtomicU64,
    /// Seconds by which the wall clock has jumped.
    wall_jumps: Arc<AtomicI64>,
    /// The export cannot be opened.
    is_away: AtomicBool,
    /// The export has its second path.
    is_renamed: AtomicBool,
    inside: Mutex<(u32, Option<Arc<Instance>>)>,
    /// A server that another machine has replaced, and that still runs.
    replaced: Mutex<Option<Arc<Instance>>>,
}

impl Gateway {
    /// A server that does not run yet.
    #[must_use]
    pub fn new(
        (executor, trace): (&Arc<Executor>, &Arc<Trace>),
        (network, wires): (&Arc<Network>, &Arc<Wires>),
        disk: &Arc<Disk>,
        tls_setup: Option<Arc<TlsSetup>>,
        seed: u64,
        mutant: Option<Mutant>,
    ) -> Arc<Self> {
        let store: Arc<dyn FileStore> = Arc::<Disk>::clone(disk);
        let store = if mutant == Some(Mutant::NamesNotSynced) {
            store
        } else {
            Arc::new(StableNames::over(store))
        };
        let mut export = open_export(EXPORTS[0], store);
        export.clients.iter_mut().for_each(|rule| rule.flavors = Flavor::ALL.into_iter().collect());
        if let Some(setup) = &tls_setup {
            export.clients = tls::rules(setup, &export.clients);
        }
        let gateway = Arc::new(Self {
            executor: Arc::clone(executor),
            trace: Arc::clone(trace),
            network: Arc::clone(network),
            disk: Arc::clone(disk),
            records: Records::new(disk, seed, mutant),
            reservations: Reservations::new(disk, seed, mutant),
            wires: Arc::clone(wires),
            acceptor: Acceptor::new(seed, executor),
            export: Arc::new(export),
            seed,
            mutant,
            tls_setup,
            tick_seconds: AtomicU64::new(1),
            reloads: AtomicU64::new(1),
            wall_jumps: Arc::default(),
            is_away: AtomicBool::new(false),
            is_renamed: AtomicBool::new(false),
            inside: Mutex::new((0, None)),
            replaced: Mutex::default(),
        });
        network.attach(&gateway);
        wires.attach(&gateway);
        gateway
    }

    /// Number of the start that runs now.
    #[must_use]
    pub fn running(&self) -> Option<u32> {
        lock(&self.inside).1.as_ref().map(|instance| instance.number)
    }

    fn instance(&self, number: u32) -> Option<Arc<Instance>> {
        let running = lock(&self.inside).1.clone();
        let of = |instance: &Arc<Instance>| instance.number == number;
        running.filter(of).or_else(|| lock(&self.replaced).clone().filter(of))
    }

    /// The handle of an object of the export.
    #[must_use]
    pub fn fh(&self, node: NodeHandle) -> Fh {
        FileHandle::Node(self.export.id, node).to_fh()
    }

    /// Starts the server.
    pub fn start(self: &Arc<Self>) {
        let number = lock(&self.inside).0 + 1;
        let domain = Domain::Server(number);
        let runtime = Arc::new(ServerRuntime {
            executor: Arc::clone(&self.executor),
            network: Arc::clone(&self.network),
            wall_jumps: Arc::clone(&self.wall_jumps),
            domain,
            seed: self.seed,
            dice: Mutex::new(Dice::new(self.seed, &format!("server{number}"))),
            by_wall_clock: self.mutant == Some(Mutant::LeaseByWallClock),
            runs_fast_from: (self.mutant == Some(Mutant::ClockRunsFast))
                .then(|| self.executor.nanos()),
        });
        let instance = Arc::new(self.instance_of(number, runtime));
        *lock(&self.inside) = (number, Some(instance));
        self.trace.note("server", format_args!("start {number}"));
        if self.mutant == Some(Mutant::NoTick) {
            return;
        }
        let me = Arc::clone(self);
        self.executor.spawn(domain, async move {
            loop {
                me.executor.sleep(me.tick_seconds.load(Ordering::Acquire) * SECOND).await;
                me.tick(number);
            }
        });
    }

    fn instance_of(&self, number: u32, runtime: Arc<ServerRuntime>) -> Instance {
        let epoch = if self.mutant == Some(Mutant::EpochReused) { 1 } else { number };
        let seconds = if self.mutant == Some(Mutant::GraceEndsEarly) {
            GRACE_SECONDS / 5
        } else {
            GRACE_SECONDS
        };
        let grace = GracePeriod { seconds, max_seconds: 3 * seconds };
        let recovery = ServerRecords { records: Arc::clone(&self.records), domain: runtime.domain };
        let outside: Arc<dyn Runtime> = Arc::<ServerRuntime>::clone(&runtime);
        let now = runtime.now().seconds();
        let state =
            State::new(epoch, LEASE_SECONDS, grace, Arc::new(recovery), now, Arc::clone(&outside))
                .with_open_files(OPEN_FILES);
        let mut write_verifier = *b"verifier";
        if self.mutant != Some(Mutant::VerifierKeptAtStart) {
            write_verifier[3] = number as u8;
        }
        let options = ServerOptions {
            identity: Identity {
                owner_major: b"simulator".to_vec(),
                owner_minor: 0,
                scope: b"simulator".to_vec(),
            },
            boot_epoch: epoch,
            write_verifier,
            lease_seconds: LEASE_SECONDS,
            grace_seconds: seconds,
            max_minor: 2,
            addresses: ServerAddresses::default(),
        };
        let namespace = self.namespace();
        let v4 =
            Arc::new(v4::Server::new(options, state, namespace, outside, Arc::new(NoObserver)));
        let guard: Arc<dyn v3::ConflictGuard> = if self.mutant == Some(Mutant::NoRecallByV3) {
            Arc::new(v3::NoConflicts)
        } else {
            let guard = Arc::new(StateGuard::default());
            guard.connect(&v4);
            guard
        };
        let of_v4 = Arc::clone(&v4);
        let source: v3::NamespaceSource = Arc::new(move || of_v4.namespace());
        let v3 =
            v3::Server { namespace: Arc::clone(&source), write_verifier: v4.write_verifier, guard };
        Instance {
            number,
            v4,
            v3,
            mount: mount::Server::new(source),
            replies: ReplyCache::new(),
            runtime,
            repeated: RepeatedSlots::default(),
            drains: AtomicBool::new(false),
            requests: AtomicUsize::new(0),
            kerberos: Kerberos::new(Dice::new(self.seed, &format!("kerberos of {number}"))),
            target: Target::new(
                number,
                &self.executor,
                (&self.disk, &self.reservations),
                &self.wires,
                Dice::new(self.seed, &format!("target{number}")),
                self.mutant,
            ),
            tls: self.tls_setup.as_deref().map(TlsService::new),
        }
    }

    /// The target of the running server.
    #[must_use]
    pub fn target(&self) -> Option<Arc<Target>> {
        let instance = lock(&self.inside).1.clone()?;
        (!instance.drains.load(Ordering::Acquire)).then(|| Arc::clone(&instance.target))
    }

    fn namespace(&self) -> Namespace {
        let generation = self.reloads.load(Ordering::Acquire);
        let renamed = self.is_renamed.load(Ordering::Acquire);
        let export = if renamed { moved(&self.export) } else { Arc::clone(&self.export) };
        let away = self.is_away.load(Ordering::Acquire);
        let present = if away { Vec::new() } else { vec![Arc::clone(&export)] };
        let absent = away.then(|| AbsentExport {
            id: export.id,
            pseudo_path: export.pseudo_path.clone(),
            clients: export.clients.clone(),
            versions: export.versions,
            tcp: export.tcp,
            rdma: export.rdma,
        });
        // One export has no name that another one could have.
        Namespace::new(present, generation)
            .and_then(|namespace| namespace.with_absent(absent.into_iter().collect()))
            .unwrap_or_else(|error| panic!("the exports of the simulator: {error}"))
    }

    /// Replaces the exports by equal ones.
    pub fn reload(&self) {
        self.reloads.fetch_add(1, Ordering::AcqRel);
        if let Some(instance) = lock(&self.inside).1.clone() {
            instance.v4.replace_namespace(self.namespace());
        }
    }

    /// The export gets its other path.
    pub fn rename(&self) {
        self.is_renamed.fetch_xor(true, Ordering::AcqRel);
        self.reload();
    }

    /// The export cannot be opened any more, or again.
    pub fn set_away(&self, away: bool) {
        if self.is_away.swap(away, Ordering::AcqRel) != away {
            self.trace.note("server", format_args!("the export is away: {away}"));
            self.reload();
        }
    }

    /// The export comes back with what it had at the snapshot. As in the gateway, clients are
    /// told that what they have not committed may be gone, and return their delegations.
    pub fn roll_back(&self, clients: usize) {
        let instance = lock(&self.inside).1.clone();
        self.disk.roll_back(clients, instance.is_some());
        self.set_away(false);
        if self.mutant != Some(Mutant::RollbackRecallsNothing)
            && let Some(instance) = instance
        {
            instance.v4.content_replaced(&BTreeSet::from([self.export.id]));
        }
    }

    /// The server's machine loses its way to the disk for this time; before it
    /// is over, another machine takes over. The server is cut off from its
    /// clients and fenced, and runs on.
    pub fn take_over(self: &Arc<Self>, late: u64) {
        let Some(number) = self.running() else { return };
        self.disk.delay_server(number, late);
        let me = Arc::clone(self);
        self.executor.spawn(Domain::Outside, async move {
            me.executor.sleep((late / 2).min(TAKEOVER_NANOS)).await;
            me.replace(number);
            me.executor.sleep(2 * late).await;
            me.end_replaced(number);
        });
    }

    fn replace(self: &Arc<Self>, number: u32) {
        let replaced = {
            let mut inside = lock(&self.inside);
            let is_it = inside.1.as_ref().is_some_and(|running| running.number == number);
            inside.1.take_if(|_| is_it)
        };
        let Some(replaced) = replaced else { return };
        let earlier = lock(&self.replaced).replace(replaced).map(|earlier| earlier.number);
        earlier.into_iter().for_each(|earlier| self.executor.end(Domain::Server(earlier)));
        self.trace.note("server", format_args!("{number} is replaced"));
        self.network.server_ended(number);
        self.wires.server_ended(number);
        self.disk.fence(number + 1);
        self.start();
    }

    /// Ends a server that another machine has replaced.
    fn end_replaced(&self, number: u32) {
        let replaced = lock(&self.replaced).take_if(|replaced| replaced.number == number);
        if replaced.is_some() {
            self.trace.note("server", format_args!("end {number}"));
            self.executor.end(Domain::Server(number));
        }
    }

    /// Ends every server that another machine has replaced.
    pub fn end_all_replaced(&self) {
        let number = lock(&self.replaced).as_ref().map(|replaced| replaced.number);
        number.into_iter().for_each(|number| self.end_replaced(number));
    }

    /// The wall clock jumps.
    pub fn jump_wall_clock(&self, seconds: i64) {
        self.wall_jumps.fetch_add(seconds, Ordering::AcqRel);
    }

    /// Stops the server as a service manager does: no request begins any more,
    /// those that run have some seconds. Returns once it has stopped.
    pub async fn drain(&self) {
        let Some(instance) = lock(&self.inside).1.clone() else { return };
        self.trace.note("server", format_args!("drains {}", instance.number));
        instance.drains.store(true, Ordering::Release);
        let limit = self.executor.nanos() + DRAIN_SECONDS * SECOND;
        while instance.requests.load(Ordering::Acquire) > 0 && self.executor.nanos() < limit {
            self.executor.sleep(SECOND / 20).await;
        }
        // The replies leave first.
        self.executor.sleep(SECOND / 20).await;
        if self.running() == Some(instance.number) {
            self.kill();
        }
    }

    /// Sets the time between two ticks, to let much time pass.
    pub fn tick_every(&self, seconds: u64) {
        self.tick_seconds.store(seconds, Ordering::Release);
    }

    /// The server's work of every second.
    fn tick(&self, number: u32) {
        let Some(instance) = self.instance(number) else { return };
        instance.v4.tick(instance.runtime.now().seconds());
        instance.target.tick();
        if self.mutant != Some(Mutant::ContextsKept) {
            instance.kerberos.contexts.expire(instance.runtime.now().seconds());
        }
    }

    /// State of the client of this name at the running server.
    #[must_use]
    pub fn client(&self, name: &str) -> Option<ClientView> {
        let instance = lock(&self.inside).1.clone()?;
        let clients = instance.v4.clients(instance.runtime.now().seconds());
        clients.into_iter().find(|client| client.name == name)
    }

    /// Sums of the running server's state, and its open files.
    #[must_use]
    pub fn totals(&self) -> Option<(StateTotals, usize)> {
        let instance = lock(&self.inside).1.clone()?;
        let totals = instance.v4.totals(instance.runtime.now().seconds());
        Some((totals, instance.v4.open_files()))
    }

    /// Number of security contexts of the running server.
    #[must_use]
    pub fn contexts(&self) -> usize {
        lock(&self.inside).1.as_ref().map_or(0, |instance| instance.kerberos.contexts.len())
    }

    /// Ends the server at once, wherever its tasks are.
    pub fn kill(&self) {
        let instance = lock(&self.inside).1.take();
        let Some(instance) = instance else { return };
        self.trace.note("server", format_args!("end {}", instance.number));
        self.executor.end(Domain::Server(instance.number));
        self.network.server_ended(instance.number);
        self.wires.server_ended(instance.number);
    }

    /// Ends the server with the power.
    pub fn lose_power(&self) {
        self.end_all_replaced();
        self.kill();
        self.disk.lose_power();
    }

    /// The server learns of the end of a connection.
    pub fn connection_closed(&self, server: u32, connection: ConnectionId) {
        if let Some(instance) = self.instance(server) {
            instance.v4.connection_closed(connection);
            self.forget_connection(&instance, connection);
        }
    }

    /// Answers a record as the gateway does. `None`: there is no answer to it,
    /// because newer copies of the request wait for the reply.
    pub async fn answer(&self, server: u32, peer: Peer, record: Bytes) -> Option<Bytes> {
        let reply = self.answer_message(server, peer, record.clone()).await?.flatten()?;
        Some(match self.mutant {
            Some(Mutant::RenewAlwaysGood) => renewed(&record, reply),
            _ => reply,
        })
    }

    /// The same, in pieces.
    pub async fn answer_message(&self, server: u32, peer: Peer, record: Bytes) -> Option<Message> {
        let instance = self.instance(server)?;
        if instance.drains.load(Ordering::Acquire) {
            // Its connection ends with the server.
            return None;
        }
        let _counted = Counted::new(&instance.requests);
        let record = match self.mutant {
            Some(Mutant::SlotRunsAgain) => instance.repeated.renumber(&record),
            Some(Mutant::DenyIgnored) => without_deny(&record),
            _ => record,
        };
        let mut d = Decoder::shared(&record);
        let incoming = match Incoming::read(&mut d, &peer, || true) {
            Ok(incoming) => incoming,
            Err(Unaccepted::NotACall) => return None,
            Err(Unaccepted::Answered(message) | Unaccepted::Stranger(message)) => {
                return Some(message);
            }
            Err(Unaccepted::InContext(call)) => {
                let (target, header) = *call;
                let (peer, record) = (&peer, &record);
                let call = GssCall { peer, target, header, record, arguments: d.clone() };
                // Boxed, so that other calls do not grow.
                return Box::pin(self.answer_in_context(&instance, call)).await;
            }
        };
        let result = self.run(&instance, &incoming, &mut d).await?;
        Some(incoming.reply(result))
    }

    /// Runs a call once; `None`: newer copies of it wait for the reply.
    async fn run(
        &self,
        instance: &Instance,
        incoming: &Incoming,
        d: &mut Decoder<'_>,
    ) -> Option<Result<Message, AcceptError>> {
        let programs = instance.programs();
        let running = match self.claim(programs, incoming, d).await {
            Once::Run(running) => running,
            Once::Replay(message) => return Some(Ok(message)),
            Once::Superseded => return None,
        };
        let result = programs.run(incoming, instance.runtime.now(), d).await;
        keep(&result, running);
        Some(result)
    }

    /// As the product does, unless the fault is planted here.
    async fn claim<'a>(
        &self,
        programs: Programs<'a>,
        incoming: &Incoming,
        d: &Decoder<'_>,
    ) -> Once<'a> {
        let otherwise = match self.mutant {
            Some(Mutant::NoReplyCache) => return Once::Run(None),
            Some(Mutant::CopyDropped) => Once::Superseded,
            Some(Mutant::CopyRunsToo) => Once::Run(None),
            _ => return programs.claim(incoming, d).await,
        };
        let mut claim = pin!(programs.claim(incoming, d));
        match claim.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(once) => once,
            Poll::Pending => otherwise,
        }
    }
}

/// The export at its other path.
fn moved(export: &Arc<Export>) -> Arc<Export> {
    Arc::new(Export {
        pseudo_path: EXPORTS[1].to_owned(),
        source: export.source.clone(),
        store: Arc::clone(&export.store),
        clients: export.clients.clone(),
        ..**export
    })
}

impl Instance {
    fn programs(&self) -> Programs<'_> {
        let Self { v4, v3, mount, replies, .. } = self;
        Programs { v4, v3, mount, replies }
    }
}
