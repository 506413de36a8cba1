//! Polling after replies. A client that sends one request at a time answers
//! within microseconds, and putting a thread to sleep and waking it takes
//! longer than most requests: a core that has just answered polls its
//! sockets for a while before it sleeps.
//!
//! It polls where that shortens the time to the next request, and
//! only while its processor is of no use to other requests of the process.

use super::poll_trial::PollTrial;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use zgate_io::jobs::{self, CoreJobs};

/// The cores of the process that poll.
#[derive(Debug)]
pub(crate) struct Pollers {
    /// Most processors for polling cores and workers' jobs; the others are for clients
    /// on this machine, and for the kernel.
    room: usize,
    polling: AtomicUsize,
    /// Returns the number of jobs of workers in progress.
    jobs: fn() -> usize,
}

/// Right of a core to poll, until it is dropped.
struct Permit<'a>(&'a Pollers);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.polling.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for Pollers {
    /// Counts the processors that the process may use: its affinity and the quota of its
    /// control group limit them.
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self::new(processors, jobs::in_progress)
    }
}

impl Pollers {
    fn new(processors: usize, jobs: fn() -> usize) -> Self {
        let for_others = (processors / 4).max(1);
        Self { room: processors.saturating_sub(for_others), polling: AtomicUsize::new(0), jobs }
    }

    /// Permits a core to poll that waits for no job.
    fn permit(&self) -> Option<Permit<'_>> {
        let one_more =
            |polling: usize| (polling + (self.jobs)() < self.room).then_some(polling + 1);
        let given = self.polling.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        given.is_ok().then(|| Permit(self))
    }

    /// Returns whether workers need the processor of a core that polls.
    fn is_crowded(&self) -> bool {
        self.polling.load(Ordering::Relaxed) + (self.jobs)() > self.room
    }
}

/// Polling state of a core.
#[derive(Debug)]
pub(crate) struct BusyPoll {
    /// Time from a reply to the end of polling.
    window: Duration,
    pollers: Arc<Pollers>,
    /// Jobs of workers for requests of this core, and receptions of data.
    jobs: Arc<CoreJobs>,
    trial: RefCell<PollTrial>,
    /// Set if it pays to poll after the last request.
    wanted: Cell<bool>,
    watching: Cell<bool>,
    begin: Notify,
}

/// End of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PollEnd {
    /// A worker has a request.
    AtWorker,
    /// The processor is needed, or polling is not wanted after the last request.
    Unwanted,
    InVain,
}

impl BusyPoll {
    /// Polls for `microseconds` after a reply; with 0, never.
    pub(crate) fn new(microseconds: u32, pollers: Arc<Pollers>) -> Self {
        let microseconds = if pollers.room == 0 { 0 } else { microseconds };
        let window = Duration::from_micros(u64::from(microseconds));
        Self {
            window,
            pollers,
            jobs: Arc::default(),
            trial: RefCell::new(PollTrial::new(window)),
            wanted: Cell::new(false),
            watching: Cell::new(false),
            begin: Notify::new(),
        }
    }

    /// Records that a connection of this core received data.
    pub(crate) fn traffic(&self) {
        self.jobs.arrived();
        if self.window.is_zero() {
            return;
        }
        self.wanted.set(self.trial.borrow_mut().arrived(Instant::now));
        if self.wanted.get() && !self.watching.replace(true) {
            self.begin.notify_one();
        }
    }

    /// Polls; runs as long as the core, on its thread.
    pub(crate) async fn watch(&self) {
        self.jobs.count_here();
        loop {
            self.begin.notified().await;
            self.watch_once().await;
            self.watching.set(false);
        }
    }

    /// Polls after the replies of the requests that have come. While a worker has one of
    /// them, the core sleeps; the last job's end wakes it.
    async fn watch_once(&self) {
        loop {
            self.jobs.ended().await;
            if !self.wanted.get() {
                return;
            }
            let Some(permit) = self.pollers.permit() else { return };
            let end = self.poll().await;
            drop(permit);
            match end {
                PollEnd::AtWorker => {}
                PollEnd::Unwanted => return,
                PollEnd::InVain => return self.trial.borrow_mut().in_vain(),
            }
        }
    }

