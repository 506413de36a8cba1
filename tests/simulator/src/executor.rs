//! Virtual time and the order of tasks. One thread; among the tasks that can
//! continue the seed chooses the next one, and time passes only when none can.

use crate::dice::Dice;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Nanoseconds of a second.
pub const SECOND: u64 = 1_000_000_000;
/// Nanoseconds of a millisecond.
pub const MILLISECOND: u64 = 1_000_000;
/// Monotonic time at the beginning of a run.
const START_NANOS: u64 = 1000 * SECOND;

/// A task.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Owner of tasks that end together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Domain {
    /// Clients, network, faults.
    Outside,
    /// The server of this start.
    Server(u32),
}

thread_local! {
    /// Tasks that stay on the thread of their run: by executor and task.
    static LOCAL: RefCell<BTreeMap<(u64, u64), LocalTask>> = RefCell::default();
}

/// A task that may not change its thread.
type LocalTask = Pin<Box<dyn Future<Output = ()>>>;

/// Work of a task.
enum Work {
    Anywhere(Task),
    /// It is in the table of the run's thread.
    Local(LocalTask),
}

impl Work {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Anywhere(task) => task.as_mut().poll(context),
            Self::Local(task) => task.as_mut().poll(context),
        }
    }
}

struct TaskWaker {
    id: u64,
    queued: AtomicBool,
    woken: Arc<Mutex<Vec<u64>>>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            lock(&self.woken).push(self.id);
        }
    }
}

struct Entry {
    domain: Domain,
    /// Absent while it runs, and if it is local.
    future: Option<Task>,
    is_local: bool,
    waker: Arc<TaskWaker>,
}

struct Inside {
    tasks: BTreeMap<u64, Entry>,
    next_task: u64,
    timers: BTreeMap<(u64, u64), Waker>,
    next_timer: u64,
    order: Dice,
    /// Number of polls, and a checksum of which task ran when.
    polls: u64,
    schedule: u64,
    /// Owner of the task that runs.
    current: Domain,
}

/// The executor of one run.
pub struct Executor {
    /// Number among the executors of the process.
    id: u64,
    nanos: AtomicU64,
    woken: Arc<Mutex<Vec<u64>>>,
    inside: Mutex<Inside>,
}

