//! A thread that reads or writes the state directory for others: a disk that hangs
//! must delay neither a core nor the threads that serve data, and others no longer than
//! [`STATE_PATIENCE`].

use std::io;
use std::sync::mpsc::{RecvTimeoutError, SendError, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Longest wait for the disk of the state directory of searches, reloads and live commands, for
/// which others wait.
pub(crate) const STATE_PATIENCE: Duration = Duration::from_secs(4);
/// The same of a start, which keeps nobody waiting who is served: the disk of a machine that
/// boots, or of a pool that was just imported, may be slow.
pub(crate) const START_STATE_PATIENCE: Duration = Duration::from_secs(20);

const _: () = assert!(STATE_PATIENCE.as_secs() < START_STATE_PATIENCE.as_secs());

type Job = Box<dyn FnOnce() + Send>;

/// The thread. It ends when this is dropped and all work is done.
#[derive(Debug)]
pub(crate) struct StateWriter {
    jobs: Mutex<Sender<Job>>,
    busy: Arc<Busy>,
    patience: Mutex<Duration>,
}

/// Begin of what the thread does now; none while it has nothing to do.
#[derive(Debug, Default)]
struct Busy(Mutex<Option<Instant>>);

impl Busy {
    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a job of the thread.
    fn run(&self, job: Job) {
        *self.lock() = Some(Instant::now());
        let _idle = Idle(self);
        job();
    }
}

/// The end of a job, also by a panic.
struct Idle<'a>(&'a Busy);

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}

impl StateWriter {
    /// Starts the thread, with this name. Its users bound the queue: one change for each
    /// logical unit.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn start(thread: &str) -> io::Result<Self> {
        let (jobs, incoming) = channel::<Job>();
        let busy = Arc::<Busy>::default();
        let of_thread = Arc::clone(&busy);
        std::thread::Builder::new()
            .name(thread.to_owned())
            .spawn(move || incoming.iter().for_each(|job| of_thread.run(job)))?;
        Ok(Self { jobs: jobs.into(), busy, patience: STATE_PATIENCE.into() })
    }

    /// Has others wait for so long from now on.
    pub(crate) fn set_patience(&self, patience: Duration) {
        *self.patience.lock().unwrap_or_else(PoisonError::into_inner) = patience;
    }

    fn patience(&self) -> Duration {
        *self.patience.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the thread do `work`, after all earlier work, and does not wait for it. If the
    /// thread has ended, it is not done.
    pub(crate) fn begin(&self, work: impl FnOnce() + Send + 'static) {
        let job: Job = Box::new(work);
        let _ = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).send(job);
    }

    /// Runs `work` on the thread, after all earlier work, and waits for it for
    /// [`STATE_PATIENCE`] at most, unless [`Self::set_patience`] sets another limit. Work that
    /// has not begun by then is not done; the result of work that has is for `late`, on the
    /// thread. While the thread hangs, this fails at once.
    ///
    /// # Errors
    /// The disk has not answered in time, or the thread has ended.
    pub(crate) fn within<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
        late: impl FnOnce(T) + Send + 'static,
    ) -> io::Result<T> {
        if self.hangs() {
            return Err(self.no_answer());
        }
        // It keeps nothing: a result is either taken in time, or comes back as late.
        let (done, result) = sync_channel(0);
        let wanted = Arc::new(());
        let is_wanted = Arc::downgrade(&wanted);
        self.begin(move || {
            if is_wanted.strong_count() > 0
                && let Err(SendError(result)) = done.send(work())
            {
                late(result);
            }
        });
        let outcome = result.recv_timeout(self.patience());
        drop(wanted);
        self.in_time(outcome)
    }

    /// Has the thread do `work` in any case, after all earlier work, and waits for it for
    /// [`STATE_PATIENCE`] at most; not at all while the thread hangs.
    ///
    /// # Errors
    /// It is done later: the disk has not answered in time. Or never: the thread has ended.
    pub(crate) fn in_any_case<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let patience = if self.hangs() { Duration::ZERO } else { self.patience() };
        let (done, result) = channel();
        self.begin(move || {
            // Nobody may wait any more.
            let _ = done.send(work());
        });
        self.in_time(result.recv_timeout(patience))
    }

    /// Returns whether the thread has not ended its work in the time for which others wait.
    fn hangs(&self) -> bool {
        self.busy.lock().is_some_and(|since| since.elapsed() >= self.patience())
    }

    fn in_time<T>(&self, outcome: Result<T, RecvTimeoutError>) -> io::Result<T> {
        outcome.map_err(|error| match error {
            RecvTimeoutError::Timeout => self.no_answer(),
            RecvTimeoutError::Disconnected => has_ended(),
        })
    }

    fn no_answer(&self) -> io::Error {
        let reason = format!("its disk has not answered for {} s", self.patience().as_secs());
        io::Error::new(io::ErrorKind::TimedOut, reason)
    }

    /// Runs `work` on the thread, after all earlier work.
    ///
    /// # Errors
    /// If the thread has ended.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let (done, result) = oneshot::channel();
        let job: Job = Box::new(move || {
            // If the request was dropped, nothing receives the result; the work
            // is done.
            let _ = done.send(work());
        });
        // If the thread has ended, the job is dropped together with its result
        // channel.
        let _ = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).send(job);
        result.await.map_err(|_| has_ended())
    }

    /// Has others wait for so long.
    #[cfg(test)]
    pub(crate) fn with_patience(self, patience: Duration) -> Self {
        self.set_patience(patience);
        self
    }

    /// Lets the thread hang until what this returns is dropped, as if it had for long.
    #[cfg(test)]
    pub(crate) fn hang(&self) -> Sender<()> {
        let ((end, ends), (begins, begun)) = (channel::<()>(), channel::<()>());
        let (busy, patience) = (Arc::clone(&self.busy), self.patience());
        self.begin(move || {
            *busy.lock() = Instant::now().checked_sub(patience);
            begins.send(()).unwrap();
            // The other end is dropped to end it.
            let _ = ends.recv();
        });
        begun.recv().unwrap();
        end
    }
}