    async fn poll(&self) -> PollEnd {
        let mut seen = self.jobs.arrivals();
        let mut until = Instant::now() + self.window;
        loop {
            // Lets the runtime check its sockets without waiting.
            tokio::task::yield_now().await;
            if self.jobs.in_progress() > 0 {
                return PollEnd::AtWorker;
            }
            if !self.wanted.get() || self.pollers.is_crowded() {
                return PollEnd::Unwanted;
            }
            let now = Instant::now();
            if self.jobs.arrivals() != seen {
                seen = self.jobs.arrivals();
                until = now + self.window;
            } else if now >= until {
                return PollEnd::InVain;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;
    use zgate_io::jobs::JobInProgress;

    const MICROSECOND: Duration = Duration::from_micros(1);

    thread_local! {
        static JOBS: Cell<usize> = const { Cell::new(0) };
    }

    /// Creates the state of a core after a request, where polling pays or not.
    fn after_a_request(processors: usize, pays: bool) -> BusyPoll {
        let busy_poll = BusyPoll::new(50, Arc::new(Pollers::new(processors, || JOBS.get())));
        busy_poll.trial.borrow_mut().decide(pays);
        busy_poll.traffic();
        busy_poll
    }

    fn polling(busy_poll: &BusyPoll) -> usize {
        busy_poll.pollers.polling.load(Ordering::Relaxed)
    }

    /// Lets this much time pass while a watch runs.
    async fn pass(microseconds: u32) {
        for _ in 0..microseconds {
            advance(MICROSECOND).await;
        }
    }

    /// Watches once while others run; returns how long it watched.
    async fn watched_beside(busy_poll: &BusyPoll, others: impl Future<Output = ()>) -> Duration {
        let begun = Instant::now();
        let watch = async {
            busy_poll.watch_once().await;
            begun.elapsed()
        };
        tokio::join!(watch, others).0
    }

    #[test]
    fn some_processors_are_left_to_others() {
        for (processors, most) in [(1, 0), (2, 1), (4, 3), (8, 6), (64, 48)] {
            let pollers = Pollers::new(processors, || JOBS.get());
            let permits: Vec<_> = std::iter::from_fn(|| pollers.permit()).collect();
            assert_eq!(permits.len(), most, "of {processors}");
            assert!(!pollers.is_crowded());
            JOBS.set(1);
            assert!(pollers.is_crowded());
            drop(permits);
            let beside_a_job: Vec<_> = std::iter::from_fn(|| pollers.permit()).collect();
            assert_eq!(beside_a_job.len(), most.saturating_sub(1), "of {processors}");
            JOBS.set(0);
        }
    }

    #[test]
    fn nothing_is_polled_where_that_is_not_wanted() {
        assert!(after_a_request(4, true).watching.get());
        assert!(!after_a_request(4, false).watching.get(), "it does not pay");
        assert!(!after_a_request(1, true).watching.get(), "the only processor");
        let never = BusyPoll::new(0, Arc::new(Pollers::new(4, || 0)));
        never.trial.borrow_mut().decide(true);
        never.traffic();
        assert!(!never.watching.get());
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_ends_after_its_window() {
        let busy_poll = after_a_request(2, true);
        let others = async {
            pass(40).await;
            assert_eq!(polling(&busy_poll), 1);
            busy_poll.traffic();
            pass(100).await;
        };
        let watched = watched_beside(&busy_poll, others).await;
        assert!((90..=95).contains(&watched.as_micros()), "{watched:?}");
        assert_eq!(polling(&busy_poll), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_window_begins_when_the_workers_have_ended() {
        let busy_poll = after_a_request(2, true);
        busy_poll.jobs.count_here();
        let job = JobInProgress::begin();
        let others = async {
            pass(1000).await;
            assert_eq!(polling(&busy_poll), 0, "it waits without polling");
            drop(job);
            pass(10).await;
            assert_eq!(polling(&busy_poll), 1);
            let next = JobInProgress::begin();
            pass(10).await;
            assert_eq!(polling(&busy_poll), 0, "a worker has the next request");
            drop(next);
            pass(100).await;
        };
        let watched = watched_beside(&busy_poll, others).await;
        assert!((1070..=1075).contains(&watched.as_micros()), "{watched:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_poll_ends_at_once_when_others_need_the_processor() {
        for still_pays in [true, false] {
            let busy_poll = after_a_request(2, true);
            let others = async {
                pass(10).await;
                assert_eq!(polling(&busy_poll), 1);
                if still_pays {
                    JOBS.set(1);
                } else {
                    busy_poll.trial.borrow_mut().decide(false);
                    busy_poll.traffic();
                }
                pass(100).await;
            };
            let watched = watched_beside(&busy_poll, others).await;
            assert!((10..=15).contains(&watched.as_micros()), "{watched:?}");
            JOBS.set(0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_poll_begins_while_others_need_the_processor() {
        let busy_poll = after_a_request(2, true);
        JOBS.set(1);
        let begun = Instant::now();
        busy_poll.watch_once().await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        JOBS.set(0);
    }
}
