//! A pool of threads for calls that may block.

use crate::credentials;
use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use tokio::sync::oneshot;
use zgate_store::Caller;

/// Work with the identity it runs under (`None`: the process's own). It is
/// told when the identity could not be taken on.
struct Job {
    who: Option<Caller>,
    work: Box<dyn FnOnce(io::Result<()>) + Send>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Workers asleep; the last one to fall asleep has the warmest caches and
    /// is woken first.
    asleep: Vec<Thread>,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pool. Its threads end when it is dropped and the queue is empty.
pub(crate) struct Workers {
    shared: Arc<Shared>,
}

impl Workers {
    /// Starts all threads at once: a thread inherits the identity of the one
    /// that starts it, and here that is the process's own.
    pub(crate) fn start(name: &str, count: usize) -> io::Result<Self> {
        let pool = Self { shared: Arc::new(Shared::default()) };
        for index in 0..count.max(1) {
            let shared = Arc::clone(&pool.shared);
            std::thread::Builder::new()
                .name(format!("zgate-{name}-{index}"))
                .spawn(move || serve(&shared))?;
        }
        Ok(pool)
    }

    /// Runs `work` on a worker. A panic of the work continues in the caller.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        who: Option<Caller>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let (done, result) = oneshot::channel::<io::Result<Result<T, Box<dyn Any + Send>>>>();
        let work = Box::new(move |identity: io::Result<()>| {
            let outcome = identity.map(|()| catch_unwind(AssertUnwindSafe(work)));
            // Nobody listens when the request was dropped; that is fine.
            let _ = done.send(outcome);
        });
        self.push(Job { who, work });
        match result.await {
            Ok(Ok(Ok(value))) => Ok(value),
            Ok(Ok(Err(panic))) => resume_unwind(panic),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::Error::other("the worker pool has ended")),
        }
    }

    /// Runs `work` under the process's own identity; nobody waits for it.
    pub(crate) fn detach(&self, work: impl FnOnce() + Send + 'static) {
        let work = Box::new(move |_| {
            // A panic has been reported by the panic hook; the worker lives on.
            let _ = catch_unwind(AssertUnwindSafe(work));
        });
        self.push(Job { who: None, work });
    }

    fn push(&self, job: Job) {
        let mut queue = self.shared.lock();
        queue.jobs.push_back(job);
        let worker = queue.asleep.pop();
        drop(queue);
        if let Some(worker) = worker {
            worker.unpark();
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.closed = true;
        queue.asleep.drain(..).for_each(|worker| worker.unpark());
    }
}

fn serve(shared: &Shared) {
    while let Some(job) = next(shared) {
        let identity = match &job.who {
            Some(who) => credentials::assume(who),
            None => {
                credentials::restore();
                Ok(())
            }
        };
        (job.work)(identity);
    }
}

fn next(shared: &Shared) -> Option<Job> {
    let mut queue = shared.lock();
    loop {
        if let Some(job) = queue.jobs.pop_front() {
            return Some(job);
        }
        if queue.closed {
            return None;
        }
        // Looking on for a moment instead does not pay: where cores are scarce,
        // a thread that looks waits longer for its turn than one that is woken.
        queue = sleep(shared, queue);
    }
}

/// Sleeps until the worker is taken off the list of those asleep.
fn sleep<'a>(shared: &'a Shared, mut queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
    let me = std::thread::current();
    queue.asleep.push(me.clone());
    loop {
        drop(queue);
        std::thread::park();
        queue = shared.lock();
        if queue.asleep.iter().all(|worker| worker.id() != me.id()) {
            return queue;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    #[test]
    fn many_jobs_all_answer() {
        let pool = Workers::start("test", 3).unwrap();
        let total = block_on(async {
            let mut total = 0;
            for number in 0..1000u64 {
                total += pool.run(None, move || number).await.unwrap();
            }
            total
        });
        assert_eq!(total, 499_500);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_worker_lives_on() {
        let pool = Workers::start("test", 1).unwrap();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _ = block_on(pool.run(None, || panic!("expected by the test")));
        }));
        assert!(panicked.is_err());
        assert_eq!(block_on(pool.run(None, || 5)).unwrap(), 5);
    }

    #[test]
    fn jobs_run_as_the_identity_named() {
        if !credentials::can_switch() {
            return;
        }
        let pool = Workers::start("test", 1).unwrap();
        let who = Caller { uid: 4321, gid: 5, groups: Arc::from([]) };
        let fsuid = || {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let line = status.lines().find(|line| line.starts_with("Uid:")).unwrap().to_owned();
            line.split_whitespace().last().unwrap().parse::<u32>().unwrap()
        };
        assert_eq!(block_on(pool.run(Some(who), fsuid)).unwrap(), 4321);
        assert_eq!(block_on(pool.run(None, fsuid)).unwrap(), 0);
    }
}