/// Locks; a panic in a task is reported by the run, not by the next lock.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Executor {
    /// An executor whose order of tasks comes from the seed.
    #[must_use]
    pub fn new(seed: u64) -> Arc<Self> {
        let inside = Inside {
            tasks: BTreeMap::new(),
            next_task: 0,
            timers: BTreeMap::new(),
            next_timer: 0,
            order: Dice::new(seed, "order"),
            polls: 0,
            schedule: 0,
            current: Domain::Outside,
        };
        static EXECUTORS: AtomicU64 = AtomicU64::new(0);
        Arc::new(Self {
            id: EXECUTORS.fetch_add(1, Ordering::AcqRel),
            nanos: AtomicU64::new(START_NANOS),
            woken: Arc::default(),
            inside: Mutex::new(inside),
        })
    }

    /// Monotonic time.
    #[must_use]
    pub fn nanos(&self) -> u64 {
        self.nanos.load(Ordering::Acquire)
    }

    /// Time since the beginning of the run.
    #[must_use]
    pub fn elapsed(&self) -> u64 {
        self.nanos() - START_NANOS
    }

    /// Owner of the task that runs.
    #[must_use]
    pub fn current(&self) -> Domain {
        lock(&self.inside).current
    }

    /// Number of polls, and the checksum of the order of tasks.
    #[must_use]
    pub fn schedule(&self) -> (u64, u64) {
        let inside = lock(&self.inside);
        (inside.polls, inside.schedule)
    }

    /// Starts a task.
    pub fn spawn(&self, domain: Domain, future: impl Future<Output = ()> + Send + 'static) {
        self.enter(domain, Some(Box::pin(future)));
    }

    /// Starts a task that stays on this thread, the one of the run.
    pub fn spawn_local(&self, domain: Domain, future: impl Future<Output = ()> + 'static) {
        let id = self.enter(domain, None);
        LOCAL.with_borrow_mut(|local| local.insert((self.id, id), Box::pin(future)));
    }

    /// Adds a task; without a future it is local.
    fn enter(&self, domain: Domain, future: Option<Task>) -> u64 {
        let mut inside = lock(&self.inside);
        let id = inside.next_task;
        inside.next_task += 1;
        let woken = Arc::clone(&self.woken);
        let waker = Arc::new(TaskWaker { id, queued: AtomicBool::new(true), woken });
        let is_local = future.is_none();
        inside.tasks.insert(id, Entry { domain, future, is_local, waker });
        lock(&self.woken).push(id);
        id
    }

    fn take_local(&self, id: u64) -> Option<LocalTask> {
        LOCAL.with_borrow_mut(|local| local.remove(&(self.id, id)))
    }

    /// Drops all tasks of a domain, wherever they wait.
    pub fn end(&self, domain: Domain) {
        let ended: Vec<(u64, Entry)> = {
            let mut inside = lock(&self.inside);
            let ids: Vec<u64> = inside
                .tasks
                .iter()
                .filter(|(_, t)| t.domain == domain)
                .map(|(id, _)| *id)
                .collect();
            ids.iter().filter_map(|id| Some((*id, inside.tasks.remove(id)?))).collect()
        };
        // Outside of the lock: futures wake others and give timers back.
        for (id, entry) in ended {
            drop(self.take_local(id).filter(|_| entry.is_local));
            drop(entry);
        }
    }

    /// Ends every task.
    pub fn end_all(&self) {
        let ended = std::mem::take(&mut lock(&self.inside).tasks);
        for id in ended.keys() {
            drop(self.take_local(*id));
        }
        drop(ended);
    }

    /// Runs until `done`, or until nothing can ever happen again: `false`.
    pub fn run(&self, done: impl Fn() -> bool) -> bool {
        loop {
            if self.settle(&done) {
                return true;
            }
            if !self.pass_time() {
                return false;
            }
        }
    }

    /// Runs the tasks that can continue, until none can; returns `true` as soon
    /// as `done` is.
    pub fn settle(&self, done: &impl Fn() -> bool) -> bool {
        let mut ready: Vec<u64> = Vec::new();
        loop {
            if done() {
                return true;
            }
            ready.append(&mut lock(&self.woken));
            if ready.is_empty() {
                return false;
            }
            let at = lock(&self.inside).order.below(ready.len() as u64) as usize;
            self.poll(ready.swap_remove(at));
        }
    }

    /// Time of the next timer since the beginning of the run, in nanoseconds.
    #[must_use]
    pub fn next_timer(&self) -> Option<u64> {
        let first = lock(&self.inside).timers.first_key_value().map(|((nanos, _), _)| *nanos);
        first.map(|nanos| nanos.saturating_sub(START_NANOS))
    }

    /// Moves time on to this one since the beginning of the run, but not beyond
    /// the next timer.
    pub fn advance_to(&self, elapsed: Duration) {
        let nanos = START_NANOS.saturating_add(elapsed.as_nanos() as u64);
        let inside = lock(&self.inside);
        let next = inside.timers.first_key_value().map_or(u64::MAX, |((nanos, _), _)| *nanos);
        self.nanos.fetch_max(nanos.min(next), Ordering::AcqRel);
    }

    fn poll(&self, id: u64) {
        let (mut future, waker) = {
            let mut inside = lock(&self.inside);
            let nanos = self.nanos();
            let Some(entry) = inside.tasks.get_mut(&id) else { return };
            entry.waker.queued.store(false, Ordering::Release);
            let future = match entry.is_local {
                true => self.take_local(id).map(Work::Local),
                false => entry.future.take().map(Work::Anywhere),
            };
            let Some(future) = future else { return };
            let waker = Arc::clone(&entry.waker);
            inside.current = entry.domain;
            inside.polls += 1;
            inside.schedule =
                (inside.schedule.rotate_left(5) ^ id ^ nanos).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (future, waker)
        };
        let waker = Waker::from(waker);
        let polled = future.poll(&mut Context::from_waker(&waker));
        let over = {
            let mut inside = lock(&self.inside);
            match (polled, inside.tasks.get_mut(&id)) {
                (Poll::Pending, Some(entry)) => {
                    match future {
                        Work::Anywhere(task) => entry.future = Some(task),
                        Work::Local(task) => {
                            LOCAL.with_borrow_mut(|local| local.insert((self.id, id), task));
                        }
                    }
                    return;
                }
                (Poll::Ready(()), Some(_)) => inside.tasks.remove(&id),
                (_, None) => None,
            }
        };
        drop(over);
    }

    /// Goes on to the next timer; returns `false` if there is none.
    pub fn pass_time(&self) -> bool {
        let due: Vec<Waker> = {
            let mut inside = lock(&self.inside);
            let Some(((nanos, _), first)) = inside.timers.pop_first() else { return false };
            self.nanos.fetch_max(nanos, Ordering::AcqRel);
            let mut due = vec![first];
            while let Some(next) = inside.timers.first_entry().filter(|next| next.key().0 == nanos)
            {
                due.push(next.remove());
            }
            due
        };
        due.into_iter().for_each(Waker::wake);
        true
    }

    /// Sleeps for some time.
    pub fn sleep(self: &Arc<Self>, nanos: u64) -> Sleep {
        self.sleep_until(self.nanos() + nanos)
    }

    /// Sleeps until a monotonic time.
    pub fn sleep_until(self: &Arc<Self>, nanos: u64) -> Sleep {
        Sleep { executor: Arc::clone(self), deadline: nanos, timer: None }
    }

    /// The result of `work`, unless it takes longer.
    pub async fn within<T>(
        self: &Arc<Self>,
        nanos: u64,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let (mut work, mut limit) = (pin!(work), self.sleep(nanos));
        std::future::poll_fn(|context| {
            if let Poll::Ready(value) = work.as_mut().poll(context) {
                return Poll::Ready(Some(value));
            }
            Pin::new(&mut limit).poll(context).map(|()| None)
        })
        .await
    }
}

