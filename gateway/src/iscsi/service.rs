//! State of the iSCSI service shared by all cores: targets, sessions, stats.

use super::access::{Access, is_one_host};
use super::ended_loads::EndedLoads;
use super::endings::Endings;
use super::limits::{
    MAX_GATHERED_BYTES, MAX_RETAINED_BYTES, MAX_RETAINED_TOTAL_BYTES, MIN_RETAINED_BYTES,
    PING_AFTER, PING_TIMEOUT,
};
use super::logins::Logins;
use super::luns::catalog::{Catalog, LunMap, Target};
use super::luns::unit::{Unit, UnitHome};
use super::luns::volumes::Volumes;
use super::portals::{group_at, told};
use super::session::{ConnectionHandle, LiveSession};
use super::settings::{IscsiSettings, Portal, TargetSettings, Timeouts};
use super::stats::Stats;
use crate::exports::granted::AwaitedTargets;
use crate::exports::limits::UNKNOWN_PATIENCE;
use crate::exports::open::Opening;
use crate::net::accept::is_local;
use crate::net::memory_quota::MemoryReservation;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use zgate_iscsi::access::TargetListing;
use zgate_iscsi::auth::ChapAccount;
use zgate_iscsi::directory::{Claim, Directory};
use zgate_iscsi::entropy::Entropy;
use zgate_iscsi::iser::limits::MAX_DATA_BYTES;
use zgate_iscsi::login::{LoggedIn, Offer, Transport};
use zgate_iscsi::names::{IscsiName, PortalGroup, Tsih};
use zgate_iscsi::session::{CloseReason, ConnHandle, SendTargets, Session, SessionConfig};
use zgate_iscsi::time::Timestamp;
use zgate_scsi::{Nexus, NexusId, TransportId};
use zgate_target::{former_commands, former_settled};

/// Rules replaced by a reload.
#[derive(Clone, Default)]
pub(crate) struct Rules {
    pub catalog: Catalog,
    pub discovery: Option<ChapAccount>,
}

/// The service.
pub(crate) struct IscsiService {
    pub stats: Stats,
    /// Connections that are logging in.
    pub logins: Arc<Logins>,
    pub home: UnitHome,
    /// Attempts to open storage.
    pub volumes: Volumes,
    pub timeouts: Timeouts,
    /// Serializes changes.
    pub changing: Mutex<()>,
    /// Held while access states are read and told to units. Not `changing`: a change
    /// may wait for storage that hangs.
    following: Mutex<()>,
    rules: RwLock<Arc<Rules>>,
    /// Targets of disks of the API that are not known yet.
    pub(super) awaited: RwLock<Arc<AwaitedTargets>>,
    directory: Mutex<Directory>,
    pub(super) sessions: Mutex<HashMap<Tsih, Arc<LiveSession>>>,
    /// Changed while `sessions` is locked.
    pub(super) ended_loads: EndedLoads,
    /// Commands that still run for sessions that have ended.
    pub(super) endings: Endings,
    portals: OnceLock<Vec<Portal>>,
    background: OnceLock<mpsc::UnboundedSender<Arc<Unit>>>,
    next_nexus: AtomicU64,
    started: Instant,
    random: File,
}

impl IscsiService {
    /// Opens every logical unit.
    ///
    /// # Errors
    /// Target and LUN.
    pub(crate) fn new(
        settings: &IscsiSettings,
        home: UnitHome,
        volumes: Volumes,
        how: Opening,
    ) -> io::Result<Self> {
        let catalog = Catalog::default().next(settings, &home, &volumes, how)?;
        Ok(Self {
            stats: Stats::default(),
            logins: Arc::default(),
            home,
            volumes,
            timeouts: settings.timeouts,
            changing: Mutex::new(()),
            following: Mutex::new(()),
            rules: RwLock::new(Arc::new(Rules { catalog, discovery: settings.discovery.clone() })),
            awaited: RwLock::default(),
            directory: Mutex::new(Directory::new(settings.max_sessions)),
            sessions: Mutex::default(),
            ended_loads: EndedLoads::default(),
            endings: Endings::default(),
            portals: OnceLock::new(),
            background: OnceLock::new(),
            next_nexus: AtomicU64::new(1),
            started: Instant::now(),
            random: File::open("/dev/urandom")?,
        })
    }

