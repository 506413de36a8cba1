//! Requests that are continued where their last blocking call ended.
//!
//! A request begins on the thread of its core. When it waits for a worker, and
//! the worker has finished the call, the same worker polls the request again:
//! the request needs no second hand-over, back to its core. Further calls on
//! the same store run on this worker at once; a long call does so on a worker for
//! short ones only if that can be spared. Whatever else wakes a request, a timer
//! or io_uring, returns it to its core.
//!
//! A request that a worker continues may run under the identity of the last
//! job. It makes no system call that depends on the identity: such calls are
//! jobs, and every job takes on its own identity.

use crate::queue::StoreSlot;
use async_task::{Builder, Runnable};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Most requests that a worker continues after one job. One job can wake many
/// requests, after a common sync for example: the others return to their cores,
/// which answer them together.
const MAX_CONTINUED: usize = 4;

/// Most requests that a core continues without looking at its other tasks.
const MAX_AT_ONCE: usize = 64;

/// The core on which a request began.
#[derive(Clone, Debug)]
pub struct Home {
    returning: UnboundedSender<Request>,
    runtime: Handle,
}

/// A request that can continue.
type Request = Runnable<Home>;

/// Receives the requests that return to their core.
#[derive(Debug)]
pub struct Returning(UnboundedReceiver<Request>);

/// Pool of workers, and the store of the call that has just ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Number of the engine.
    pub(crate) engine: usize,
    pub(crate) store: StoreSlot,
    /// Set if the workers are those of long calls.
    pub(crate) takes_long_calls: bool,
}

#[derive(Default)]
struct Worker {
    /// Set while requests continue.
    place: Cell<Option<Place>>,
    woken: RefCell<VecDeque<Request>>,
    /// Number of requests that may still be added to `woken`.
    room: Cell<usize>,
    is_worker: Cell<bool>,
}

thread_local! {
    static WORKER: Worker = Worker::default();
}

impl Home {
    /// Creates the home of the requests that begin on the thread of this
    /// runtime. The second value must run there.
    #[must_use]
    pub fn new(runtime: Handle) -> (Self, Returning) {
        let (returning, returned) = unbounded_channel();
        (Self { returning, runtime }, Returning(returned))
    }

    /// Begins a request: runs it on this thread until it first waits. It ends
    /// even if the caller does not wait for it.
    pub fn begin(&self, request: impl Future<Output = ()> + Send + 'static) {
        let builder = Builder::new().metadata(self.clone());
        let (runnable, task) = builder.spawn(|_| request, schedule);
        task.detach();
        go_on(runnable);
    }
}

impl Returning {
    /// Continues the requests that return, until their core ends.
    pub async fn run(mut self) {
        let mut requests = Vec::with_capacity(MAX_AT_ONCE);
        while self.0.recv_many(&mut requests, MAX_AT_ONCE).await > 0 {
            requests.drain(..).for_each(go_on);
        }
    }
}

/// Runs a request until it waits or ends. One that panics ends: it takes neither
/// its core nor a worker with it.
fn go_on(request: Request) {
    // A request catches its own panics; the hook has reported any other.
    let _ = catch_unwind(AssertUnwindSafe(|| request.run()));
}

/// Queues a request that was woken: on this worker, or at its core.
fn schedule(request: Request) {
    let kept = WORKER.with(|worker| {
        let room = worker.room.get();
        if room == 0 {
            return Some(request);
        }
        worker.room.set(room - 1);
        worker.woken.borrow_mut().push_back(request);
        None
    });
    kept.into_iter().for_each(send_home);
}

fn send_home(request: Request) {
    let returning = request.metadata().returning.clone();
    // The core has ended: the request ends, too.
    drop(returning.send(request));
}

/// Marks this thread as a worker.
pub(crate) fn become_worker() {
    WORKER.with(|worker| worker.is_worker.set(true));
}

/// Returns whether this thread is a worker, on which a request is continued or
/// a job runs.
#[must_use]
pub fn is_worker() -> bool {
    WORKER.with(|worker| worker.is_worker.get())
}

/// Runs a job of a worker, then continues the requests that it woke, if the
/// worker `continues` any.
pub(crate) fn after(place: Place, continues: bool, job: impl FnOnce()) {
    WORKER.with(|worker| worker.room.set(if continues { MAX_CONTINUED } else { 0 }));
    job();
    WORKER.with(|worker| worker.place.set(Some(place)));
    while let Some(request) = WORKER.with(|worker| worker.woken.borrow_mut().pop_front()) {
        let runtime = request.metadata().runtime.clone();
        let _entered = runtime.enter();
        go_on(request);
    }
    WORKER.with(|worker| {
        worker.room.set(0);
        worker.place.set(None);
    });
}

