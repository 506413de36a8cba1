//! The target of one start of the server: logins, sessions and their
//! connections, as `gateway/src/iscsi` keeps them, on virtual time.

use super::execute::execute;
use super::iser::{self, Posted, TargetEnd};
use super::storage::{Reservations, RunningWrites, ServerReservations, UnitStore};
use super::tasks;
use super::wires::{Arrived, Wires};
use super::{CHAP_NAME, CHAP_SECRET, HostTransport, STRANGER, TARGET, TARGET_SECRET, has_secret};
use crate::dice::Dice;
use crate::disk::{Disk as Storage, at_once};
use crate::executor::{Domain, Executor, SECOND, lock};
use crate::mutant::Mutant;
use crate::network::Network;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use zgate_iscsi::access::{AccessPolicy, Admission, AuthRequirement, Grant, Peer};
use zgate_iscsi::auth::{ChapAccount, ChapAlgorithm, ChapPolicy, Secret};
use zgate_iscsi::directory::{Claim, Directory, SessionKey};
use zgate_iscsi::entropy::Entropy;
use zgate_iscsi::iser::limits::MAX_DATA_BYTES;
use zgate_iscsi::login::{LoggedIn, Login, LoginContext, LoginState, Offer, Transport};
use zgate_iscsi::names::{IscsiName, PortalGroup, Tsih};
use zgate_iscsi::pdu::{Frame, Opcode, Outgoing, TaskFunction, TaskRequest};
use zgate_iscsi::session::{CloseReason, Completion, ConnHandle, Event, Session, SessionConfig};
use zgate_iscsi::time::Timestamp;
use zgate_scsi::{
    AccessState, Disk, DiskConfig, LogicalUnits, Lun, Naa, Nexus, NexusId, PortGroup, TargetPort,
    TransportId,
};
use zgate_store::BlockStore;
use zgate_target::{former_commands, former_settled};

/// Most sessions.
const MAX_SESSIONS: usize = 16;
/// Longest time of a task management function, in seconds.
pub(super) const FUNCTION_SECONDS: u64 = 5;
/// Longest wait of a login for commands of earlier sessions, in seconds.
const LOGIN_SECONDS: u64 = 5;
/// The portal group, and the relative number of its target port.
const GROUP: u16 = 1;

/// A connection of a session.
#[derive(Clone)]
struct Carrier {
    handle: ConnHandle,
    link: u64,
    /// Over iSER.
    iser: Option<Arc<TargetEnd>>,
}

/// A session.
pub(super) struct Live {
    pub(super) key: SessionKey,
    pub(super) nexus: Arc<Nexus>,
    tsih: Tsih,
    session: Mutex<Session>,
    connections: Mutex<Vec<Carrier>>,
    /// Earlier sessions of the host whose commands still ran at its login.
    former: Vec<NexusId>,
    ended: AtomicBool,
}

impl Live {
    /// Calls the engine for what causes neither events nor PDUs.
    pub(super) fn ask<T>(&self, call: impl FnOnce(&mut Session) -> T) -> T {
        call(&mut lock(&self.session))
    }

    /// Commands of earlier sessions of the host may still write.
    pub(super) fn waits_for_former(&self, disk: &Disk) -> bool {
        !self.former.is_empty() && disk.running().any(|nexus| self.former.contains(&nexus.id))
    }
}

/// The target.
pub struct Target {
    /// Number of the start.
    pub server: u32,
    pub(super) executor: Arc<Executor>,
    pub(super) mutant: Option<Mutant>,
    pub(super) luns: LogicalUnits,
    pub(super) disk: Arc<Disk>,
    running: Arc<RunningWrites>,
    pub(super) wires: Arc<Wires>,
    directory: Mutex<Directory>,
    sessions: Mutex<BTreeMap<u16, Arc<Live>>>,
    next_nexus: AtomicU64,
    dice: Mutex<Dice>,
}

/// Everybody may log in; a host that has a secret must know it.
struct Admit {
    mutant: Option<Mutant>,
}