    /// Sets the portals once they listen.
    pub(crate) fn set_portals(&self, portals: Vec<Portal>) {
        let _ = self.portals.set(portals);
    }

    pub(crate) fn portals(&self) -> &[Portal] {
        self.portals.get().map_or(&[], Vec::as_slice)
    }

    /// Has the access states follow the addresses of this machine: initiators of
    /// a disk whose states have changed are told (SPC-4 §5.15.2.3).
    pub(crate) fn follow_addresses(&self) {
        let _one = self.following.lock().unwrap_or_else(PoisonError::into_inner);
        for (tag, state) in self.home.groups.follow(is_local) {
            tracing::info!(portal_group = tag, ?state, "access state of a target port group");
            for unit in self.rules().catalog.units() {
                unit.disk.set_access_state(tag, state);
            }
        }
    }

    /// Returns the portal group of a connection to `local`.
    pub(crate) fn group_at(&self, local: Option<SocketAddr>, transport: Transport) -> PortalGroup {
        group_at(self.portals(), local, transport)
    }

    /// Sets the receiver of units for background work; it gets all present and
    /// later units.
    pub(crate) fn set_background(&self, background: mpsc::UnboundedSender<Arc<Unit>>) {
        for unit in self.rules().catalog.units() {
            self.home.settle_file(unit);
            let _ = background.send(Arc::clone(unit));
        }
        let _ = self.background.set(background);
    }