fn has_ended() -> io::Error {
    io::Error::other("the thread that writes to the state directory has ended; restart")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::Receiver;

    /// Time limit for expected events.
    const LIMIT: Duration = Duration::from_secs(30);

    /// A thread that is waited for not at all, or for long.
    fn writer(patience: Duration) -> StateWriter {
        StateWriter::start("zgate-test").unwrap().with_patience(patience)
    }

    /// Work that waits until what this returns is dropped; the other part is told when it begins.
    fn held(end: &'static str) -> (impl FnOnce() -> &'static str, Sender<()>, Receiver<()>) {
        let ((ends, waits), (begins, begun)) = (channel::<()>(), channel::<()>());
        let work = move || {
            begins.send(()).unwrap();
            let _ = waits.recv();
            end
        };
        (work, ends, begun)
    }

    #[test]
    fn work_that_ends_in_time_is_nothing_for_later() {
        let writer = writer(LIMIT);
        assert_eq!(writer.within(|| 5, |late| panic!("{late}")).unwrap(), 5);
        assert_eq!(writer.in_any_case(|| 6).unwrap(), 6);
        assert!(!writer.hangs());
    }

    #[test]
    fn work_that_has_begun_is_late_and_work_that_has_not_is_not_done() {
        let writer = writer(Duration::from_millis(500));
        let (work, ends, begun) = held("stored");
        let (told, late) = channel();
        let late_too = told.clone();
        let error = writer.within(work, move |result| told.send(result).unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        begun.recv_timeout(LIMIT).unwrap();
        // Nobody waits for it again, and the rest is done when it has ended.
        *writer.busy.lock() = Instant::now().checked_sub(writer.patience());
        assert!(writer.hangs());
        let given_up = writer.within(|| panic!("done"), |()| ());
        assert_eq!(given_up.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let later = writer.in_any_case(move || late_too.send("done later").unwrap());
        assert_eq!(later.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(ends);
        for said in ["stored", "done later"] {
            assert_eq!(late.recv_timeout(LIMIT).unwrap(), said);
        }
    }

    #[test]
    fn work_behind_work_that_hangs_is_not_done_once_it_is_given_up() {
        let writer = writer(Duration::from_millis(100));
        let (work, ends, begun) = held("");
        writer.begin(move || {
            work();
        });
        begun.recv_timeout(LIMIT).unwrap();
        *writer.busy.lock() = Some(Instant::now() + LIMIT);
        assert!(!writer.hangs());
        let given_up = writer.within(|| panic!("done"), |()| ());
        assert_eq!(given_up.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(ends);
        let (told, ended) = channel();
        writer.begin(move || told.send(()).unwrap());
        ended.recv_timeout(LIMIT).unwrap();
    }

    #[test]
    fn a_thread_that_has_ended_is_said_to_have() {
        let writer = writer(LIMIT);
        let ends = writer.within(|| panic!("as a test wants"), |()| ());
        let then = writer.in_any_case(|| ());
        for error in [ends, then].map(Result::unwrap_err) {
            assert!(error.to_string().contains("has ended; restart"), "{error}");
        }
        assert!(!writer.hangs());
    }
}