impl AccessPolicy for Admit {
    fn admit(&self, target: &IscsiName, peer: &Peer) -> Admission {
        if target.as_str() != TARGET {
            return Admission::NotFound;
        }
        let account = |name: &str, secret: &[u8]| ChapAccount {
            name: name.into(),
            secret: Secret::new(secret),
        };
        let mut initiators = vec![account(CHAP_NAME, CHAP_SECRET)];
        if self.mutant == Some(Mutant::StrangerAdmitted) {
            initiators.push(account(STRANGER, CHAP_SECRET));
        }
        let auth = match has_secret(peer.initiator.as_str()) {
            true => AuthRequirement::Chap(ChapPolicy {
                initiators,
                target: Some(account("target", TARGET_SECRET)),
                algorithms: ChapAlgorithm::ALL.to_vec(),
            }),
            false => AuthRequirement::None,
        };
        Admission::Granted(Grant { alias: None, auth })
    }

    fn admit_discovery(&self, _: &Peer) -> Option<AuthRequirement> {
        None
    }
}

struct Random<'a>(&'a Mutex<Dice>);

impl Entropy for Random<'_> {
    fn fill(&mut self, out: &mut [u8]) {
        let mut dice = lock(self.0);
        out.iter_mut().for_each(|byte| *byte = dice.u64() as u8);
    }
}

fn config() -> DiskConfig {
    let port =
        TargetPort { relative_id: GROUP, target_name: TARGET.to_owned(), portal_group_tag: GROUP };
    let group = PortGroup {
        id: GROUP,
        preferred: true,
        state: AccessState::ActiveOptimized,
        ports: vec![port],
    };
    DiskConfig {
        vendor: "ZGATE".to_owned(),
        product: "SIMULATED".to_owned(),
        revision: "0001".to_owned(),
        serial: "1".to_owned(),
        naa: Naa::Short(super::NAA),
        logical_block_bytes: super::LOGICAL_BLOCK_BYTES as u32,
        physical_block_bytes: None,
        read_only: false,
        removable: false,
        write_cache: None,
        thin: true,
        sanitize: false,
        explicit_alua: false,
        state_elsewhere: false,
        token_secret: [7; 16],
        port_groups: vec![group],
    }
}

/// A planted fault: a request for recovery that the target does not see.
fn overlooks(mutant: Mutant, frame: &Frame) -> bool {
    match frame.bhs.opcode() {
        Opcode::SNACK => mutant == Mutant::SnackIgnored,
        Opcode::TASK_REQUEST => {
            let function = TaskRequest::parse(&frame.bhs).function;
            mutant == Mutant::ReassignIgnored && function == TaskFunction::TASK_REASSIGN
        }
        _ => false,
    }
}

impl Target {
    /// The target of a start.
    #[must_use]
    pub fn new(
        server: u32,
        executor: &Arc<Executor>,
        (storage, reservations): (&Arc<Storage>, &Arc<Reservations>),
        wires: &Arc<Wires>,
        dice: Dice,
        mutant: Option<Mutant>,
    ) -> Arc<Self> {
        let running = Arc::<RunningWrites>::default();
        let store: Arc<dyn BlockStore> = Arc::new(UnitStore {
            disk: Arc::clone(storage),
            mutant,
            running: Arc::clone(&running),
        });
        let domain = Domain::Server(server);
        let kept = Arc::new(ServerReservations { all: Arc::clone(reservations), domain });
        let disk = at_once(Disk::open(config(), store, kept));
        let disk = Arc::new(disk.unwrap_or_else(|error| panic!("the unit: {error}")));
        let number = Lun::new(0).unwrap_or_else(|| panic!("0 is a LUN"));
        Arc::new(Self {
            server,
            executor: Arc::clone(executor),
            mutant,
            luns: LogicalUnits::new([(number, Arc::clone(&disk))]),
            disk,
            running,
            wires: Arc::clone(wires),
            directory: Mutex::new(Directory::new(MAX_SESSIONS)),
            sessions: Mutex::default(),
            next_nexus: AtomicU64::new(1),
            dice: Mutex::new(dice),
        })
    }

    fn now(&self) -> Timestamp {
        Timestamp(self.executor.nanos())
    }

    fn domain(&self) -> Domain {
        Domain::Server(self.server)
    }

    /// All sessions.
    pub(super) fn sessions(&self) -> Vec<Arc<Live>> {
        lock(&self.sessions).values().cloned().collect()
    }

    /// Returns whether a write runs that began before this time.
    #[must_use]
    pub fn writes_since_before(&self, nanos: u64) -> bool {
        self.running.any_before(nanos)
    }

