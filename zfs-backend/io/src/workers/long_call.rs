//! Long calls on the workers for short ones. While such a call runs, its worker does not
//! count as one of its store's, which has another one instead. It counts again right after
//! the call if the store has a place for it then, and otherwise when its job has ended, as
//! it does after a call that panics.

use super::{RunAs, THIS_WORKER, Workers, on_this_worker};
use crate::continuation;
use crate::queue::{Queues, StoreSlot};
use std::cell::Cell;
use std::io;

thread_local! {
    /// Set while this worker is not counted because of a long call of its job.
    static IN_LONG_CALL: Cell<bool> = const { Cell::new(false) };
}

impl Workers {
    /// Runs `work`, which may take long, on this thread under the identity that it has, if
    /// a worker of this pool continues the caller on the store and short calls do not need
    /// that worker: another one is free, and none is in a long call. The other requests that
    /// wait for this worker are sent to their cores.
    ///
    /// # Errors
    /// The work, which has not run.
    pub(crate) fn run_long_here<T, W: FnOnce() -> T>(
        &self,
        store: StoreSlot,
        work: W,
    ) -> Result<io::Result<T>, W> {
        let is_here = continuation::is_at(self.shared.kind.at(store));
        if !is_here || !self.begin_long_call(store) {
            return Err(work);
        }
        continuation::send_others_home();
        // It wakes wherever a processor is free, not behind its core.
        THIS_WORKER.with(|worker| worker.bind(None));
        let result = on_this_worker(&RunAs::Anyone, work);
        // The rest of the job is short: replies, further short calls.
        let counts = self.shared.lock().queues.return_from_long_call(store);
        IN_LONG_CALL.set(!counts);
        Ok(result)
    }

    fn begin_long_call(&self, store: StoreSlot) -> bool {
        if IN_LONG_CALL.get() {
            return true;
        }
        let mut pool = self.shared.lock();
        let has_idle_thread = pool.threads > pool.queues.busy_workers();
        let was_full = !pool.queues.has_room_in_total();
        let begins = has_idle_thread && pool.queues.begin_long_call(store);
        // A job of another store may take this worker's place in the total.
        let worker = if begins && was_full { pool.asleep.pop() } else { None };
        drop(pool);
        if let Some(worker) = worker {
            worker.wake();
        }
        IN_LONG_CALL.set(begins);
        begins
    }
}

/// Records that a job of the store has ended on this worker. Returns whether the store was
/// considered hanging.
pub(super) fn end_job<J>(queues: &mut Queues<J>, store: StoreSlot) -> bool {
    if !IN_LONG_CALL.replace(false) {
        return queues.end(store);
    }
    queues.end_long_call(store);
    false
}

#[cfg(test)]
mod tests {
    use crate::continuation::tests::{
        begin, behind_a_short_call, call_until_the_request_waits, engine, here, on_a_core,
        result_of,
    };
    use crate::continuation::{Home, is_worker};
    use crate::jobs::CoreJobs;
    use crate::workers::tests::fsuid;
    use crate::{EngineChoice, IoEngine, credentials};
    use rustix::thread::sched_getaffinity;
    use std::sync::{Arc, Barrier};
    use std::thread::ThreadId;
    use std::time::Duration;
    use tokio::sync::oneshot;
    use zgate_store::Caller;

    /// Returns the threads of a short call and of a long call behind it.
    async fn short_then_long(home: &Home, engine: &IoEngine) -> (ThreadId, ThreadId) {
        let of_request = engine.clone();
        let result = behind_a_short_call(home, engine, move |short| async move {
            let (long, in_job) =
                of_request.run_long_in_place(|| (here(), crate::on_a_worker())).await.unwrap();
            assert!(in_job);
            (short, long)
        });
        result.await.unwrap()
    }

    #[test]
    fn a_long_call_runs_on_a_worker_for_short_ones_if_another_is_free() {
        let engine = engine();
        on_a_core(async |home| {
            let (short, long) = short_then_long(&home, &engine).await;
            assert_eq!(short, long);
            // The other one of two is busy.
            let (open, gate) = std::sync::mpsc::channel::<()>();
            let busy = engine.clone();
            let held = begin(&home, async move {
                let hold = move || {
                    let _ = gate.recv();
                };
                busy.run(hold).await.unwrap();
            });
            let (short, long) = short_then_long(&home, &engine).await;
            assert_ne!(short, long, "short calls would wait for it");
            drop(open);
            held.await.unwrap();
        });
    }

    #[test]
    fn a_long_call_on_a_worker_for_short_ones_keeps_nobody_waiting() {
        let engine = engine();
        on_a_core(async |home| {
            let (open, gate) = std::sync::mpsc::channel::<()>();
            let (begun, begins) = oneshot::channel();
            let of_request = engine.clone();
            let held = behind_a_short_call(&home, &engine, move |short| async move {
                let hold = move || {
                    let _ = begun.send((short, here()));
                    let _ = gate.recv();
                };
                of_request.run_long_in_place(hold).await.unwrap();
            });
            let (short, holder) = begins.await.unwrap();
            assert_eq!(short, holder, "it is one of those for short calls");
            // Two workers of the store run short calls beside it.
            let both = Arc::new(Barrier::new(2));
            let calls = [(); 2].map(|()| {
                let (engine, both) = (engine.clone(), Arc::clone(&both));
                let meet = move || {
                    both.wait();
                    here()
                };
                result_of(&home, async move { engine.run(meet).await.unwrap() })
            });
            let calls = futures_util::future::join_all(calls);
            let calls = tokio::time::timeout(Duration::from_secs(60), calls).await;
            let threads = calls.expect("they wait for the long call");
            assert!(!threads.contains(&holder));
            let (short, long) = short_then_long(&home, &engine).await;
            assert_ne!(short, long, "one long call at a time");
            drop(open);
            held.await.unwrap();
            long_calls_run_in_place_again(&home, &engine).await;
        });
    }

