//! The target of one start of the server: logins, sessions and their
//! connections, as `gateway/src/iscsi` keeps them, on virtual time.

use super::TARGET;
use super::execute::execute;
use super::storage::{Reservations, RunningWrites, ServerReservations, UnitStore};
use super::tasks;
use super::wires::Wires;
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
use zgate_iscsi::directory::{Claim, Directory, SessionKey};
use zgate_iscsi::entropy::Entropy;
use zgate_iscsi::login::{LoggedIn, Login, LoginContext, LoginState, Offer};
use zgate_iscsi::names::{IscsiName, PortalGroup, Tsih};
use zgate_iscsi::pdu::Frame;
use zgate_iscsi::session::{CloseReason, Completion, ConnHandle, Event, Session, SessionConfig};
use zgate_iscsi::time::Timestamp;
use zgate_scsi::{
    AccessState, Disk, DiskConfig, LogicalUnits, Lun, Naa, Nexus, NexusId, PortGroup, TargetPort,
    TransportId,
};
use zgate_store::BlockStore;

/// Most sessions.
const MAX_SESSIONS: usize = 16;
/// Longest time of a task management function, in seconds.
pub(super) const FUNCTION_SECONDS: u64 = 5;
/// Longest wait of a login for commands of earlier sessions, in seconds.
const LOGIN_SECONDS: u64 = 5;
/// The portal group, and the relative number of its target port.
const GROUP: u16 = 1;

/// A session.
pub(super) struct Live {
    pub(super) key: SessionKey,
    pub(super) nexus: Arc<Nexus>,
    tsih: Tsih,
    session: Mutex<Session>,
    connections: Mutex<Vec<(ConnHandle, u64)>>,
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
    wires: Arc<Wires>,
    directory: Mutex<Directory>,
    sessions: Mutex<BTreeMap<u16, Arc<Live>>>,
    next_nexus: AtomicU64,
    dice: Mutex<Dice>,
}

/// Everybody may log in.
struct Open;

impl AccessPolicy for Open {
    fn admit(&self, target: &IscsiName, _: &Peer) -> Admission {
        if target.as_str() != TARGET {
            return Admission::NotFound;
        }
        Admission::Granted(Grant { alias: None, auth: AuthRequirement::None })
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
        naa: Naa::Short([0x30, 0, 0, 0, 0, 0, 0, 1]),
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

fn tsih_of(login: &LoggedIn) -> Tsih {
    match login.claim {
        Claim::New(tsih) | Claim::Joins(tsih) | Claim::Reinstates { new: tsih, .. } => tsih,
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
            for (handle, link) in lock(&live.connections).iter() {
                pdus.extend(
                    std::iter::from_fn(|| session.poll_transmit(*handle)).map(|pdu| (*link, pdu)),
                );
            }
            (result, events, pdus)
        };
        for (link, pdu) in pdus {
            self.wires.send_down(link, pdu);
        }
        for event in events {
            self.carry_out(live, event);
        }
        result
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
                let link = connections.iter().find(|(known, _)| *known == handle);
                if let Some((_, link)) = link {
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
    pub fn serve(
        self: &Arc<Self>,
        link: u64,
        host: usize,
        mut frames: UnboundedReceiver<Frame>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let me = Arc::clone(self);
        async move {
            let Some((done, mut login)) = me.log_in(link, host, &mut frames).await else { return };
            let Some((live, handle)) = me.establish(&done).await else {
                lock(&me.directory).remove_connection(tsih_of(&done), done.cid);
                return me.wires.close_down(link);
            };
            while let Some(pdu) = login.poll_transmit() {
                me.wires.send_down(link, pdu);
            }
            lock(&live.connections).push((handle, link));
            me.drive(&live, |_| {});
            while let Some(frame) = frames.recv().await {
                let now = me.now();
                me.drive(&live, |session| session.handle_pdu(handle, frame, now));
            }
            let now = me.now();
            me.drive(&live, |session| session.handle_closed(handle, now));
            lock(&live.connections).retain(|(known, _)| *known != handle);
            let alive = live.ask(|session| session.connections().any(|one| one.cid == done.cid));
            if !alive {
                lock(&me.directory).remove_connection(live.tsih, done.cid);
            }
        }
    }

    async fn log_in(
        self: &Arc<Self>,
        link: u64,
        host: usize,
        frames: &mut UnboundedReceiver<Frame>,
    ) -> Option<(Box<LoggedIn>, Login)> {
        let address = Network::address(host).0;
        let mut login = Login::new(Offer::default(), Some(address), PortalGroup(GROUP));
        loop {
            let frame = frames.recv().await?;
            {
                let window_of = |tsih: Tsih| {
                    let live = lock(&self.sessions).get(&tsih.0).cloned();
                    live.map(|live| live.ask(|session| session.window()))
                };
                let mut cx = LoginContext {
                    policy: &Open,
                    directory: &mut lock(&self.directory),
                    entropy: &mut Random(&self.dice),
                    window_of: &window_of,
                };
                login.handle_pdu(&frame, &mut cx);
            }
            if let LoginState::Done(done) = login.state() {
                return Some((done.clone(), login));
            }
            while let Some(pdu) = login.poll_transmit() {
                self.wires.send_down(link, pdu);
            }
            if matches!(login.state(), LoginState::Failed(_)) {
                self.wires.close_down(link);
                return None;
            }
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
            Claim::Reinstates { old, new } => {
                let old = lock(&self.sessions).get(&old.0).cloned();
                if let Some(old) = old.filter(|old| old.key == login.key) {
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
        let former = self.disk.running().nexuses(|one| {
            one.id != nexus.id
                && one.initiator.name() == nexus.initiator.name()
                && !living.contains(&one.id)
        });
        if former.is_empty() {
            return former;
        }
        let settled = self.disk.settled(|one: &Nexus| former.contains(&one.id));
        match self.executor.within(LOGIN_SECONDS * SECOND, settled).await {
            Some(()) => Vec::new(),
            None => former,
        }
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
        for live in self.sessions() {
            let due = live.ask(|session| session.poll_timeout().is_some_and(|at| at <= now));
            if due {
                self.drive(&live, |session| session.handle_timeout(now));
            }
            if live.ask(|session| session.is_ended()) && lock(&live.connections).is_empty() {
                self.end_session(&live);
            }
        }
    }
}
