//! What all cores share of the iSCSI service: targets, sessions, figures.

use super::access::Access;
use super::catalog::{Catalog, View};
use super::cell::{Cell, Port};
use super::figures::Figures;
use super::limits::{
    MAX_GATHERED_BYTES, MAX_GATHERED_TOTAL_BYTES, MIN_GATHERED_BYTES, PING_AFTER, PING_TIMEOUT,
};
use super::logins::Logins;
use super::settings::{BlockSettings, Portal, TargetSettings, Timeouts};
use super::unit::{Unit, UnitHome};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Instant;
use tokio::sync::mpsc;
use zgate_iscsi::access::TargetListing;
use zgate_iscsi::auth::ChapAccount;
use zgate_iscsi::directory::{Claim, Directory};
use zgate_iscsi::entropy::Entropy;
use zgate_iscsi::login::{LoggedIn, Offer, Transport};
use zgate_iscsi::names::{IscsiName, PortalGroup, Tsih};
use zgate_iscsi::session::{CloseReason, ConnHandle, SendTargets, Session, SessionConfig};
use zgate_iscsi::time::Timestamp;
use zgate_scsi::{Nexus, NexusId, TransportId};

/// What a reload replaces.
#[derive(Clone, Default)]
pub(crate) struct Rules {
    pub catalog: Catalog,
    pub discovery: Option<ChapAccount>,
}

/// The service.
pub(crate) struct BlockService {
    pub figures: Figures,
    /// Connections that are logging in.
    pub logins: Arc<Logins>,
    pub home: UnitHome,
    pub timeouts: Timeouts,
    /// One change at a time.
    pub changing: Mutex<()>,
    rules: RwLock<Arc<Rules>>,
    directory: Mutex<Directory>,
    sessions: Mutex<HashMap<Tsih, Arc<Cell>>>,
    portals: OnceLock<Vec<Portal>>,
    background: OnceLock<mpsc::UnboundedSender<Arc<Unit>>>,
    next_nexus: AtomicU64,
    started: Instant,
    random: File,
}

impl BlockService {
    /// Opens every logical unit.
    ///
    /// # Errors
    /// Naming target and LUN.
    pub(crate) fn new(settings: &BlockSettings, home: UnitHome) -> io::Result<Self> {
        let catalog = Catalog::default().next(settings, &home)?;
        Ok(Self {
            figures: Figures::default(),
            logins: Arc::default(),
            home,
            timeouts: settings.timeouts,
            changing: Mutex::new(()),
            rules: RwLock::new(Arc::new(Rules { catalog, discovery: settings.discovery.clone() })),
            directory: Mutex::new(Directory::new(settings.max_sessions)),
            sessions: Mutex::default(),
            portals: OnceLock::new(),
            background: OnceLock::new(),
            next_nexus: AtomicU64::new(1),
            started: Instant::now(),
            random: File::open("/dev/urandom")?,
        })
    }

    /// The portals, once they listen.
    pub(crate) fn set_portals(&self, portals: Vec<Portal>) {
        let _ = self.portals.set(portals);
    }

    pub(crate) fn portals(&self) -> &[Portal] {
        self.portals.get().map_or(&[], Vec::as_slice)
    }

    /// The portal group of a connection that came to `local`.
    pub(crate) fn group_at(&self, local: Option<SocketAddr>) -> PortalGroup {
        group_at(self.portals(), local)
    }

    /// Who does background work: gets every unit there is and comes to be.
    pub(crate) fn set_background(&self, background: mpsc::UnboundedSender<Arc<Unit>>) {
        for unit in self.rules().catalog.units() {
            let _ = background.send(Arc::clone(unit));
        }
        let _ = self.background.set(background);
    }