/// A wait for a point of virtual time.
pub struct Sleep {
    executor: Arc<Executor>,
    deadline: u64,
    timer: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.executor.nanos() >= self.deadline {
            return Poll::Ready(());
        }
        let executor = Arc::clone(&self.executor);
        let mut inside = lock(&executor.inside);
        let number = self.timer.unwrap_or_else(|| {
            inside.next_timer += 1;
            inside.next_timer
        });
        inside.timers.insert((self.deadline, number), context.waker().clone());
        self.timer = Some(number);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.timer {
            let timer = lock(&self.executor.inside).timers.remove(&(self.deadline, number));
            drop(timer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Order in which tasks that sleep end.
    fn order(seed: u64, sleeps: &[u64]) -> Vec<usize> {
        let (executor, ended) = (Executor::new(seed), Arc::<Mutex<Vec<usize>>>::default());
        for (number, nanos) in sleeps.iter().enumerate() {
            let (sleep, ended) = (executor.sleep(*nanos), Arc::clone(&ended));
            executor.spawn(Domain::Outside, async move {
                sleep.await;
                lock(&ended).push(number);
            });
        }
        assert!(!executor.run(|| false), "nothing is left to do");
        assert_eq!(executor.elapsed(), *sleeps.iter().max().unwrap());
        let ended = lock(&ended);
        ended.clone()
    }

    #[test]
    fn time_decides_first_and_the_seed_among_equals() {
        assert_eq!(order(1, &[30, 10, 20]), [1, 2, 0]);
        let equal = [7; 6];
        assert_eq!(order(1, &equal), order(1, &equal));
        assert!((2..20).any(|seed| order(seed, &equal) != order(1, &equal)));
    }

    #[test]
    fn a_domain_ends_with_all_its_tasks() {
        let executor = Executor::new(1);
        let reached = Arc::new(AtomicU64::new(0));
        for domain in [Domain::Outside, Domain::Server(1)] {
            let (sleep, reached) = (executor.sleep(5), Arc::clone(&reached));
            executor.spawn(domain, async move {
                sleep.await;
                reached.fetch_add(1, Ordering::AcqRel);
            });
        }
        executor.end(Domain::Server(1));
        assert!(!executor.run(|| false));
        assert_eq!(reached.load(Ordering::Acquire), 1);
    }

    #[test]
    fn a_limit_ends_a_wait() {
        let executor = Executor::new(1);
        let result = Arc::<Mutex<Vec<Option<u32>>>>::default();
        let (inner, results) = (Arc::clone(&executor), Arc::clone(&result));
        executor.spawn(Domain::Outside, async move {
            let slow = inner.within(5, std::future::pending::<u32>()).await;
            let fast = inner.within(5, std::future::ready(3)).await;
            lock(&results).extend([slow, fast]);
        });
        executor.run(|| false);
        assert_eq!(*lock(&result), [None, Some(3)]);
    }
}
