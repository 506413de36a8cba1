//! One live session: the engine behind a lock, and the way to its
//! connections, wherever they are.
//!
//! A connection's task calls the engine, takes the events and carries them
//! out on its own core. Events that come about elsewhere (another session's
//! task management, a timer, an administrator) wake a connection.

use super::catalog::View;
use super::limits::SETTLE_TIMEOUT;
use super::unit::Unit;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};
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
use zgate_scsi::Nexus;

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

/// A command that runs: its number, where, and how it is told to stop.
#[derive(Debug)]
struct Running {
    number: u64,
    unit: usize,
    stop: Option<(TaskTag, Arc<Notify>)>,
}

/// What is under the lock.
pub(crate) struct Inner {
    pub session: Session,
    ports: Vec<(ConnHandle, Arc<Port>)>,
    work: VecDeque<Work>,
    running: Vec<Running>,
    next_number: u64,
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
    ) -> Self {
        Self {
            tsih: session.tsih(),
            key: session.key().clone(),
            address,
            nexus,
            authenticated,
            begun: Instant::now(),
            ended: AtomicBool::new(false),
            view: RwLock::new(Arc::new(view)),
            inner: Mutex::new(Inner {
                session,
                ports: Vec::new(),
                work: VecDeque::new(),
                running: Vec::new(),
                next_number: 0,
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

    /// Notes that a command begins on a unit. One that may be left before its
    /// end says how it is told so.
    pub(crate) fn begin(&self, unit: &Arc<Unit>, stop: Option<(TaskTag, Arc<Notify>)>) -> u64 {
        let mut inner = self.lock();
        let number = inner.next_number;
        inner.next_number += 1;
        inner.running.push(Running { number, unit: Arc::as_ptr(unit) as usize, stop });
        number
    }

    /// Notes that it has ended.
    pub(crate) fn end(&self, number: u64) {
        let mut inner = self.lock();
        if let Some(at) = inner.running.iter().position(|one| one.number == number) {
            inner.running.swap_remove(at);
        }
    }

    /// True the first time: whoever ends the session tidies up after it.
    pub(crate) fn mark_ended(&self) -> bool {
        !self.ended.swap(true, Ordering::AcqRel)
    }

    /// Commands that run now.
    pub(crate) fn running(&self) -> usize {
        self.lock().running.len()
    }

    /// Waits until the commands that run now on a unit (or on all) have
    /// ended, all but `but`.
    pub(crate) async fn settled(&self, unit: Option<&Arc<Unit>>, but: Option<u64>) {
        let unit = unit.map(|unit| Arc::as_ptr(unit) as usize);
        let last = self.lock().next_number;
        let waits = |one: &Running| {
            one.number < last && Some(one.number) != but && unit.is_none_or(|unit| unit == one.unit)
        };
        let deadline = Instant::now() + SETTLE_TIMEOUT;
        let mut pause = Duration::from_micros(200);
        while self.lock().running.iter().any(waits) {
            if Instant::now() > deadline {
                tracing::warn!(session = self.tsih.0, "aborted commands still run; going on");
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }
}

impl Inner {
    fn stop(&self, task: TaskTag) {
        let stops = self.running.iter().filter_map(|one| one.stop.as_ref());
        stops.filter(|(tag, _)| *tag == task).for_each(|(_, stop)| stop.notify_one());
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