    /// The moment as the engine wants it.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.started.elapsed().as_nanos() as u64)
    }

    /// Targets and access at this moment.
    pub(crate) fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts new rules into effect: new units get their background work, ones
    /// that went are closed, sessions see what they may see now.
    pub(crate) fn replace_rules(&self, rules: Rules) {
        let new = Arc::new(rules);
        let old = {
            let mut current = self.rules.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *current, Arc::clone(&new))
        };
        let is_in = |catalog: &Catalog, unit: &Arc<Unit>| {
            catalog.units().any(|known| Arc::ptr_eq(known, unit))
        };
        for unit in new.catalog.units().filter(|unit| !is_in(&old.catalog, unit)) {
            if let Some(background) = self.background.get() {
                let _ = background.send(Arc::clone(unit));
            }
        }
        for unit in old.catalog.units().filter(|unit| !is_in(&new.catalog, unit)) {
            unit.close();
            // Hosts no longer rely on what it lay on.
            if !new.catalog.units().any(|known| known.naa == unit.naa)
                && let Err(error) = self.home.state_dir.forget_file(&unit.naa.to_string())
            {
                tracing::warn!(%error, "a removed LUN is not forgotten");
            }
        }
        for cell in self.sessions() {
            self.refresh_view(&cell, &new);
        }
    }

    fn refresh_view(&self, cell: &Arc<Cell>, rules: &Rules) {
        let Some(name) = &cell.key.target else { return };
        let target = rules.catalog.targets.get(name);
        let admitted =
            target.filter(|target| target.rule(&cell.key.initiator, Some(cell.address)).is_some());
        let Some(target) = admitted else {
            tracing::info!(target = %name, initiator = %cell.key.initiator, "session ended: it may not use the target any more");
            cell.with(|session| session.terminate(CloseReason::Dropped));
            self.end_session(cell);
            return;
        };
        let (old, new) = (cell.view(), target.view(&cell.key.initiator, Some(cell.address)));
        let same = old.units.len() == new.units.len()
            && old.units.iter().zip(&new.units).all(|(a, b)| a.0 == b.0 && Arc::ptr_eq(a.1, b.1));
        if same {
            return;
        }
        let kept: Vec<_> = new.units.values().cloned().collect();
        for unit in old.units.values().filter(|unit| !kept.iter().any(|k| Arc::ptr_eq(k, unit))) {
            unit.disk.nexus_lost(cell.nexus.id);
        }
        cell.set_view(new);
        for unit in &kept {
            unit.disk.reported_luns_changed();
        }
    }

    /// The sessions.
    pub(crate) fn sessions(&self) -> Vec<Arc<Cell>> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let mut cells: Vec<_> = sessions.values().cloned().collect();
        cells.sort_by_key(|cell| cell.nexus.id);
        cells
    }

    /// A session by its handle.
    pub(crate) fn session(&self, tsih: Tsih) -> Option<Arc<Cell>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).get(&tsih).cloned()
    }

    pub(crate) fn directory(&self) -> MutexGuard<'_, Directory> {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is offered for a target.
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
            super::iser::restrict(&mut offer);
        }
        offer
    }

    /// The session of a login that is done. One that it reinstates ends first,
    /// with all its commands.
    pub(crate) async fn establish(
        &self,
        login: &LoggedIn,
        port: &Arc<Port>,
    ) -> Option<(Arc<Cell>, ConnHandle)> {
        let tsih = match login.claim {
            Claim::Joins(tsih) => {
                let cell = self.session(tsih)?;
                let handle = cell.attach(login, port, self.now()).ok()?;
                return Some((cell, handle));
            }
            Claim::New(tsih) => tsih,
            Claim::Reinstates { old, new } => {
                if let Some(old) = self.session(old).filter(|old| old.key == login.key) {
                    old.with(|session| session.terminate(CloseReason::Reinstated));
                    self.end_session(&old);
                }
                new
            }
        };
        let address = port.peer.ip().to_canonical();
        let nexus = Arc::new(Nexus {
            id: NexusId(self.next_nexus.fetch_add(1, Ordering::Relaxed)),
            initiator: TransportId::iscsi_port(login.key.initiator.as_str(), login.key.isid.0),
            relative_port: login.key.portal_group.0,
        });
        let view = self.view_of(login, address);
        let former = self.settle_former(&nexus, &view).await;
        let sessions = self.directory().len().max(1) as u64;
        let share =
            (MAX_GATHERED_TOTAL_BYTES / sessions).clamp(MIN_GATHERED_BYTES, MAX_GATHERED_BYTES);
        let config = SessionConfig {
            max_solicited_bytes: share,
            max_retained_bytes: share,
            ping_after: PING_AFTER,
            ping_timeout: PING_TIMEOUT,
            function_timeout: self.timeouts.function,
            ..SessionConfig::default()
        };
        let session = Session::new(login, tsih, config, self.now());
        let authenticated = login.authenticated.clone();
        let cell = Arc::new(Cell::new(session, address, nexus, authenticated, view, former));
        let handle = cell.attach(login, port, self.now()).ok()?;
        let directory = self.directory();
        // Another login may have taken its place meanwhile.
        if !directory.holds(&login.key, tsih) {
            return None;
        }
        self.sessions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(tsih, Arc::clone(&cell));
        drop(directory);
        Some((cell, handle))
    }

    /// Waits for what earlier sessions of this host have left running on the units it
    /// sees, whatever their ISIDs: a host that logs in writes anew, and must not be
    /// overwritten by itself. Returns the I_T nexuses that took too long; the new session
    /// is kept from the units they still use.
    async fn settle_former(&self, nexus: &Nexus, view: &View) -> Vec<NexusId> {
        let live: Vec<_> = self.sessions().iter().map(|cell| cell.nexus.id).collect();
        let is_former = |one: &Nexus| {
            one.id != nexus.id
                && one.initiator.name() == nexus.initiator.name()
                && !live.contains(&one.id)
        };
        let left = || -> Vec<NexusId> {
            view.units.values().flat_map(|unit| unit.disk.running().nexuses(is_former)).collect()
        };
        let former = left();
        if former.is_empty() {
            return former;
        }
        let is_one = |one: &Nexus| former.contains(&one.id);
        let all = async {
            for unit in view.units.values() {
                unit.disk.settled(is_one).await;
            }
        };
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

    fn view_of(&self, login: &LoggedIn, address: IpAddr) -> View {
        let rules = self.rules();
        let target = login.key.target.as_ref().and_then(|name| rules.catalog.targets.get(name));
        target.map(|target| target.view(&login.key.initiator, Some(address))).unwrap_or_default()
    }

    /// Tidies up after a session that has ended.
    pub(crate) fn end_session(&self, cell: &Arc<Cell>) {
        if !cell.mark_ended() {
            return;
        }
        let was_known = {
            let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            let known = sessions.get(&cell.tsih).is_some_and(|known| Arc::ptr_eq(known, cell));
            if known {
                sessions.remove(&cell.tsih);
            }
            known
        };
        // A reinstated session's handle may belong to another one by now.
        let mut directory = self.directory();
        if was_known && directory.check_join(&cell.key, cell.tsih).is_ok() {
            directory.remove(cell.tsih);
        }
        drop(directory);
        if cell.key.target.is_none() && was_known {
            self.directory().remove(cell.tsih);
        }
        for unit in cell.view().units.values() {
            unit.disk.nexus_lost(cell.nexus.id);
        }
    }

    /// A connection's task ends.
    pub(crate) fn connection_ended(&self, cell: &Arc<Cell>, login: &LoggedIn) {
        let alive = cell.with(|session| session.connections().any(|conn| conn.cid == login.cid));
        if !alive {
            self.directory().remove_connection(cell.tsih, login.cid);
        }
    }

    /// Lets time pass for every session: pings, dead peers, recovery that
    /// nobody comes back for.
    pub(crate) fn tick(&self) {
        let now = self.now();
        for cell in self.sessions() {
            let due = cell.with(|session| session.poll_timeout().is_some_and(|at| at <= now));
            if due {
                cell.with(|session| session.handle_timeout(now));
            }
            cell.look_after_former();
            // Without connections nobody else hears of the end.
            if cell.with(|session| session.is_ended()) && cell.ports().is_empty() {
                self.end_session(&cell);
            }
        }
    }

    /// What SendTargets answers an initiator that asks at `local`.
    pub(crate) fn listing(
        &self,
        scope: &SendTargets,
        initiator: &IscsiName,
        address: IpAddr,
        local: Option<SocketAddr>,
    ) -> Vec<TargetListing> {
        let mut portals: Vec<_> = self
            .portals()
            .iter()
            .map(|portal| {
                let own = portal.address;
                let ip = match local {
                    Some(local) if own.ip().is_unspecified() => local.ip().to_canonical(),
                    _ => own.ip(),
                };
                (SocketAddr::new(ip, own.port()).to_string(), PortalGroup(portal.group))
            })
            .collect();
        // One address may be listened on over TCP and over RDMA.
        let mut seen = std::collections::HashSet::new();
        portals.retain(|portal| seen.insert(portal.clone()));
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

    /// Unpredictable bytes.
    pub(crate) fn entropy(&self) -> SystemEntropy<'_> {
        SystemEntropy(&self.random)
    }
}

