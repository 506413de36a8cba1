//! The outside of the server, simulated: time, timers, tasks, connections and
//! the clients' ends of the callback paths. One thread, no clock.

use super::callbacks::{Ears, Heard, Manner};
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};
use zgate_nfs::runtime::{CallbackFailure, CallbackPath, ConnectionId, LocalFuture};
use zgate_nfs::{Now, Runtime};
use zgate_store::Timestamp;
use zgate_xdr::Message;

/// The monotonic clock at the beginning, in seconds.
const START_SECONDS: u64 = 1000;
/// What the wall clock is ahead, in seconds.
const WALL_SECONDS: i64 = 1_750_000_000;
/// How long a silent client is waited for.
const CALLBACK_MILLISECONDS: u64 = 10_000;
const NANOS: u64 = 1_000_000_000;

thread_local! {
    /// Work that goes on after a reply; it may not leave its thread.
    static TASKS: RefCell<VecDeque<(u64, LocalFuture<()>)>> = const { RefCell::new(VecDeque::new()) };
}

static WORLDS: AtomicU64 = AtomicU64::new(0);

/// Set by a waker: somebody can go on.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// The simulated outside.
pub(crate) struct World {
    id: u64,
    nanos: AtomicU64,
    /// Random numbers so far.
    drawn: AtomicU64,
    woken: Arc<Woken>,
    deadlines: Mutex<BTreeSet<u64>>,
    gone: Mutex<HashSet<ConnectionId>>,
    ears: Mutex<Ears>,
}

impl World {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            id: WORLDS.fetch_add(1, Ordering::Relaxed),
            nanos: AtomicU64::new(START_SECONDS * NANOS),
            drawn: AtomicU64::new(0),
            woken: Arc::default(),
            deadlines: Mutex::default(),
            gone: Mutex::default(),
            ears: Mutex::default(),
        })
    }

    pub(crate) fn clock(&self) -> Now {
        let nanos = self.nanos.load(Ordering::Acquire);
        let wall = Timestamp {
            seconds: WALL_SECONDS + (nanos / NANOS) as i64,
            nanoseconds: (nanos % NANOS) as u32,
        };
        Now { wall, monotonic_nanos: nanos }
    }

    pub(crate) fn ears(&self) -> MutexGuard<'_, Ears> {
        self.ears.lock().unwrap()
    }

    /// How a client answers callbacks from now on.
    pub(crate) fn set_manner(&self, path: CallbackPath, manner: Manner) {
        self.ears().manners.insert(path, manner);
    }

    /// All callbacks so far that came along `path`, CB_NULL left out.
    pub(crate) fn heard(&self, path: &CallbackPath) -> Vec<Heard> {
        self.ears().heard.iter().filter(|(at, _)| at == path).map(|(_, op)| op.clone()).collect()
    }

    pub(crate) fn cut(&self, connection: ConnectionId) {
        self.gone.lock().unwrap().insert(connection);
    }

    /// Runs a future to its end; time passes only when everybody waits for it.
    pub(crate) fn drive<T>(&self, mut future: Pin<Box<dyn Future<Output = T> + '_>>) -> T {
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

    /// Work of the test's own beside the server's.
    pub(crate) fn spawn(&self, work: LocalFuture<()>) {
        TASKS.with_borrow_mut(|tasks| tasks.push_back((self.id, work)));
    }

    /// Lets all tasks run until each of them waits for time or for a hold.
    pub(crate) fn settle(&self) {
        while self.pass() {}
    }

    /// Polls every task once; whether anything moved.
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

    /// Lets time pass up to the next whole second and everything due until
    /// then happen.
    pub(crate) fn one_second(&self) {
        let until = self.nanos.load(Ordering::Acquire) + NANOS;
        self.settle();
        while self.skip_to_next_deadline(until) {
            self.settle();
        }
        self.nanos.store(until, Ordering::Release);
        self.settle();
    }

    fn pause(self: &Arc<Self>, milliseconds: u64) -> LocalFuture<()> {
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

impl Drop for World {
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

/// The runtime handed to the server.
pub(crate) struct Outside(pub(crate) Arc<World>);

impl Runtime for Outside {
    fn spawn(&self, work: LocalFuture<()>) {
        self.0.woken.0.store(true, Ordering::Release);
        TASKS.with_borrow_mut(|tasks| tasks.push_back((self.0.id, work)));
    }

    fn callback(
        &self,
        path: CallbackPath,
        xid: u32,
        call: Message,
    ) -> LocalFuture<Result<Bytes, CallbackFailure>> {
        let world = Arc::clone(&self.0);
        Box::pin(async move {
            if let CallbackPath::Connection(connection) = &path
                && !Outside(Arc::clone(&world)).connected(*connection)
            {
                return Err(CallbackFailure::Unreachable);
            }
            let raw = call.flatten().unwrap();
            let answer = world.ears().answer(path, xid, &raw);
            match answer {
                Some(answer) => answer,
                None => {
                    world.pause(CALLBACK_MILLISECONDS).await;
                    Err(CallbackFailure::TimedOut)
                }
            }
        })
    }

    fn sleep(&self, milliseconds: u64) -> LocalFuture<()> {
        self.0.pause(milliseconds)
    }

    fn now(&self) -> Now {
        self.0.clock()
    }

    fn connected(&self, connection: ConnectionId) -> bool {
        !self.0.gone.lock().unwrap().contains(&connection)
    }

    /// SplitMix64: the same in every run, and different enough.
    fn random(&self) -> u64 {
        let count = self.0.drawn.fetch_add(1, Ordering::Relaxed) + 1;
        let mut bits = count.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }
}