    /// Time until a command begins on a busy core.
    pub(super) fn backlog(&self) -> u64 {
        let mut dice = lock(&self.dice);
        if dice.once_in(8) { dice.spread(10_000, 2 * SECOND) } else { 0 }
    }

    /// Number of sessions, and of commands that run.
    #[must_use]
    pub fn left(&self) -> (usize, usize) {
        let known = lock(&self.directory).len();
        let sessions = lock(&self.sessions).len().max(known);
        (sessions, self.disk.running().nexuses(|_| true).len())
    }

    /// Calls a session's engine, sends its PDUs and carries out its events.
    pub(super) fn drive<T>(
        self: &Arc<Self>,
        live: &Arc<Live>,
        call: impl FnOnce(&mut Session) -> T,
    ) -> T {
        let (result, events, pdus) = {
            let mut session = lock(&live.session);
            let result = call(&mut session);
            let events: Vec<Event> = std::iter::from_fn(|| session.poll_event()).collect();
            let mut pdus = Vec::new();
            for carrier in lock(&live.connections).iter() {
                pdus.extend(
                    std::iter::from_fn(|| session.poll_transmit(carrier.handle))
                        .map(|pdu| (carrier.clone(), pdu)),
                );
            }
            (result, events, pdus)
        };
        for (carrier, pdu) in pdus {
            self.transmit(live, carrier, pdu);
        }
        for event in events {
            self.carry_out(live, event);
        }
        result
    }

    /// Sends a PDU, or does what it stands for over iSER.
    fn transmit(self: &Arc<Self>, live: &Arc<Live>, carrier: Carrier, pdu: Outgoing) {
        let Carrier { handle, link, iser } = carrier;
        let Some(iser) = iser else { return self.wires.send_down(link, pdu) };
        match iser.transmit(pdu) {
            None => {}
            Some(Posted::Send { writes, message }) => {
                self.wires.write_memory(link, writes, message);
            }
            Some(Posted::Read { r2t, from, front }) => {
                let (me, live) = (Arc::clone(self), Arc::clone(live));
                let late = match self.mutant {
                    Some(Mutant::ReadAfterAbort) => lock(&self.dice).spread(1000, 8 * SECOND),
                    _ => 0,
                };
                let told = (late == 0).then(|| self.wires.read_memory(link, from));
                self.executor.spawn_local(self.domain(), async move {
                    let told = match told {
                        Some(told) => told,
                        None => {
                            me.executor.sleep(late).await;
                            me.wires.read_memory(link, from)
                        }
                    };
                    // Otherwise the connection is gone.
                    let Ok(read) = told.await else { return };
                    let (data, now) = (iser::solicited(front, &read), me.now());
                    me.drive(&live, |session| session.handle_solicited(handle, &r2t, data, now));
                });
            }
        }
    }

    fn carry_out(self: &Arc<Self>, live: &Arc<Live>, event: Event) {
        let (me, of) = (Arc::clone(self), Arc::clone(live));
        match event {
            Event::Command(command) => self.executor.spawn_local(self.domain(), async move {
                let (task, completion) = execute(&me, &of, command).await;
                me.drive(&of, |session| session.complete(task, completion));
            }),
            Event::Function { tag, function, lun, .. } => {
                self.executor.spawn_local(self.domain(), async move {
                    let result = tasks::effects(&me, &of, function, lun).await;
                    me.drive(&of, |session| session.function_done(tag, result));
                });
            }
            Event::Close(handle, _) => {
                let connections = lock(&live.connections);
                let known = connections.iter().find(|known| known.handle == handle);
                if let Some(Carrier { link, .. }) = known {
                    self.wires.close_down(*link);
                }
            }
            Event::Ended(_) => self.end_session(live),
            Event::Abort(task) if self.mutant == Some(Mutant::AbortAnsweredEarly) => {
                self.drive(live, |session| session.complete(task, Completion::default()));
            }
            // Commands run to their end; nobody discovers here.
            Event::Abort(_) | Event::SendTargets { .. } => {}
        }
    }

