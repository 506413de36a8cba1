//! Processors of workers. A core that waits for one job and has nothing else to do sleeps
//! until the job has ended: its worker runs on the core's processor, which is awake and
//! would become idle. To wake another processor takes longer than most jobs.

use rustix::process::getpid;
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

/// No processor in particular.
const ANY: usize = usize::MAX;
/// As many processors as a set can name.
static EVERY: LazyLock<CpuSet> = LazyLock::new(|| {
    let mut every = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|processor| every.set(processor));
    every
});

/// The process: to ask for its number is a system call.
static PROCESS: LazyLock<Pid> = LazyLock::new(getpid);

/// A worker that can be woken.
#[derive(Debug)]
pub(super) struct Sleeper {
    thread: Thread,
    id: Pid,
    /// The processor to which the worker is bound, or [`ANY`]; changed together with what the
    /// kernel knows, by the worker itself, or by others under the lock of `asleep` while
    /// that is set.
    processor: AtomicUsize,
    asleep: Mutex<bool>,
}

impl Sleeper {
    /// Creates that of this thread.
    pub(super) fn of_this_thread() -> Self {
        Self {
            thread: std::thread::current(),
            id: gettid(),
            processor: AtomicUsize::new(ANY),
            asleep: Mutex::default(),
        }
    }

    /// Begins or ends the time in which whoever wakes the worker may bind it.
    pub(super) fn set_asleep(&self, asleep: bool) {
        *self.lock() = asleep;
    }

    /// Wakes the worker, on this processor if one is given.
    pub(super) fn wake_on(&self, processor: Option<usize>) {
        let asleep = self.lock();
        // One that has woken by itself may have another job, or have ended.
        if *asleep {
            self.bind(processor);
        }
        drop(asleep);
        self.thread.unpark();
    }

    /// Wakes the worker where it is.
    pub(super) fn wake(&self) {
        self.thread.unpark();
    }

    /// Binds the worker to a processor, or to all that the process may use. Where that is
    /// not permitted, it stays as it is.
    pub(super) fn bind(&self, processor: Option<usize>) {
        let wanted = processor.filter(|&at| at < CpuSet::MAX_CPU).unwrap_or(ANY);
        if self.processor.load(Ordering::Relaxed) == wanted {
            return;
        }
        if self.set_affinity(wanted).is_ok() {
            self.processor.store(wanted, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.asleep.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_affinity(&self, processor: usize) -> io::Result<()> {
        if processor == ANY {
            return self.release();
        }
        let mut one = CpuSet::new();
        one.set(processor);
        Ok(sched_setaffinity(Some(self.id), &one)?)
    }

    /// Releases the worker to the processors of the process, and to those that come to it
    /// later: the kernel takes what it is told for a wish that outlasts the present
    /// processors, so a copy of them would keep the worker there when a cpuset grows or a
    /// processor is added.
    fn release(&self) -> io::Result<()> {
        sched_setaffinity(Some(self.id), &EVERY)?;
        // No worker is the process's first thread, which nobody here binds. Whoever started
        // the process may have given it less than there is (taskset, CPUAffinity=).
        let Ok(of_process) = sched_getaffinity(Some(*PROCESS)) else { return Ok(()) };
        if sched_getaffinity(Some(self.id))? != of_process {
            sched_setaffinity(Some(self.id), &of_process)?;
        }
        Ok(())
    }
}

/// Takes a worker to be woken: one that is bound to this processor already, or the one
/// that fell asleep last.
pub(super) fn take(
    asleep: &mut Vec<Arc<Sleeper>>,
    processor: Option<usize>,
) -> Option<Arc<Sleeper>> {
    let wanted = processor.unwrap_or(ANY);
    let is_there = |worker: &Arc<Sleeper>| worker.processor.load(Ordering::Relaxed) == wanted;
    match asleep.iter().rposition(is_there) {
        Some(at) => Some(asleep.remove(at)),
        None => asleep.pop(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::sched_getcpu;

    fn processors() -> CpuSet {
        sched_getaffinity(None).unwrap()
    }

    #[test]
    fn a_worker_is_bound_to_a_processor_and_released() {
        let all = processors();
        let here = sched_getcpu();
        let worker = Sleeper::of_this_thread();
        worker.bind(Some(here));
        assert!(processors().is_set(here) && processors().count() == 1);
        worker.bind(Some(CpuSet::MAX_CPU));
        assert_eq!(processors(), all, "no such processor");
        worker.bind(Some(here));
        worker.bind(None);
        assert_eq!(processors(), all);
    }

    /// The test above, in a process that was given one processor: the kernel offers more.
    #[test]
    fn a_worker_is_released_to_no_more_than_the_process_was_given() {
        let name = "workers::processor::tests::a_worker_is_bound_to_a_processor_and_released";
        let run = || {
            Sleeper::of_this_thread().bind(Some(sched_getcpu()));
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", name, "--test-threads=2"]).output().unwrap()
        };
        let output = std::thread::spawn(run).join().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }

    #[test]
    fn a_processor_that_the_process_may_not_use_changes_nothing() {
        let all = processors();
        let Some(not) = (0..CpuSet::MAX_CPU).find(|&processor| !all.is_set(processor)) else {
            return;
        };
        let worker = Sleeper::of_this_thread();
        worker.bind(Some(not));
        assert_eq!(processors(), all);
        assert_eq!(worker.processor.load(Ordering::Relaxed), ANY);
    }

    #[test]
    fn nobody_binds_a_worker_that_has_woken_by_itself() {
        let all = processors();
        let worker = Sleeper::of_this_thread();
        worker.wake_on(Some(sched_getcpu()));
        assert_eq!(processors(), all);
        assert_eq!(worker.processor.load(Ordering::Relaxed), ANY);
        worker.set_asleep(true);
        worker.wake_on(Some(sched_getcpu()));
        assert_eq!(processors().count(), 1);
    }

    #[test]
    fn who_is_there_already_is_taken_first_and_then_the_last() {
        let here = sched_getcpu();
        let start = |bound: bool| {
            let start = move || {
                let worker = Sleeper::of_this_thread();
                worker.bind(bound.then_some(here));
                Arc::new(worker)
            };
            std::thread::spawn(start).join().unwrap()
        };
        let [bound, free, also_free] = [start(true), start(false), start(false)];
        let mut asleep = vec![Arc::clone(&free), Arc::clone(&bound), Arc::clone(&also_free)];
        let mut taken = |processor| take(&mut asleep, processor).unwrap().id;
        assert_eq!(taken(Some(here)), bound.id);
        assert_eq!(taken(Some(here)), also_free.id, "it will be bound");
        assert_eq!(taken(None), free.id);
        assert!(take(&mut asleep, None).is_none());
    }
}
