//! One live session: the engine behind a lock, and the way to its
//! connections, wherever they are.
//!
//! A connection's task calls the engine, takes the events and carries them
//! out on its own core. Events that come about elsewhere (another session's
//! task management, a timer, an administrator) wake a connection.

use super::catalog::View;
use super::unit::Unit;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;
use tokio::sync::Notify;
use zgate_iscsi::directory::SessionKey;
use zgate_iscsi::login::LoggedIn;
use zgate_iscsi::names::Tsih;
use zgate_iscsi::pdu::{Lun as WireLun, TaskFunction};
use zgate_iscsi::session::{
    AttachError, CloseReason, Command, ConnHandle, EndReason, Event, FunctionTag, SendTargets,
    Session, TaskTag, TextTag,
};
use zgate_iscsi::time::Timestamp;
use zgate_scsi::{Nexus, NexusId};

/// One connection as its session reaches it.
#[derive(Debug)]
pub(crate) struct Port {
    pub peer: SocketAddr,
    pub core: usize,
    /// Something is to be done: send, run, close.
    pub wake: Notify,
    closing: Mutex<Option<CloseReason>>,
}

impl Port {
    pub(crate) fn new(peer: SocketAddr, core: usize) -> Self {
        Self { peer, core, wake: Notify::new(), closing: Mutex::new(None) }
    }