    /// Serves a connection to its end.
    pub(super) fn serve(
        self: &Arc<Self>,
        link: u64,
        (host, transport): (usize, HostTransport),
        mut frames: UnboundedReceiver<Arrived>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let me = Arc::clone(self);
        let iser = transport == HostTransport::Iser;
        async move {
            let Some((done, mut login)) = me.log_in(link, (host, iser), &mut frames).await else {
                return;
            };
            let Some((live, handle)) = me.establish(&done).await else {
                lock(&me.directory).remove_connection(done.claim.tsih(), done.cid);
                return me.wires.close_down(link);
            };
            if !me.settle_leftovers(&live).await {
                let now = me.now();
                me.drive(&live, |session| session.handle_closed(handle, now));
                lock(&me.directory).remove_connection(live.tsih, done.cid);
                return me.wires.close_down(link);
            }
            while let Some(pdu) = login.poll_transmit() {
                me.answer_login(link, iser, pdu);
            }
            let iser = iser.then(|| Arc::new(TargetEnd::new(done.params.solicited_buffer_only)));
            if done.params.header_digest {
                me.wires.use_digests(link);
            }
            lock(&live.connections).push(Carrier { handle, link, iser: iser.clone() });
            me.drive(&live, |_| {});
            while let Some(Arrived { frame, header }) = frames.recv().await {
                let now = me.now();
                if me.mutant.is_some_and(|mutant| overlooks(mutant, &frame)) {
                    continue;
                }
                if let (Some(iser), Some(header)) = (&iser, &header)
                    && frame.bhs.opcode() == Opcode::SCSI_COMMAND
                {
                    let immediate = frame.data.first().cloned().unwrap_or_default();
                    live.ask(|session| {
                        let alive = |itt| session.has_task(itt);
                        iser.command((&frame.bhs, header), immediate, alive);
                    });
                }
                me.drive(&live, |session| session.handle_pdu(handle, frame, now));
            }
            let now = me.now();
            me.drive(&live, |session| session.handle_closed(handle, now));
            lock(&live.connections).retain(|known| known.handle != handle);
            let alive = live.ask(|session| session.connections().any(|one| one.cid == done.cid));
            if !alive {
                lock(&me.directory).remove_connection(live.tsih, done.cid);
            }
        }
    }

    async fn log_in(
        self: &Arc<Self>,
        link: u64,
        (host, iser): (usize, bool),
        frames: &mut UnboundedReceiver<Arrived>,
    ) -> Option<(Box<LoggedIn>, Login)> {
        let address = Network::address(host).0;
        let transport = if iser { Transport::Iser } else { Transport::Tcp };
        let offer = match iser {
            // As the gateway's over this transport.
            true => Offer { transport, max_recv_bytes: MAX_DATA_BYTES, ..Offer::default() },
            false => Offer { error_recovery_level: 2, ..Offer::default() },
        };
        let mut login = Login::new(offer, Some(address), PortalGroup(GROUP));
        loop {
            let Arrived { frame, .. } = frames.recv().await?;
            {
                let window_of = |tsih: Tsih| {
                    let live = lock(&self.sessions).get(&tsih.0).cloned();
                    live.map(|live| live.ask(|session| session.window()))
                };
                let mut cx = LoginContext {
                    policy: &Admit { mutant: self.mutant },
                    directory: &mut lock(&self.directory),
                    entropy: &mut Random(&self.dice),
                    window_of: &window_of,
                    admit: &|_| Ok(()),
                };
                login.handle_pdu(&frame, &mut cx);
            }
            if let LoginState::Done(done) = login.state() {
                return Some((done.clone(), login));
            }
            while let Some(pdu) = login.poll_transmit() {
                self.answer_login(link, iser, pdu);
            }
            if matches!(login.state(), LoginState::Failed(_)) {
                self.wires.close_down(link);
                return None;
            }
        }
    }

    /// Sends a login response.
    fn answer_login(&self, link: u64, iser: bool, pdu: Outgoing) {
        if !iser {
            return self.wires.send_down(link, pdu);
        }
        if let Some(Posted::Send { writes, message }) = TargetEnd::new(true).transmit(pdu) {
            self.wires.write_memory(link, writes, message);
        }
    }