    /// Waits until a worker for short calls runs a long one. The one before may need a moment
    /// until it counts as free again.
    async fn long_calls_run_in_place_again(home: &Home, engine: &IoEngine) {
        let again = async {
            loop {
                let (short, long) = short_then_long(home, engine).await;
                if short == long {
                    break;
                }
            }
        };
        let again = tokio::time::timeout(Duration::from_secs(60), again).await;
        again.expect("it never counts as free again");
    }

    #[test]
    fn a_worker_is_free_again_for_others_once_its_long_call_has_ended() {
        let engine = IoEngine::new(EngineChoice::Threads, 3).unwrap();
        on_a_core(async |home| {
            let (open, gate) = std::sync::mpsc::channel::<()>();
            let (begun, begins) = oneshot::channel();
            let of_request = engine.clone();
            let held = behind_a_short_call(&home, &engine, move |short| async move {
                let long = of_request.run_long_in_place(here).await.unwrap();
                let hold = move || {
                    let _ = begun.send([short, long, here()]);
                    let _ = gate.recv();
                };
                of_request.run(hold).await.unwrap();
            });
            let threads = begins.await.unwrap();
            assert_eq!(threads, [threads[0]; 3]);
            let (short, long) = short_then_long(&home, &engine).await;
            assert_eq!(short, long, "none is in a long call");
            drop(open);
            held.await.unwrap();
        });
    }

    #[test]
    fn a_long_call_that_panics_keeps_no_worker() {
        let engine = engine();
        on_a_core(async |home| {
            let (begun, begins) = oneshot::channel();
            let of_request = engine.clone();
            let ended = behind_a_short_call(&home, &engine, move |short| async move {
                let call = move || {
                    let _ = begun.send((short, here()));
                    panic!("told to");
                };
                of_request.run_long_in_place::<()>(call).await.unwrap();
            });
            assert!(ended.await.is_err());
            let (short, long) = begins.await.unwrap();
            assert_eq!(short, long);
            long_calls_run_in_place_again(&home, &engine).await;
        });
    }

    #[test]
    fn a_long_call_is_bound_to_no_processor() {
        let processors = || sched_getaffinity(None).unwrap();
        let (all, engine) = (processors(), engine());
        on_a_core(async |home| {
            let core = Arc::new(CoreJobs::default());
            core.count_here();
            // A busy machine may leave the short call unbound, or the long one to others.
            let in_place = async {
                loop {
                    let of_request = engine.clone();
                    let result = behind_a_short_call(&home, &engine, move |short| async move {
                        let before = processors();
                        let call = move || (here(), processors());
                        let (long, during) = of_request.run_long_in_place(call).await.unwrap();
                        (short == long, before, during)
                    });
                    let (is_here, before, during) = result.await.unwrap();
                    core.ended().await;
                    if is_here && before.count() == 1 {
                        break during;
                    }
                }
            };
            let during = tokio::time::timeout(Duration::from_secs(60), in_place).await;
            assert_eq!(during.expect("no call of that kind"), all);
        });
    }

    #[test]
    fn a_long_call_on_a_worker_for_short_ones_takes_on_no_identity() {
        if !credentials::can_switch() {
            return;
        }
        let engine = engine();
        on_a_core(async |home| {
            let (waits, call) = call_until_the_request_waits(|| (here(), fsuid()));
            let result = begin(&home, async move {
                let who = Caller { uid: 4321, gid: 5, groups: Arc::from([]) };
                let short = engine.run_as(who, call).await.unwrap();
                (short, engine.run_long_in_place(|| (here(), fsuid())).await.unwrap())
            });
            waits.send(()).unwrap();
            let ((of_short, short), (of_long, long)) = result.await.unwrap();
            assert_eq!(of_short, of_long);
            assert_eq!((short, long), (4321, 4321));
        });
    }

    #[test]
    fn requests_that_wait_for_a_worker_do_not_wait_for_a_long_call_on_it() {
        let engine = engine();
        on_a_core(async |home| {
            let (wake, woken) = tokio::sync::watch::channel(false);
            let others: Vec<_> = (0..2)
                .map(|_| {
                    let mut woken = woken.clone();
                    begin(&home, async move {
                        woken.wait_for(|is| *is).await.unwrap();
                        is_worker()
                    })
                })
                .collect();
            let (waits, call) = call_until_the_request_waits(|| ());
            let (open, gate) = std::sync::mpsc::channel::<()>();
            let held = begin(&home, async move {
                engine.run(call).await.unwrap();
                // Here, on a worker that has room for them.
                wake.send(true).unwrap();
                let hold = move || {
                    let _ = gate.recv();
                };
                engine.run_long_in_place(hold).await.unwrap();
            });
            waits.send(()).unwrap();
            for other in others {
                let by_worker = tokio::time::timeout(Duration::from_secs(60), other).await;
                assert!(!by_worker.expect("it waits for the long call").unwrap());
            }
            drop(open);
            held.await.unwrap();
        });
    }
}