/// Returns whether a call of a request may run on this thread at once, because
/// a worker of the same store continues the request. Short calls may run on any
/// worker of the store, long ones on those for long calls. The other requests
/// that wait for this worker are sent to their cores: they do not wait for the
/// call.
pub(crate) fn may_run_here(wanted: Place) -> bool {
    let may = WORKER.with(|worker| {
        worker.place.get().is_some_and(|here| {
            (here.engine, here.store) == (wanted.engine, wanted.store)
                && (here.takes_long_calls || !wanted.takes_long_calls)
        })
    });
    if may {
        send_others_home();
    }
    may
}

/// Returns whether a worker of this place continues the caller.
pub(crate) fn is_at(place: Place) -> bool {
    WORKER.with(|worker| worker.place.get() == Some(place))
}

/// Sends the other requests that wait for this worker to their cores.
pub(crate) fn send_others_home() {
    // One by one: the queue, which is mostly empty, keeps its memory.
    while let Some(request) = WORKER.with(|worker| worker.woken.borrow_mut().pop_front()) {
        send_home(request);
    }
}

/// Returns the caller's request to its core, if a worker continues it. What else the worker
/// would still continue after its present job returns to its core, too.
pub(crate) async fn return_home() {
    let mut is_asked = !is_worker();
    poll_fn(|context| {
        if std::mem::replace(&mut is_asked, true) {
            return Poll::Ready(());
        }
        // The request is queued when this poll has ended.
        WORKER.with(|worker| worker.room.set(0));
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{EngineChoice, IoEngine, StoreName};
    use futures_util::StreamExt;
    use std::sync::{Arc, Mutex};
    use std::thread::ThreadId;
    use std::time::Duration;
    use tokio::sync::{Barrier, oneshot};

    pub(crate) fn here() -> ThreadId {
        std::thread::current().id()
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    /// Runs `test` on a core with a home.
    pub(crate) fn on_a_core<T>(test: impl AsyncFnOnce(Home) -> T) -> T {
        let runtime = runtime();
        runtime.block_on(async {
            let (home, returning) = Home::new(Handle::current());
            tokio::select! {
                result = test(home) => result,
                () = returning.run() => panic!("the core has ended"),
            }
        })
    }

    /// Begins a request. When this returns, it waits or has ended.
    pub(crate) fn begin<T: Send + 'static>(
        home: &Home,
        request: impl Future<Output = T> + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (done, ended) = oneshot::channel();
        home.begin(async move {
            let _ = done.send(request.await);
        });
        ended
    }

    pub(crate) async fn result_of<T: Send + 'static>(
        home: &Home,
        request: impl Future<Output = T> + Send + 'static,
    ) -> T {
        begin(home, request).await.unwrap()
    }

    /// Returns a call that ends only after it was told that its request waits:
    /// a call that ends at once is no reason to leave the core.
    pub(crate) fn call_until_the_request_waits<T>(
        call: impl FnOnce() -> T + Send,
    ) -> (std::sync::mpsc::Sender<()>, impl FnOnce() -> T + Send) {
        let (waits, told) = std::sync::mpsc::channel();
        let call = move || {
            told.recv().unwrap();
            call()
        };
        (waits, call)
    }

    /// Begins a request that a worker continues after a short call. What follows the call is
    /// given the thread of that worker.
    pub(crate) fn behind_a_short_call<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        home: &Home,
        engine: &IoEngine,
        rest: impl FnOnce(ThreadId) -> F + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (waits, call) = call_until_the_request_waits(here);
        let engine = engine.clone();
        let ended = begin(home, async move {
            let short = engine.run(call).await.unwrap();
            rest(short).await
        });
        waits.send(()).unwrap();
        ended
    }

    pub(crate) fn engine() -> IoEngine {
        IoEngine::new(EngineChoice::Threads, 2).unwrap()
    }

    #[test]
    fn a_worker_continues_the_request_and_runs_its_further_calls() {
        let engine = engine();
        on_a_core(async |home| {
            let (waits, call) = call_until_the_request_waits(here);
            let request = async move {
                let long = engine.run_long(call).await.unwrap();
                let continued = (here(), is_worker(), crate::on_a_worker());
                let short = engine.run(|| (here(), crate::on_a_worker())).await.unwrap();
                (long, continued, short, here())
            };
            let result = begin(&home, request);
            waits.send(()).unwrap();
            let (long, continued, short, last) = result.await.unwrap();
            assert_ne!(long, here());
            assert_eq!(continued, (long, true, false), "between jobs no job runs");
            assert_eq!(short, (long, true));
            assert_eq!(last, long);
        });
    }

    #[test]
    fn long_calls_and_other_stores_have_workers_of_their_own() {
        let engine = engine();
        let other = engine.for_store(&StoreName::of_dataset(b"other/pool"));
        on_a_core(async |home| {
            let request = async move {
                let short = engine.run(here).await.unwrap();
                let long = engine.run_long(here).await.unwrap();
                let elsewhere = other.run(here).await.unwrap();
                (short, long, elsewhere)
            };
            let (short, long, elsewhere) = result_of(&home, request).await;
            assert_ne!(short, long, "a long call would keep short ones waiting");
            assert_ne!(long, elsewhere, "a store that hangs would keep another one waiting");
        });
    }

    #[test]
    fn a_timer_returns_the_request_to_its_core() {
        let engine = engine();
        on_a_core(async |home| {
            let request = async move {
                engine.run(|| ()).await.unwrap();
                tokio::time::sleep(Duration::from_millis(1)).await;
                (here(), is_worker())
            };
            assert_eq!(result_of(&home, request).await, (here(), false));
        });
    }

    #[test]
    fn a_request_that_asks_for_it_returns_to_its_core() {
        let engine = engine();
        on_a_core(async |home| {
            let result = behind_a_short_call(&home, &engine, |worker| async move {
                let before = here();
                return_home().await;
                let home = (here(), is_worker());
                return_home().await;
                (worker, before, home, here())
            });
            let (worker, before, at_home, last) = result.await.unwrap();
            assert_eq!(before, worker);
            assert_eq!(at_home, (here(), false));
            assert_eq!(last, here());
        });
    }

    #[test]
    fn requests_that_wait_for_a_worker_do_not_wait_for_a_call_on_it() {
        let engine = engine();
        on_a_core(async |home| {
            let all = Arc::new(Barrier::new(3));
            let (open, gate) = std::sync::mpsc::channel::<()>();
            let gate = Arc::new(Mutex::new(Some(gate)));
            let waits = (0..3).map(|_| {
                let (engine, all, gate) = (engine.clone(), Arc::clone(&all), Arc::clone(&gate));
                result_of(&home, async move {
                    engine.run_long(|| ()).await.unwrap();
                    all.wait().await;
                    // The first of them hangs.
                    let Some(gate) = gate.lock().unwrap().take() else { return };
                    let hang = move || {
                        let _ = gate.recv();
                    };
                    engine.run_long(hang).await.unwrap();
                })
            });
            let mut waits: futures_util::stream::FuturesUnordered<_> = waits.collect();
            let two = async { (waits.next().await, waits.next().await) };
            let two = tokio::time::timeout(Duration::from_secs(60), two).await;
            assert!(two.is_ok(), "they wait for the call that hangs");
            drop(open);
            assert!(waits.next().await.is_some());
        });
    }

    #[test]
    fn one_job_that_wakes_many_leaves_most_to_their_core() {
        let engine = engine();
        on_a_core(async |home| {
            const MANY: usize = 4 * MAX_CONTINUED;
            let (wake, woken) = tokio::sync::watch::channel(false);
            let waiting: Vec<_> = (0..MANY)
                .map(|_| {
                    let mut woken = woken.clone();
                    let (done, ended) = oneshot::channel();
                    home.begin(async move {
                        woken.wait_for(|is| *is).await.unwrap();
                        let _ = done.send(is_worker());
                    });
                    ended
                })
                .collect();
            engine.run_long(move || wake.send(true).unwrap()).await.unwrap();
            let mut by_worker = 0;
            for ended in waiting {
                by_worker += usize::from(ended.await.unwrap());
            }
            assert_eq!(by_worker, MAX_CONTINUED);
        });
    }

    #[test]
    fn a_request_that_panics_leaves_its_worker_alone() {
        let engine = engine();
        on_a_core(async |home| {
            let (waits, call) = call_until_the_request_waits(|| ());
            let of_request = engine.clone();
            let ended = begin(&home, async move {
                of_request.run(call).await.unwrap();
                panic!("told to");
            });
            waits.send(()).unwrap();
            assert!(ended.await.is_err());
            let answer = async move { engine.run(|| 5).await.unwrap() };
            assert_eq!(result_of(&home, answer).await, 5);
        });
    }

    #[test]
    fn a_request_that_panics_leaves_its_core_alone() {
        on_a_core(async |home| {
            let ended = begin(&home, async { panic!("told to, at once") });
            assert!(ended.await.is_err());
            let ended = begin(&home, async {
                tokio::time::sleep(Duration::from_millis(1)).await;
                panic!("told to, after a wait");
            });
            assert!(ended.await.is_err());
            assert_eq!(result_of(&home, async { 5 }).await, 5);
        });
    }

    #[test]
    fn a_request_of_a_core_that_has_ended_ends() {
        let (done, ended) = oneshot::channel::<()>();
        let (wake, woken) = oneshot::channel::<()>();
        runtime().block_on(async {
            let (home, _returning) = Home::new(Handle::current());
            home.begin(async move {
                let _kept = done;
                let _ = woken.await;
                std::future::pending::<()>().await;
            });
        });
        wake.send(()).unwrap();
        assert!(ended.blocking_recv().is_err());
    }
}
