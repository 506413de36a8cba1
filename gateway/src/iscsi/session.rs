//! One live session: the engine behind a lock, and its connections on all
//! cores.
//!
//! A connection's task calls the engine, takes its events and executes them on
//! its own core. Events with another cause (task management of another session,
//! a timer, an administrator) wake a connection.

use super::luns::catalog::LunMap;
use super::luns::unit::Unit;
use crate::net::memory_quota::MemoryReservation;
use crate::observe::load::Load;
use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use zgate_iscsi::directory::SessionKey;
use zgate_iscsi::login::LoggedIn;
use zgate_iscsi::names::Tsih;
use zgate_iscsi::pdu::{Lun as WireLun, TaskFunction};
use zgate_iscsi::session::{
    AttachError, CloseReason, Command, ConnHandle, EndReason, Event, FunctionTag, SendTargets,
    SenseFormat, Session, TaskTag, TextTag,
};
use zgate_iscsi::time::Timestamp;
use zgate_scsi::{Nexus, NexusId};

/// One connection as seen by its session.
#[derive(Debug)]
pub(crate) struct ConnectionHandle {
    pub peer: SocketAddr,
    pub core: usize,
    /// Notified when there is work: send, execute, close.
    pub wake: Arc<Notify>,
    closing: Mutex<Option<CloseReason>>,
}

impl ConnectionHandle {
    pub(crate) fn new(peer: SocketAddr, core: usize) -> Self {
        Self { peer, core, wake: Arc::default(), closing: Mutex::new(None) }
    }

    /// Returns the reason for which the connection must be closed, if any.
    pub(crate) fn closing(&self) -> Option<CloseReason> {
        *self.closing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn close(&self, reason: CloseReason) {
        self.closing.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
        self.wake.notify_one();
    }
}

/// Work that the owner must do for a session, in order.
#[derive(Debug)]
pub(crate) enum Work {
    Run(Box<Command>),
    Function { tag: FunctionTag, function: TaskFunction, lun: WireLun },
    SendTargets { tag: TextTag, scope: SendTargets },
    Ended(EndReason),
}

/// A running command that may be abandoned, and its stop signal.
#[derive(Debug)]
struct Stoppable {
    task: TaskTag,
    stop: Arc<Notify>,
}

/// Counts a command while it runs.
pub(crate) struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The session's view of its target, replaced as a whole.
#[derive(Clone)]
struct View(Arc<RwLock<Arc<LunMap>>>);

impl View {
    fn get(&self) -> Arc<LunMap> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn set(&self, lun_map: LunMap) {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *current, Arc::new(lun_map));
        drop(current);
        // It may be the last to hold storage: closing that keeps nobody from the lock.
        drop(before);
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").finish_non_exhaustive()
    }
}

impl SenseFormat for View {
    /// Locks the logical unit's state while the engine is locked; no engine is called while that
    /// state is locked.
    fn is_descriptor(&self, lun: WireLun) -> bool {
        // Not a clone of the map: the last one closes storage.
        let current = self.0.read().unwrap_or_else(PoisonError::into_inner);
        current.luns.wants_descriptor_sense(lun.0.to_be_bytes())
    }
}

/// State under the lock.
pub(crate) struct Inner {
    pub session: Session,
    /// Memory of the data of writes, until their commands run.
    memory: MemoryReservation,
    connections: Vec<(ConnHandle, Arc<ConnectionHandle>)>,
    work: VecDeque<Work>,
    stoppable: Vec<Stoppable>,
    /// Notified when commands are aborted, for those whose connection is gone.
    aborted: Arc<Notify>,
}

/// A session.
pub(crate) struct LiveSession {
    pub tsih: Tsih,
    pub key: SessionKey,
    pub address: IpAddr,
    pub nexus: Arc<Nexus>,
    pub authenticated: Option<String>,
    pub begun: Instant,
    /// Commands, bytes and time of the session.
    pub load: Load,
    ended: AtomicBool,
    running: AtomicUsize,
    /// Earlier sessions of the host whose commands were still running when this
    /// one began.
    former: Vec<NexusId>,
    /// Set while commands of earlier sessions run.
    has_former: AtomicBool,
    view: View,
    inner: Mutex<Inner>,
}