    /// Creates or finds the session of a completed login.
    async fn establish(self: &Arc<Self>, login: &LoggedIn) -> Option<(Arc<Live>, ConnHandle)> {
        let tsih = match login.claim {
            Claim::Joins(tsih) => {
                let live = lock(&self.sessions).get(&tsih.0).cloned()?;
                let now = self.now();
                let handle = self.drive(&live, |session| session.attach(login, now)).ok()?;
                return Some((live, handle));
            }
            Claim::New(tsih) => tsih,
            Claim::Reinstates { old, new } | Claim::Displaces { old, new } => {
                let old = lock(&self.sessions).get(&old.0).cloned();
                let is_over = |old: &Arc<Live>| !lock(&self.directory).holds(&old.key, old.tsih);
                if let Some(old) = old.filter(is_over) {
                    self.drive(&old, |session| session.terminate(CloseReason::Reinstated));
                    self.end_session(&old);
                }
                new
            }
        };
        let nexus = Arc::new(Nexus {
            id: NexusId(self.next_nexus.fetch_add(1, Ordering::AcqRel)),
            initiator: TransportId::iscsi_port(login.key.initiator.as_str(), login.key.isid.0),
            relative_port: GROUP,
        });
        let former = self.settle_former(&nexus).await;
        let config = SessionConfig {
            function_timeout: Duration::from_secs(FUNCTION_SECONDS),
            ping_after: Duration::from_secs(15),
            ping_timeout: Duration::from_secs(15),
            ..SessionConfig::default()
        };
        let session = Session::new(login, tsih, config, self.now());
        let live = Arc::new(Live {
            key: login.key.clone(),
            nexus,
            tsih,
            session: Mutex::new(session),
            connections: Mutex::default(),
            former,
            ended: AtomicBool::new(false),
        });
        let now = self.now();
        let handle = live.ask(|session| session.attach(login, now)).ok()?;
        let directory = lock(&self.directory);
        // Another login may have replaced it meanwhile.
        if !directory.holds(&login.key, tsih) {
            return None;
        }
        lock(&self.sessions).insert(tsih.0, Arc::clone(&live));
        Some((live, handle))
    }

    /// Waits for commands of earlier sessions of this host; returns those that
    /// took too long.
    async fn settle_former(self: &Arc<Self>, nexus: &Nexus) -> Vec<NexusId> {
        if self.mutant == Some(Mutant::FormerNotAwaited) {
            return Vec::new();
        }
        let living: Vec<_> = self.sessions().iter().map(|live| live.nexus.id).collect();
        let disk = || std::iter::once(&*self.disk);
        let former = former_commands(disk(), nexus, &living);
        if former.is_empty() {
            return former;
        }
        let settled = former_settled(disk(), &former);
        match self.executor.within(LOGIN_SECONDS * SECOND, settled).await {
            Some(()) => Vec::new(),
            None => former,
        }
    }

    /// Waits for commands that were aborted with a connection of this session; returns
    /// false if they took too long.
    async fn settle_leftovers(&self, live: &Live) -> bool {
        if !live.ask(|session| session.has_leftovers()) {
            return true;
        }
        let own = [live.nexus.id];
        let settled = former_settled(std::iter::once(&*self.disk), &own);
        self.executor.within(LOGIN_SECONDS * SECOND, settled).await.is_some()
    }

    /// Cleans up after a session that has ended.
    pub(super) fn end_session(&self, live: &Arc<Live>) {
        if live.ended.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut sessions = lock(&self.sessions);
        let known = sessions.get(&live.tsih.0).is_some_and(|known| Arc::ptr_eq(known, live));
        if known {
            sessions.remove(&live.tsih.0);
        }
        drop(sessions);
        // The handle of a reinstated session may belong to another one by now.
        let mut directory = lock(&self.directory);
        if known && directory.check_join(&live.key, live.tsih).is_ok() {
            directory.remove(live.tsih);
        }
        drop(directory);
        self.disk.nexus_lost(live.nexus.id);
    }

    /// Advances time in every session.
    pub fn tick(self: &Arc<Self>) {
        let now = self.now();
        // With a command under way it is not told the time.
        let misses_nothing = self.mutant == Some(Mutant::LostDataNotMissed);
        for live in self.sessions() {
            let due = live.ask(|session| session.poll_timeout().is_some_and(|at| at <= now));
            if due && !(misses_nothing && live.ask(|session| session.task_count() > 0)) {
                self.drive(&live, |session| session.handle_timeout(now));
            }
            if live.ask(|session| session.is_ended()) && lock(&live.connections).is_empty() {
                self.end_session(&live);
            }
        }
    }
}
