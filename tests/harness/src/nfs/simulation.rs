//! Simulated environment of the server: time, timers, tasks, connections and
//! the clients' ends of the callback paths. One thread, no clock.

use super::callbacks::{CallbackBehavior, CallbackInbox};
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use zgate_nfs::runtime::{
    BoxedFuture, CallbackFailure, CallbackPath, ConnectionId, Names, PrincipalId, PrincipalKind,
};
use zgate_nfs::{Now, Runtime};
use zgate_nfs_wire::v4::callback::CallbackOp;
use zgate_store::Timestamp;
use zgate_xdr::Message;

/// Monotonic time at the beginning, in seconds.
const START_SECONDS: u64 = 1000;
/// Difference of the wall clock to the monotonic clock, in seconds.
const WALL_SECONDS: i64 = 1_750_000_000;
/// Timeout of a callback.
const CALLBACK_MILLISECONDS: u64 = 10_000;
const NANOS: u64 = 1_000_000_000;

/// A task of a test or of the server.
pub(super) type LocalTask = Pin<Box<dyn Future<Output = ()>>>;

thread_local! {
    /// Tasks that continue after a reply; they stay on their thread.
    static TASKS: RefCell<VecDeque<(u64, LocalTask)>> = const { RefCell::new(VecDeque::new()) };
}

static WORLDS: AtomicU64 = AtomicU64::new(0);

/// Set by a waker: a task can continue.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// The simulated environment.
pub struct Simulation {
    id: u64,
    nanos: AtomicU64,
    /// Number of random numbers so far.
    drawn: AtomicU64,
    woken: Arc<Woken>,
    deadlines: Mutex<BTreeSet<u64>>,
    gone: Mutex<HashSet<ConnectionId>>,
    inbox: Mutex<CallbackInbox>,
    /// Connections whose clients answer themselves.
    routes: Mutex<HashMap<ConnectionId, UnboundedSender<CallbackCall>>>,
    /// Names of users and groups; not set: they are numbers.
    pub names: OnceLock<Box<dyn Names>>,
}

/// Users and groups of the domain `example.org`.
#[derive(Debug, Default)]
pub struct FixedNames(pub Vec<(PrincipalId, &'static str)>);

impl Names for FixedNames {
    fn domain(&self) -> Arc<str> {
        "example.org".into()
    }

    fn name_of(&self, id: PrincipalId) -> BoxedFuture<Option<Arc<str>>> {
        let found = self.0.iter().find(|(known, _)| *known == id).map(|(_, name)| (*name).into());
        Box::pin(std::future::ready(found))
    }

    fn id_of(&self, kind: PrincipalKind, name: &str) -> BoxedFuture<Option<u32>> {
        let is_it = |(id, known): &&(PrincipalId, &str)| {
            *known == name && matches!(id, PrincipalId::User(_)) == (kind == PrincipalKind::User)
        };
        let found = self.0.iter().find(is_it).map(|(id, _)| id.number());
        Box::pin(std::future::ready(found))
    }
}

/// A callback on its way to a client that answers itself.
pub struct CallbackCall {
    /// Transaction id.
    pub xid: u32,
    /// The call, with its RPC header.
    pub message: Bytes,
    /// Takes the reply, with its RPC header.
    pub answer: oneshot::Sender<Bytes>,
}

impl Simulation {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            id: WORLDS.fetch_add(1, Ordering::Relaxed),
            nanos: AtomicU64::new(START_SECONDS * NANOS),
            drawn: AtomicU64::new(0),
            woken: Arc::default(),
            deadlines: Mutex::default(),
            gone: Mutex::default(),
            inbox: Mutex::default(),
            routes: Mutex::default(),
            names: OnceLock::new(),
        })
    }

    pub fn clock(&self) -> Now {
        let nanos = self.nanos.load(Ordering::Acquire);
        let wall = Timestamp {
            seconds: WALL_SECONDS + (nanos / NANOS) as i64,
            nanoseconds: (nanos % NANOS) as u32,
        };
        Now { wall, monotonic_nanos: nanos }
    }

    pub fn inbox(&self) -> MutexGuard<'_, CallbackInbox> {
        self.inbox.lock().unwrap()
    }

    /// Sends the callbacks of a connection there instead of into the inbox.
    pub fn route_callbacks(&self, connection: ConnectionId, to: UnboundedSender<CallbackCall>) {
        self.routes.lock().unwrap().insert(connection, to);
    }

    /// Hands a callback to a client that answers itself, if it is one.
    fn hand_over(
        &self,
        path: &CallbackPath,
        xid: u32,
        message: &Bytes,
    ) -> Option<oneshot::Receiver<Bytes>> {
        let CallbackPath::Connection(connection) = path else { return None };
        let (answer, answered) = oneshot::channel();
        let call = CallbackCall { xid, message: message.clone(), answer };
        let routes = self.routes.lock().unwrap();
        routes.get(connection).and_then(|to| to.send(call).ok()).map(|()| answered)
    }

    /// Sets a client's behaviour for callbacks.
    pub fn set_callback_behavior(&self, path: CallbackPath, behavior: CallbackBehavior) {
        self.inbox().behaviors.insert(path, behavior);
    }

    /// All callbacks so far on `path`, without CB_NULL.
    pub fn callbacks(&self, path: &CallbackPath) -> Vec<CallbackOp> {
        self.inbox()
            .callbacks
            .iter()
            .filter(|(at, _)| at == path)
            .map(|(_, op)| op.clone())
            .collect()
    }

    pub fn cut(&self, connection: ConnectionId) {
        self.gone.lock().unwrap().insert(connection);
    }

    /// Runs a future to completion; time advances only when everything waits
    /// for it.
    pub fn drive<T>(&self, mut future: Pin<Box<dyn Future<Output = T> + '_>>) -> T {
        let waker = Waker::from(Arc::clone(&self.woken));
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
                self.settle();
                return value;
            }
            if self.pass() {
                continue;
            }
            assert!(self.skip_to_next_deadline(u64::MAX), "everybody waits for nobody");
        }
    }

    /// Runs a task of the test beside those of the server.
    pub fn spawn(&self, work: LocalTask) {
        TASKS.with_borrow_mut(|tasks| tasks.push_back((self.id, work)));
    }

    /// Runs all tasks until each of them waits for time or is held.
    pub fn settle(&self) {
        while self.pass() {}
    }

    /// Polls every task once; returns whether any made progress.
    fn pass(&self) -> bool {
        let mine = TASKS.with_borrow_mut(|tasks| {
            let (mine, others) = tasks.drain(..).partition(|(id, _)| *id == self.id);
            *tasks = others;
            let mine: VecDeque<_> = mine;
            mine
        });
        let waker = Waker::from(Arc::clone(&self.woken));
        let mut context = Context::from_waker(&waker);
        let mut moved = false;
        for (id, mut task) in mine {
            match task.as_mut().poll(&mut context) {
                Poll::Ready(()) => moved = true,
                Poll::Pending => TASKS.with_borrow_mut(|tasks| tasks.push_back((id, task))),
            }
        }
        self.woken.0.swap(false, Ordering::AcqRel) || moved
    }

    fn skip_to_next_deadline(&self, until: u64) -> bool {
        let mut deadlines = self.deadlines.lock().unwrap();
        let Some(next) = deadlines.first().copied().filter(|next| *next <= until) else {
            return false;
        };
        deadlines.remove(&next);
        self.nanos.fetch_max(next, Ordering::AcqRel);
        true
    }

    /// Advances time to the next whole second and runs everything due until
    /// then.
    pub fn one_second(&self) {
        let until = self.nanos.load(Ordering::Acquire) + NANOS;
        self.settle();
        while self.skip_to_next_deadline(until) {
            self.settle();
        }
        self.nanos.store(until, Ordering::Release);
        self.settle();
    }

    fn pause(self: &Arc<Self>, milliseconds: u64) -> BoxedFuture<()> {
        let deadline = self.nanos.load(Ordering::Acquire) + milliseconds * 1_000_000;
        self.deadlines.lock().unwrap().insert(deadline);
        let me = Arc::clone(self);
        Box::pin(std::future::poll_fn(move |_| {
            if me.nanos.load(Ordering::Acquire) < deadline {
                return Poll::Pending;
            }
            me.woken.0.store(true, Ordering::Release);
            Poll::Ready(())
        }))
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        // A thread that ends drops its tasks itself.
        let _ = TASKS.try_with(|tasks| {
            if let Ok(mut tasks) = tasks.try_borrow_mut() {
                let (mine, others) = tasks.drain(..).partition(|(id, _)| *id == self.id);
                *tasks = others;
                let _: VecDeque<_> = mine;
            }
        });
    }
}