    /// Returns the current time for the engine.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.started.elapsed().as_nanos() as u64)
    }

    /// Returns whether a pool that has told nothing since the start is still waited for.
    pub(super) fn awaits_pools(&self) -> bool {
        self.started.elapsed() < UNKNOWN_PATIENCE
    }

    /// Returns the present targets and rules.
    pub(crate) fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts new rules into effect: new units get background work, removed ones
    /// are closed, sessions can only access what the rules allow.
    pub(crate) fn replace_rules(&self, rules: Rules) {
        let new = Arc::new(rules);
        let old = {
            let mut current = self.rules.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *current, Arc::clone(&new))
        };
        self.renew_access_states(&new.catalog);
        let all = |catalog: &Catalog| -> HashSet<*const Unit> {
            catalog.units().map(Arc::as_ptr).collect()
        };
        let (before, now) = (all(&old.catalog), all(&new.catalog));
        for unit in new.catalog.units().filter(|unit| !before.contains(&Arc::as_ptr(unit))) {
            self.home.settle_file(unit);
            if let Some(background) = self.background.get() {
                let _ = background.send(Arc::clone(unit));
            }
        }
        for unit in old.catalog.units().filter(|unit| !now.contains(&Arc::as_ptr(unit))) {
            unit.close();
            // No configured unit has this identity any more.
            if !new.catalog.has_identity(unit.naa) {
                if let Err(error) = self.home.state_files.forget_file(&unit.naa.to_string()) {
                    tracing::warn!(%error, "cannot remove the record of a removed LUN");
                }
                // One that was found may only have gone with its pool.
                if !old.catalog.is_followed(unit) {
                    unit.forget_geometry();
                }
            }
        }
        for live in self.sessions() {
            self.refresh_lun_map(&live, &new);
        }
        if new.catalog.absent().chain(old.catalog.absent()).next().is_some() {
            self.volumes.wake();
        }
    }

    /// Tells the present access states to units that were opened before a change of
    /// them, and put in place after it.
    fn renew_access_states(&self, catalog: &Catalog) {
        let _one = self.following.lock().unwrap_or_else(PoisonError::into_inner);
        for (tag, state) in self.home.groups.present() {
            for unit in catalog.units() {
                unit.disk.set_access_state(tag, state);
            }
        }
    }

    fn refresh_lun_map(&self, live: &Arc<LiveSession>, rules: &Rules) {
        let Some(name) = &live.key.target else { return };
        let target = rules.catalog.targets.get(name);
        let (own, connections) = (Some(live.address), live.connections());
        let peers = connections.iter().map(|(_, connection)| connection.peer.ip().to_canonical());
        let all: Vec<_> = peers.chain(own).collect();
        let authenticated = live.authenticated.as_deref();
        let is_admitted = |target: &Target, address| {
            is_one_host(target, &live.key.initiator, authenticated, [own, Some(address)])
        };
        let admitted =
            target.filter(|target| all.iter().all(|&address| is_admitted(target, address)));
        let Some(target) = admitted else {
            tracing::info!(target = %name, initiator = %live.key.initiator, "session ended: its \
                initiator may no longer use the target, or has to log in again as its rule \
                requires");
            live.with(|session| session.terminate(CloseReason::Dropped));
            self.end_session(live);
            return;
        };
        let (old, new) = (live.lun_map(), target.lun_map(&live.key.initiator, Some(live.address)));
        let same = old.units.len() == new.units.len()
            && old.units.iter().zip(&new.units).all(|(a, b)| a.0 == b.0 && Arc::ptr_eq(a.1, b.1));
        // The list of its LUNs is the same, whatever absent ones tell.
        if same && old.absent.keys().eq(new.absent.keys()) {
            let is_as_before = old.absent == new.absent
                && old.unseen == new.unseen
                && old.luns.is_read_only() == new.luns.is_read_only();
            if !is_as_before {
                live.set_lun_map(new.after(&old));
            }
            return;
        }
        let kept: Vec<_> = new.units.values().cloned().collect();
        // A unit that was only opened again does not lose the nexus.
        let is_kept = |unit: &Unit| kept.iter().any(|kept| kept.disk.is_same_unit(&unit.disk));
        for unit in old.units.values().filter(|unit| !is_kept(unit)) {
            unit.disk.nexus_lost(live.nexus.id);
        }
        live.set_lun_map(new.after(&old));
        live.luns_changed();
        live.lun_map().luns.tell_sizes_since(&old.awaiting, &live.nexus);
    }

    /// Returns all sessions.
    pub(crate) fn sessions(&self) -> Vec<Arc<LiveSession>> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = sessions.values().cloned().collect();
        all.sort_by_key(|live| live.nexus.id);
        all
    }

    /// Returns a session by its handle.
    pub(crate) fn session(&self, tsih: Tsih) -> Option<Arc<LiveSession>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).get(&tsih).cloned()
    }

    pub(crate) fn directory(&self) -> MutexGuard<'_, Directory> {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the offer for a target.
    pub(crate) fn offer(&self, target: Option<&TargetSettings>, transport: Transport) -> Offer {
        let mut offer = Offer {
            max_recv_bytes: 1 << 20,
            max_burst_bytes: (1 << 24) - 512,
            first_burst_bytes: 256 << 10,
            ..Offer::default()
        };
        if let Some(target) = target {
            offer.max_connections = target.max_connections;
            offer.error_recovery_level = target.error_recovery_level;
        }
        if transport == Transport::Iser {
            restrict_to_iser(&mut offer);
        }
        offer
    }

    /// Creates or finds the session of a completed login. A session that it
    /// reinstates ends first, with all its commands.
    pub(crate) async fn establish(
        &self,
        login: &LoggedIn,
        connection: &Arc<ConnectionHandle>,
        memory: &MemoryReservation,
    ) -> Option<(Arc<LiveSession>, ConnHandle)> {
        let tsih = match login.claim {
            Claim::Joins(tsih) => {
                let live = self.session(tsih)?;
                let handle = live.attach(login, connection, self.now()).ok()?;
                // The end of the one that it replaces may have come in between.
                self.directory().add_connection(tsih, login.cid);
                return Some((live, handle));
            }
            Claim::New(tsih) => tsih,
            Claim::Reinstates { old, new } | Claim::Displaces { old, new } => {
                // Its number may be that of another one by now, which stays.
                let is_over = |old: &Arc<LiveSession>| !self.directory().holds(&old.key, old.tsih);
                if let Some(old) = self.session(old).filter(is_over) {
                    old.with(|session| session.terminate(CloseReason::Reinstated));
                    self.end_session(&old);
                }
                new
            }
        };
        let address = connection.peer.ip().to_canonical();
        let nexus = Arc::new(Nexus {
            id: NexusId(self.next_nexus.fetch_add(1, Ordering::Relaxed)),
            initiator: TransportId::iscsi_port(login.key.initiator.as_str(), login.key.isid.0),
            relative_port: login.key.portal_group.0,
        });
        let lun_map = self.lun_map_of(login, address);
        let former = self.settle_former(&nexus, &lun_map).await;
        let sessions = self.directory().len().max(1) as u64;
        let retained = MAX_RETAINED_TOTAL_BYTES / sessions;
        let config = SessionConfig {
            max_solicited_bytes: MAX_GATHERED_BYTES,
            max_retained_bytes: retained.clamp(MIN_RETAINED_BYTES, MAX_RETAINED_BYTES),
            ping_after: PING_AFTER,
            ping_timeout: PING_TIMEOUT,
            function_timeout: self.timeouts.function,
            ..SessionConfig::default()
        };
        let session = Session::new(login, tsih, config, self.now());
        let authenticated = login.authenticated.clone();
        let memory = memory.beside();
        let live =
            LiveSession::new(session, memory, address, nexus, authenticated, lun_map, former);
        let live = Arc::new(live);
        let handle = live.attach(login, connection, self.now()).ok()?;
        let directory = self.directory();
        // Another login may have replaced it meanwhile.
        if !directory.holds(&login.key, tsih) {
            return None;
        }
        self.sessions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(tsih, Arc::clone(&live));
        drop(directory);
        // Rules that were replaced since this login looked at them knew nothing of it.
        self.refresh_lun_map(&live, &self.rules());
        Some((live, handle))
    }

    /// Waits for commands of earlier sessions of this host on its units,
    /// whatever their ISIDs: after a login the host writes again, and must not
    /// be overwritten by its own old writes. Returns the I_T nexuses that took
    /// too long; the new session gets BUSY from the units they still use.
    async fn settle_former(&self, nexus: &Nexus, lun_map: &LunMap) -> Vec<NexusId> {
        let living: Vec<_> = self.sessions().iter().map(|live| live.nexus.id).collect();
        let disks = || lun_map.units.values().map(|unit| &*unit.disk);
        let former = former_commands(disks(), nexus, &living);
        if former.is_empty() {
            return former;
        }
        let all = former_settled(disks(), &former);
        if tokio::time::timeout(self.timeouts.login, all).await.is_ok() {
            return Vec::new();
        }
        tracing::warn!(
            initiator = nexus.initiator.name(),
            "commands of an earlier session of this host still run on the storage; until they \
             have ended, its new session gets BUSY from those logical units"
        );
        former
    }

    /// Waits for commands that were aborted with a connection of this session, before
    /// another one of its connections has its last login response: its host writes again,
    /// and must not be overwritten by its own old writes. Returns false if they took too
    /// long: the connection must be closed, and the host logs in again.
    pub(crate) async fn settle_leftovers(&self, live: &LiveSession) -> bool {
        if !live.with_engine(|session| session.has_leftovers()) {
            return true;
        }
        let (lun_map, own) = (live.lun_map(), [live.nexus.id]);
        let all = former_settled(lun_map.units.values().map(|unit| &*unit.disk), &own);
        if tokio::time::timeout(self.timeouts.login, all).await.is_ok() {
            return true;
        }
        tracing::warn!(
            initiator = live.nexus.initiator.name(),
            "commands of a lost connection still run on the storage; the login of another \
             connection of their session is refused until they have ended"
        );
        false
    }

    fn lun_map_of(&self, login: &LoggedIn, address: IpAddr) -> LunMap {
        let rules = self.rules();
        let target = login.key.target.as_ref().and_then(|name| rules.catalog.targets.get(name));
        target.map(|target| target.lun_map(&login.key.initiator, Some(address))).unwrap_or_default()
    }

    /// Cleans up after a session that has ended.
    pub(crate) fn end_session(&self, live: &Arc<LiveSession>) {
        // Also if another task does the rest: who asks after this call finds it.
        self.endings.note(live);
        if !live.mark_ended() {
            return;
        }
        let was_known = {
            let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            let known = sessions.get(&live.tsih).is_some_and(|known| Arc::ptr_eq(known, live));
            if known {
                sessions.remove(&live.tsih);
                self.ended_loads.note(live, sessions.values());
            }
            known
        };
        // The handle of a reinstated session may belong to another one by now.
        let mut directory = self.directory();
        if was_known && directory.check_join(&live.key, live.tsih).is_ok() {
            directory.remove(live.tsih);
        }
        drop(directory);
        if live.key.target.is_none() && was_known {
            self.directory().remove(live.tsih);
        }
        for unit in live.lun_map().units.values() {
            unit.disk.nexus_lost(live.nexus.id);
        }
    }

    /// Ends a connection's task.
    pub(crate) fn connection_ended(&self, live: &Arc<LiveSession>, login: &LoggedIn) {
        let alive = live.with(|session| session.connections().any(|conn| conn.cid == login.cid));
        if !alive {
            self.directory().remove_connection(live.tsih, login.cid);
        }
    }

    /// Advances time in every session: pings, dead peers, expired recovery.
    pub(crate) fn tick(&self) {
        let now = self.now();
        for live in self.sessions() {
            let due = live.with(|session| session.poll_timeout().is_some_and(|at| at <= now));
            if due {
                live.with(|session| session.handle_timeout(now));
            }
        }
    }

    /// Goes on after a time in which clients were kept waiting, without
    /// [`Self::tick`]: no peer counts as silent for it.
    pub(crate) fn resume(&self, held: Duration) {
        let now = self.now();
        for live in self.sessions() {
            live.with(|session| session.resume_after_hold(held, now));
        }
    }

    /// Cleans up after sessions that have ended, and serves those that waited for
    /// an earlier session of their host. To be called about once a second.
    pub(crate) fn look_after_sessions(&self) {
        for live in self.sessions() {
            live.look_after_former();
            // Without connections no other task detects the end.
            if live.with(|session| session.is_ended()) && live.connections().is_empty() {
                self.end_session(&live);
            }
        }
    }

    /// Returns the SendTargets response for an initiator that asks at `local`.
    pub(crate) fn listing(
        &self,
        scope: &SendTargets,
        initiator: &IscsiName,
        address: IpAddr,
        local: Option<SocketAddr>,
    ) -> Vec<TargetListing> {
        let portals = told(self.portals(), local);
        let rules = self.rules();
        let wanted = |name: &IscsiName| match scope {
            SendTargets::All => true,
            SendTargets::Named(one) => one == name,
        };
        let targets = rules.catalog.targets.iter();
        targets
            .filter(|(name, target)| {
                wanted(name) && target.rule(initiator, Some(address)).is_some()
            })
            .map(|(name, _)| TargetListing { name: name.clone(), portals: portals.clone() })
            .collect()
    }

    /// Returns a source of unpredictable bytes.
    pub(crate) fn entropy(&self) -> SystemEntropy<'_> {
        SystemEntropy(&self.random)
    }
}

impl Rules {
    /// Returns the login rules, with targets that may come.
    pub(crate) fn access<'a>(&'a self, awaited: &'a AwaitedTargets) -> Access<'a> {
        Access { catalog: &self.catalog, discovery: self.discovery.as_ref(), awaited }
    }
}

/// Random number generator of the system.
pub(crate) struct SystemEntropy<'a>(&'a File);

impl Entropy for SystemEntropy<'_> {
    fn fill(&mut self, out: &mut [u8]) {
        // CHAP with predictable challenges would prove nothing: rather stop the
        // service.
        self.0.read_exact(out).expect("the system's random numbers can be read");
    }
}

/// Restricts an offer for iSER: no digests (RFC 7145 §6.1), one connection per
/// session and no recovery within it, short data segments, because long data
/// uses RDMA.
fn restrict_to_iser(offer: &mut Offer) {
    offer.transport = Transport::Iser;
    offer.header_digests = vec!["None"];
    offer.data_digests = vec!["None"];
    offer.max_connections = 1;
    offer.error_recovery_level = 0;
    offer.max_recv_bytes = MAX_DATA_BYTES;
    offer.first_burst_bytes = MAX_DATA_BYTES;
}