    /// Why the connection is to be closed, if it is.
    pub(crate) fn closing(&self) -> Option<CloseReason> {
        *self.closing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn close(&self, reason: CloseReason) {
        self.closing.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
        self.wake.notify_one();
    }
}

/// What the owner has to do for a session, in order.
#[derive(Debug)]
pub(crate) enum Work {
    Run(Box<Command>),
    Function { tag: FunctionTag, function: TaskFunction, lun: WireLun },
    SendTargets { tag: TextTag, scope: SendTargets },
    Ended(EndReason),
}

/// A command that may be left before its end, and how it is told so.
#[derive(Debug)]
struct Stoppable {
    task: TaskTag,
    stop: Arc<Notify>,
}

/// Counts a command for as long as it runs.
pub(crate) struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What is under the lock.
pub(crate) struct Inner {
    pub session: Session,
    ports: Vec<(ConnHandle, Arc<Port>)>,
    work: VecDeque<Work>,
    stoppable: Vec<Stoppable>,
}

/// A session.
pub(crate) struct Cell {
    pub tsih: Tsih,
    pub key: SessionKey,
    pub address: IpAddr,
    pub nexus: Arc<Nexus>,
    pub authenticated: Option<String>,
    pub begun: Instant,
    ended: AtomicBool,
    running: AtomicUsize,
    /// Earlier sessions of the host whose commands still ran when this one began.
    former: Vec<NexusId>,
    /// Whether some of them still do.
    has_former: AtomicBool,
    view: RwLock<Arc<View>>,
    inner: Mutex<Inner>,
}

impl Cell {
    pub(crate) fn new(
        session: Session,
        address: IpAddr,
        nexus: Arc<Nexus>,
        authenticated: Option<String>,
        view: View,
        former: Vec<NexusId>,
    ) -> Self {
        Self {
            tsih: session.tsih(),
            key: session.key().clone(),
            address,
            nexus,
            authenticated,
            begun: Instant::now(),
            ended: AtomicBool::new(false),
            running: AtomicUsize::new(0),
            has_former: AtomicBool::new(!former.is_empty()),
            former,
            view: RwLock::new(Arc::new(view)),
            inner: Mutex::new(Inner {
                session,
                ports: Vec::new(),
                work: VecDeque::new(),
                stoppable: Vec::new(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the session sees.
    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set_view(&self, view: View) {
        *self.view.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(view);
    }

    /// Calls the engine from outside its connections, one of which is woken
    /// when there is something to do.
    pub(crate) fn with<T>(&self, call: impl FnOnce(&mut Session) -> T) -> T {
        let mut inner = self.lock();
        let result = call(&mut inner.session);
        inner.sort_events();
        inner.wake(None);
        result
    }

    /// Calls the engine for a connection, which takes all work there is. Other
    /// connections that have something to send are woken.
    pub(crate) fn drive<T>(
        &self,
        own: ConnHandle,
        todo: &mut VecDeque<Work>,
        call: impl FnOnce(&mut Session) -> T,
    ) -> T {
        let mut inner = self.lock();
        let result = call(&mut inner.session);
        inner.sort_events();
        todo.append(&mut inner.work);
        inner.wake(Some(own));
        result
    }

    /// Calls the engine for what brings about no events.
    pub(crate) fn with_engine<T>(&self, call: impl FnOnce(&mut Session) -> T) -> T {
        call(&mut self.lock().session)
    }

    /// Adds a connection that has logged in.
    pub(crate) fn attach(
        &self,
        login: &LoggedIn,
        port: &Arc<Port>,
        now: Timestamp,
    ) -> Result<ConnHandle, AttachError> {
        let mut inner = self.lock();
        let handle = inner.session.attach(login, now)?;
        inner.ports.push((handle, Arc::clone(port)));
        inner.sort_events();
        inner.wake(Some(handle));
        Ok(handle)
    }

    /// The connection's task has ended. True: none is left.
    pub(crate) fn remove_port(&self, handle: ConnHandle) -> bool {
        let mut inner = self.lock();
        inner.ports.retain(|(known, _)| *known != handle);
        inner.ports.is_empty()
    }

    /// The connections' ends.
    pub(crate) fn ports(&self) -> Vec<(ConnHandle, Arc<Port>)> {
        self.lock().ports.clone()
    }

    /// What is to be done, oldest first.
    pub(crate) fn take_work(&self) -> Option<Work> {
        self.lock().work.pop_front()
    }

    /// Counts a command that begins.
    pub(crate) fn count_running(&self) -> Counted<'_> {
        self.running.fetch_add(1, Ordering::Relaxed);
        Counted(&self.running)
    }

    /// Notes how a command is told that it may be left before its end.
    pub(crate) fn begin_stoppable(&self, task: TaskTag, stop: &Arc<Notify>) {
        self.lock().stoppable.push(Stoppable { task, stop: Arc::clone(stop) });
    }

    /// Notes that it has ended.
    pub(crate) fn end_stoppable(&self, task: TaskTag) {
        self.lock().stoppable.retain(|one| one.task != task);
    }

    /// Whether a command that was delivered is not wanted any more.
    pub(crate) fn is_aborted(&self, task: TaskTag) -> bool {
        self.lock().session.is_aborted(task)
    }

    /// Whether commands of an earlier session of the same host may still write to a unit.
    pub(crate) fn waits_for_former(&self, unit: &Unit) -> bool {
        self.has_former.load(Ordering::Acquire)
            && unit.disk.running().any(|nexus| self.former.contains(&nexus.id))
    }

    /// Looks whether commands of earlier sessions are left anywhere.
    pub(crate) fn look_after_former(&self) {
        if !self.has_former.load(Ordering::Acquire) {
            return;
        }
        let view = self.view();
        if !view.units.values().any(|unit| self.waits_for_former(unit)) {
            self.has_former.store(false, Ordering::Release);
            tracing::info!(
                initiator = %self.key.initiator,
                "the commands of the earlier session have ended; its logical units are served"
            );
        }
    }

    /// True the first time: whoever ends the session tidies up after it.
    pub(crate) fn mark_ended(&self) -> bool {
        !self.ended.swap(true, Ordering::AcqRel)
    }

    /// Commands that run now.
    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }
}

impl Inner {
    fn stop(&self, task: TaskTag) {
        let named = self.stoppable.iter().filter(|one| one.task == task);
        named.for_each(|one| one.stop.notify_one());
    }

    /// Takes the engine's events: closes go to their connections, aborted
    /// commands are stopped or run to their end (their results are dropped),
    /// the rest waits.
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
                    if let Some((_, port)) = self.ports.iter().find(|(known, _)| *known == handle) {
                        port.close(reason);
                    }
                }
                Event::Ended(reason) => self.work.push_back(Work::Ended(reason)),
            }
        }
    }

    /// Wakes connections that have something to do, all but `own`.
    fn wake(&self, own: Option<ConnHandle>) {
        for (handle, port) in &self.ports {
            if Some(*handle) != own && self.session.has_transmit(*handle) {
                port.wake.notify_one();
            }
        }
        if own.is_none()
            && !self.work.is_empty()
            && let Some((_, port)) = self.ports.first()
        {
            port.wake.notify_one();
        }
    }
}