impl Rules {
    /// The login rules.
    pub(crate) fn access(&self) -> Access<'_> {
        Access { catalog: &self.catalog, discovery: self.discovery.as_ref() }
    }
}

/// The system's generator.
pub(crate) struct SystemEntropy<'a>(&'a File);

impl Entropy for SystemEntropy<'_> {
    fn fill(&mut self, out: &mut [u8]) {
        // CHAP with guessable challenges would be no proof: better no service.
        self.0.read_exact(out).expect("the system's random numbers can be read");
    }
}

/// The portal that listens at `local`, by its address or else by its port; the
/// first one when the socket does not tell.
fn group_at(portals: &[Portal], local: Option<SocketAddr>) -> PortalGroup {
    let exact = |portal: &&Portal| {
        local.is_some_and(|local| {
            let own = portal.address;
            (own.ip().to_canonical(), own.port()) == (local.ip().to_canonical(), local.port())
        })
    };
    let any = |portal: &&Portal| {
        portal.address.ip().is_unspecified()
            && local.is_some_and(|local| local.port() == portal.address.port())
    };
    let found = portals.iter().find(exact).or_else(|| portals.iter().find(any));
    PortalGroup(found.or(portals.first()).map_or(1, |portal| portal.group))
}

/// The session a login is about.
pub(crate) fn tsih_of(login: &LoggedIn) -> Tsih {
    match login.claim {
        Claim::New(tsih) | Claim::Joins(tsih) | Claim::Reinstates { new: tsih, .. } => tsih,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_belong_to_the_group_they_came_to() {
        let portal = |address: &str, group| Portal {
            address: address.parse().unwrap(),
            group,
            transport: Transport::Tcp,
        };
        let portals =
            [portal("10.0.0.1:3260", 1), portal("10.1.0.1:3260", 2), portal("[::]:3261", 3)];
        let group = |local: &str| group_at(&portals, Some(local.parse().unwrap())).0;
        assert_eq!(group("10.0.0.1:3260"), 1);
        assert_eq!(group("[::ffff:10.1.0.1]:3260"), 2);
        assert_eq!(group("[::ffff:10.1.0.1]:3261"), 3);
        assert_eq!(group("10.9.0.1:1"), 1);
        assert_eq!(group_at(&portals, None).0, 1);
    }
}