impl LiveSession {
    pub(crate) fn new(
        mut session: Session,
        memory: MemoryReservation,
        address: IpAddr,
        nexus: Arc<Nexus>,
        authenticated: Option<String>,
        lun_map: LunMap,
        former: Vec<NexusId>,
    ) -> Self {
        let view = View(Arc::new(RwLock::new(Arc::new(lun_map))));
        session.set_sense_format(Box::new(view.clone()));
        Self {
            tsih: session.tsih(),
            key: session.key().clone(),
            address,
            nexus,
            authenticated,
            begun: Instant::now(),
            load: Load::default(),
            ended: AtomicBool::new(false),
            running: AtomicUsize::new(0),
            has_former: AtomicBool::new(!former.is_empty()),
            former,
            view,
            inner: Mutex::new(Inner {
                session,
                memory,
                connections: Vec::new(),
                work: VecDeque::new(),
                stoppable: Vec::new(),
                aborted: Arc::default(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the session's view of its target.
    pub(crate) fn lun_map(&self) -> Arc<LunMap> {
        self.view.get()
    }

    pub(crate) fn set_lun_map(&self, lun_map: LunMap) {
        self.view.set(lun_map);
    }

    /// Informs the host that the set of its logical units changed.
    pub(crate) fn luns_changed(&self) {
        for unit in self.lun_map().units.values() {
            unit.disk.reported_luns_changed(self.nexus.id);
        }
    }

    /// Calls the engine from outside its connections, and wakes a connection if
    /// there is work.
    pub(crate) fn with<T>(&self, call: impl FnOnce(&mut Session) -> T) -> T {
        let mut inner = self.lock();
        let result = inner.call(call);
        inner.wake(None);
        result
    }

    /// Calls the engine for a connection, which takes all pending work. Other
    /// connections with data to send are woken.
    pub(crate) fn drive<T>(
        &self,
        own: ConnHandle,
        todo: &mut VecDeque<Work>,
        call: impl FnOnce(&mut Session) -> T,
    ) -> T {
        let mut inner = self.lock();
        let result = inner.call(call);
        todo.append(&mut inner.work);
        inner.wake(Some(own));
        result
    }

    /// Calls the engine for operations that cause no events.
    pub(crate) fn with_engine<T>(&self, call: impl FnOnce(&mut Session) -> T) -> T {
        call(&mut self.lock().session)
    }

    /// Adds a connection that has logged in.
    pub(crate) fn attach(
        &self,
        login: &LoggedIn,
        connection: &Arc<ConnectionHandle>,
        now: Timestamp,
    ) -> Result<ConnHandle, AttachError> {
        let mut inner = self.lock();
        let handle = inner.session.attach(login, now)?;
        inner.connections.push((handle, Arc::clone(connection)));
        inner.sort_events();
        inner.wake(Some(handle));
        Ok(handle)
    }

    /// Removes a connection whose task has ended. True: it was the last one.
    pub(crate) fn remove_connection(&self, handle: ConnHandle) -> bool {
        let mut inner = self.lock();
        inner.connections.retain(|(known, _)| *known != handle);
        inner.connections.is_empty()
    }

    /// Returns the connections.
    pub(crate) fn connections(&self) -> Vec<(ConnHandle, Arc<ConnectionHandle>)> {
        self.lock().connections.clone()
    }

    /// Takes the oldest pending work.
    pub(crate) fn take_work(&self) -> Option<Work> {
        self.lock().work.pop_front()
    }

    /// Counts a command that begins.
    pub(crate) fn count_running(&self) -> Counted<'_> {
        self.running.fetch_add(1, Ordering::Relaxed);
        Counted(&self.running)
    }

    /// Registers the stop signal of a command that may be abandoned.
    pub(crate) fn begin_stoppable(&self, task: TaskTag, stop: &Arc<Notify>) {
        self.lock().stoppable.push(Stoppable { task, stop: Arc::clone(stop) });
    }

    /// Unregisters a command that has ended.
    pub(crate) fn end_stoppable(&self, task: TaskTag) {
        self.lock().stoppable.retain(|one| one.task != task);
    }

    /// Returns whether a command that was delivered has been aborted.
    pub(crate) fn is_aborted(&self, task: TaskTag) -> bool {
        self.lock().session.is_aborted(task)
    }

    /// Waits until commands are aborted from now on, also before the first poll.
    pub(crate) fn aborted(&self) -> OwnedNotified {
        Arc::clone(&self.lock().aborted).notified_owned()
    }

    /// Returns whether commands of an earlier session of the same host may
    /// still write to a unit.
    pub(crate) fn waits_for_former(&self, unit: &Unit) -> bool {
        self.has_former.load(Ordering::Acquire)
            && unit.disk.running().any(|nexus| self.former.contains(&nexus.id))
    }

    /// Checks whether commands of earlier sessions still run anywhere.
    pub(crate) fn look_after_former(&self) {
        if !self.has_former.load(Ordering::Acquire) {
            return;
        }
        let lun_map = self.lun_map();
        if !lun_map.units.values().any(|unit| self.waits_for_former(unit)) {
            self.has_former.store(false, Ordering::Release);
            tracing::info!(
                initiator = %self.key.initiator,
                "the commands of the earlier session have ended; its logical units are served"
            );
        }
    }

    /// Returns true the first time: the caller cleans up after the session.
    pub(crate) fn mark_ended(&self) -> bool {
        !self.ended.swap(true, Ordering::AcqRel)
    }

    /// Returns the number of running commands.
    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }
}

impl Inner {
    /// Calls the engine, which asks for no more data than there is memory for.
    fn call<T>(&mut self, call: impl FnOnce(&mut Session) -> T) -> T {
        self.session.set_memory_room(self.memory.room_bytes() as u64);
        let result = call(&mut self.session);
        self.memory.set_about(self.session.gathering_bytes() as usize);
        self.sort_events();
        result
    }

    fn stop(&self, task: TaskTag) {
        let named = self.stoppable.iter().filter(|one| one.task == task);
        named.for_each(|one| one.stop.notify_one());
        // A connection that has not begun it ends it at once.
        self.connections.iter().for_each(|(_, connection)| connection.wake.notify_one());
        // So does what has taken over the commands of a connection that is gone.
        self.aborted.notify_waiters();
    }

    /// Sorts the engine's events: closes go to their connections, aborted
    /// commands are stopped or run to their end (their results are dropped),
    /// the rest is queued.
    fn sort_events(&mut self) {
        while let Some(event) = self.session.poll_event() {
            match event {
                Event::Command(command) => self.work.push_back(Work::Run(command)),
                Event::Abort(task) => self.stop(task),
                Event::Function { tag, function, lun, affected } => {
                    affected.into_iter().for_each(|task| self.stop(task));
                    self.work.push_back(Work::Function { tag, function, lun });
                }
                Event::SendTargets { tag, scope } => {
                    self.work.push_back(Work::SendTargets { tag, scope });
                }
                Event::Close(handle, reason) => {
                    if let Some((_, connection)) =
                        self.connections.iter().find(|(known, _)| *known == handle)
                    {
                        connection.close(reason);
                    }
                }
                Event::Ended(reason) => self.work.push_back(Work::Ended(reason)),
            }
        }
    }

    /// Wakes the connections with pending work except `own`.
    fn wake(&self, own: Option<ConnHandle>) {
        for (handle, connection) in &self.connections {
            if Some(*handle) != own && self.session.has_transmit(*handle) {
                connection.wake.notify_one();
            }
        }
        if own.is_none()
            && !self.work.is_empty()
            && let Some((_, connection)) = self.connections.first()
        {
            connection.wake.notify_one();
        }
    }
}
