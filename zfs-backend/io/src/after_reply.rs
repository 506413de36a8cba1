//! Work that a job leaves for the time after its reply.
//!
//! Closing the last descriptor of a removed file frees its inode: that takes
//! microseconds, and milliseconds for a large file, and nobody waits for the
//! result. The worker does it once it has continued the requests that the job
//! woke. Until then it takes no other job and counts as busy with the job's
//! store, or, where a long call ran on it and it is not counted again, as in
//! that call: others are not affected.

use crate::workers::on_a_worker;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Most pieces of work that are left on one worker, by its job and by the calls
/// of the requests that it continues. Further ones are done at once.
const MAX_LEFT: usize = 64;

thread_local! {
    static LEFT: RefCell<Vec<Box<dyn FnOnce()>>> = const { RefCell::new(Vec::new()) };
}

/// Does work on this worker after the reply of the job that runs on it, or at
/// once where no job runs. It may wait for the storage of the job, and for no
/// other one. It may run under any identity: it makes no system call that depends
/// on the identity.
pub fn after_reply(work: impl FnOnce() + 'static) {
    let refused = LEFT.with_borrow_mut(|left| {
        if !on_a_worker() || left.len() >= MAX_LEFT {
            return Some(work);
        }
        left.push(Box::new(work));
        None
    });
    if let Some(work) = refused {
        work();
    }
}

/// Does the work that was left on this thread.
pub(crate) fn do_what_is_left() {
    loop {
        let left = LEFT.take();
        if left.is_empty() {
            return;
        }
        for work in left {
            // The panic hook has reported the panic; the worker continues.
            let _ = catch_unwind(AssertUnwindSafe(work));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::continuation::tests::call_until_the_request_waits;
    use crate::continuation::{Home, is_worker};
    use crate::jobs::CoreJobs;
    use crate::workers::tests::block_on;
    use crate::{EngineChoice, IoEngine};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, mpsc};
    use std::task::{Context, Waker};
    use std::time::Duration;

    /// Time after which work that waits for a test goes on: the test fails then.
    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn the_reply_does_not_wait_for_it_but_the_next_job_does() {
        let engine = IoEngine::new(EngineChoice::Threads, 1).unwrap();
        let (open, gate) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let also = tell.clone();
        let job = move || {
            after_reply(move || {
                let _ = gate.recv_timeout(PATIENCE);
                tell.send(if on_a_worker() { "work" } else { "work outside of a job" }).unwrap();
            });
            std::thread::current().id()
        };
        let first = block_on(engine.run(job)).unwrap();
        assert!(told.try_recv().is_err(), "it waits");
        let next = move || {
            also.send("next job").unwrap();
            std::thread::current().id()
        };
        let mut next = Box::pin(engine.run(next));
        let mut task = Context::from_waker(Waker::noop());
        assert!(next.as_mut().poll(&mut task).is_pending());
        open.send(()).unwrap();
        assert_eq!(block_on(next).unwrap(), first, "it is the only worker");
        assert_eq!(told.try_iter().collect::<Vec<_>>(), ["work", "next job"]);
    }

    #[test]
    fn the_worker_continues_the_request_and_tells_its_core_before() {
        let engine = IoEngine::new(EngineChoice::Threads, 1).unwrap();
        let core = Arc::new(CoreJobs::default());
        core.count_here();
        let (open, gate) = mpsc::channel::<()>();
        let (waits, call) = call_until_the_request_waits(move || {
            after_reply(move || {
                let _ = gate.recv_timeout(PATIENCE);
            });
        });
        let (tell, told) = mpsc::channel();
        block_on(async {
            let (home, _returning) = Home::new(tokio::runtime::Handle::current());
            home.begin(async move {
                engine.run(call).await.unwrap();
                tell.send(is_worker()).unwrap();
            });
            waits.send(()).unwrap();
            assert_eq!(told.recv_timeout(PATIENCE / 2), Ok(true), "the reply waits for it");
            let ended = tokio::time::timeout(PATIENCE / 2, core.ended()).await;
            assert!(ended.is_ok(), "the core waits for it");
        });
        drop(open);
    }

    #[test]
    fn all_of_it_is_done_however_much_and_beside_a_panic() {
        let engine = IoEngine::new(EngineChoice::Threads, 1).unwrap();
        let done = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&done);
        let job = move || {
            after_reply(|| panic!("expected by the test"));
            for _ in 0..2 * MAX_LEFT {
                let count = Arc::clone(&count);
                after_reply(move || {
                    count.fetch_add(1, Ordering::SeqCst);
                });
            }
            count.load(Ordering::SeqCst)
        };
        let at_once = block_on(engine.run(job)).unwrap();
        assert_eq!(at_once, MAX_LEFT + 1, "what is left is bounded");
        // The only worker takes it when it has done what was left.
        block_on(engine.run(|| ())).unwrap();
        assert_eq!(done.load(Ordering::SeqCst), 2 * MAX_LEFT);
    }

    #[test]
    fn outside_of_a_job_it_is_done_at_once() {
        let done = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&done);
        after_reply(move || {
            count.fetch_add(1, Ordering::SeqCst);
        });
        assert_eq!(done.load(Ordering::SeqCst), 1);
    }
}