/// The runtime passed to the server.
pub(super) struct SimulatedRuntime(pub Arc<Simulation>);

impl Runtime for SimulatedRuntime {
    fn spawn(&self, work: BoxedFuture<()>) {
        self.0.woken.0.store(true, Ordering::Release);
        TASKS.with_borrow_mut(|tasks| tasks.push_back((self.0.id, work)));
    }

    fn callback(
        &self,
        path: CallbackPath,
        xid: u32,
        call: Message,
    ) -> BoxedFuture<Result<Bytes, CallbackFailure>> {
        let simulation = Arc::clone(&self.0);
        Box::pin(async move {
            if let CallbackPath::Connection(connection) = &path
                && !SimulatedRuntime(Arc::clone(&simulation)).connected(*connection)
            {
                return Err(CallbackFailure::Unreachable);
            }
            let raw = call.flatten().unwrap();
            if let Some(answered) = simulation.hand_over(&path, xid, &raw) {
                return tokio::select! {
                    answer = answered => answer.map_err(|_| CallbackFailure::Unreachable),
                    () = simulation.pause(CALLBACK_MILLISECONDS) => Err(CallbackFailure::TimedOut),
                };
            }
            let answer = simulation.inbox().answer(path, xid, &raw);
            match answer {
                Some(answer) => answer,
                None => {
                    simulation.pause(CALLBACK_MILLISECONDS).await;
                    Err(CallbackFailure::TimedOut)
                }
            }
        })
    }

    fn sleep(&self, milliseconds: u64) -> BoxedFuture<()> {
        self.0.pause(milliseconds)
    }

    fn now(&self) -> Now {
        self.0.clock()
    }

    fn connected(&self, connection: ConnectionId) -> bool {
        !self.0.gone.lock().unwrap().contains(&connection)
    }

    /// SplitMix64: the same numbers in every run.
    fn random(&self) -> u64 {
        let count = self.0.drawn.fetch_add(1, Ordering::Relaxed) + 1;
        let mut bits = count.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }

    fn names(&self) -> Option<&dyn Names> {
        self.0.names.get().map(|names| &**names)
    }
}
