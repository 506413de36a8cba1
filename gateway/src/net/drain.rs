//! Phases of the gateway's service, visible to every connection.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Phase of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Requests are taken.
    Serving,
    /// No new requests are taken, running ones are finished, connections stay.
    Held,
    /// No new requests are taken, running ones are finished, connections end.
    Draining,
}

impl Phase {
    fn of(number: u8) -> Self {
        match number {
            0 => Self::Serving,
            1 => Self::Held,
            _ => Self::Draining,
        }
    }
}

/// Request to hold or to stop, and the connections that follow it.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    phase: AtomicU8,
    /// Number of changes of the phase so far.
    changes: AtomicUsize,
    changed: Notify,
    /// Held while the phase changes and those who wait are told.
    changing: Mutex<()>,
    /// The present hold, or the one in which draining has begun.
    present_hold: Mutex<Option<Hold>>,
    /// Connections in the event loop.
    connections: AtomicUsize,
    /// Those of them that are held and have nothing left to do.
    resting: AtomicUsize,
}

/// A time in which connections are held.
#[derive(Clone, Copy, Debug)]
struct Hold {
    begun: Instant,
    until: Instant,
}

/// A connection, counted until this is dropped.
pub(crate) struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(counter: &'a AtomicUsize) -> Self {
        counter.fetch_add(1, Ordering::AcqRel);
        Self(counter)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drain {
    /// Stops for good: no new requests are read, running ones are finished.
    pub(crate) fn begin(&self) {
        let _one = self.changing();
        self.phase.store(Phase::Draining as u8, Ordering::Release);
        self.tell();
    }

    /// Holds connections for a time; returns whether they are held. Drained ones
    /// are not. A present hold goes on, for that time from now.
    pub(crate) fn hold(&self, time: Duration) -> bool {
        let now = Instant::now();
        let mut hold = self.present_hold();
        if self.is_wanted() {
            return false;
        }
        let begun = hold.map_or(now, |present| present.begun);
        *hold = Some(Hold { begun, until: now + time });
        self.change(Phase::Serving, Phase::Held);
        self.phase() == Phase::Held
    }

    /// Ends a hold; returns whether there was one. Before connections go on,
    /// `excuse` gets its length: once, whoever else ends it at the same time.
    pub(crate) fn resume(&self, excuse: impl FnOnce(Duration)) -> bool {
        let mut hold = self.present_hold();
        let held = hold.filter(|_| self.phase() == Phase::Held);
        let Some(Hold { begun, .. }) = held else { return false };
        excuse(begun.elapsed());
        let resumed = self.change(Phase::Held, Phase::Serving);
        if resumed {
            *hold = None;
        }
        resumed
    }

    /// Returns whether clients are kept waiting: while they are held, and also when
    /// the gateway stops after that.
    pub(crate) fn keeps_waiting(&self) -> bool {
        self.present_hold().is_some()
    }

    fn change(&self, from: Phase, to: Phase) -> bool {
        let _one = self.changing();
        let changed = self
            .phase
            .compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Acquire)
            .is_ok();
        if changed {
            self.tell();
        }
        changed
    }

    /// Tells those who wait of a change. The caller holds [`Self::changing`].
    fn tell(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.changed.notify_waiters();
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn present_hold(&self) -> MutexGuard<'_, Option<Hold>> {
        self.present_hold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time left of the present hold.
    pub(crate) fn hold_left(&self) -> Option<Duration> {
        let held = self.phase() == Phase::Held;
        let hold = (*self.present_hold()).filter(|_| held)?;
        Some(hold.until.saturating_duration_since(Instant::now()))
    }

    /// Returns the present phase.
    pub(crate) fn phase(&self) -> Phase {
        Phase::of(self.phase.load(Ordering::Acquire))
    }

    /// Returns whether draining has begun.
    pub(crate) fn is_wanted(&self) -> bool {
        self.phase() == Phase::Draining
    }

    /// Counts a connection of the event loop.
    pub(crate) fn connection(&self) -> Counted<'_> {
        Counted::new(&self.connections)
    }

    /// Counts a held connection that has nothing left to do.
    pub(crate) fn rest(&self) -> Counted<'_> {
        Counted::new(&self.resting)
    }

    /// Returns the number of connections that are not at rest.
    pub(crate) fn busy(&self) -> usize {
        // In this order: one that ends meanwhile is not counted as busy.
        let connections = self.connections.load(Ordering::Acquire);
        connections.saturating_sub(self.resting.load(Ordering::Acquire))
    }

    /// Returns once draining has begun.
    pub(crate) async fn wait(&self) {
        let mut phase = self.phase();
        while phase != Phase::Draining {
            phase = self.after(phase).await;
        }
    }

    /// Returns the phase, once it is another one. Connections poll this at each
    /// event: only the first poll of a task, and one behind a change that was taken back
    /// meanwhile, take locks, which all cores share.
    pub(crate) async fn after(&self, known: Phase) -> Phase {
        let mut changed = pin!(self.changed.notified());
        let mut registered: Option<(Waker, usize)> = None;
        poll_fn(|task| {
            let now = self.phase();
            if now != known {
                return Poll::Ready(now);
            }
            let changes = self.changes.load(Ordering::Acquire);
            let is_registered =
                |(waker, at): &(Waker, usize)| *at == changes && waker.will_wake(task.waker());
            if registered.as_ref().is_some_and(is_registered) {
                return Poll::Pending;
            }
            // Nobody is told meanwhile: what comes from here on wakes this task.
            let _one = self.changing();
            let now = self.phase();
            if now != known {
                return Poll::Ready(now);
            }
            // The one before may have been told of changes there and back: it wakes no more.
            changed.set(self.changed.notified());
            if changed.as_mut().poll(task).is_ready() {
                task.waker().wake_by_ref();
                return Poll::Pending;
            }
            registered = Some((task.waker().clone(), self.changes.load(Ordering::Acquire)));
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use futures_util::stream::{FuturesUnordered, StreamExt};
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::task::{Context, Wake};

    #[tokio::test]
    async fn all_that_wait_are_woken_in_whatever_task_they_were_polled_last() {
        let drain = Drain::default();
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(drain.wait())).collect();
        for one in &mut waiting {
            assert_eq!(one.as_mut().now_or_never(), None);
            assert_eq!(one.as_mut().now_or_never(), None);
        }
        // Each has a task of its own in here.
        let all = waiting.into_iter().collect::<FuturesUnordered<_>>().collect::<Vec<()>>();
        let (all, ()) = tokio::join!(all, async {
            tokio::task::yield_now().await;
            drain.begin();
        });
        assert_eq!(all.len(), 3);
        assert!(drain.wait().now_or_never().is_some(), "draining has begun");
    }

    #[tokio::test]
    async fn each_change_is_seen_also_after_one_that_was_taken_back() {
        let drain = Drain::default();
        let mut serving = Box::pin(drain.after(Phase::Serving));
        assert_eq!(serving.as_mut().now_or_never(), None);
        assert!(drain.hold(Duration::from_secs(60)));
        assert!(drain.resume(|_| ()) && !drain.resume(|_| ()));
        assert_eq!(serving.as_mut().now_or_never(), None);
        let (seen, ()) = tokio::join!(serving, async {
            tokio::task::yield_now().await;
            assert!(drain.hold(Duration::from_secs(60)));
        });
        assert_eq!(seen, Phase::Held);
        assert!(drain.hold_left().is_some());
        drain.begin();
        assert!(!drain.hold(Duration::from_secs(60)), "it stops for good");
        assert!(!drain.resume(|_| ()));
        assert_eq!(drain.hold_left(), None);
    }

    /// Notes that its task was woken.
    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Release);
        }
    }

    /// A task that is busy with something else may see neither of two changes.
    #[test]
    fn a_task_that_has_missed_a_change_there_and_back_is_woken_by_the_next_one() {
        let (drain, woken) = (Drain::default(), Arc::<Woken>::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut task = Context::from_waker(&waker);
        let mut serving = pin!(drain.after(Phase::Serving));
        for _ in 0..2 {
            assert!(serving.as_mut().poll(&mut task).is_pending());
            assert!(drain.hold(Duration::from_secs(60)) && drain.resume(|_| ()));
            assert!(woken.0.swap(false, Ordering::AcqRel));
        }
        assert!(serving.as_mut().poll(&mut task).is_pending());
        drain.begin();
        assert!(woken.0.load(Ordering::Acquire));
        assert_eq!(serving.as_mut().poll(&mut task), Poll::Ready(Phase::Draining));
    }

    #[test]
    fn the_length_of_a_hold_counts_from_its_beginning_and_is_told_once() {
        let drain = Drain::default();
        assert!(drain.hold(Duration::from_secs(60)));
        let begun = drain.present_hold().map(|hold| hold.begun);
        assert!(drain.hold(Duration::from_secs(90)), "it is prolonged");
        assert_eq!(drain.present_hold().map(|hold| hold.begun), begun);
        let mut told = Vec::new();
        assert!(drain.resume(|held| {
            assert_eq!(drain.phase(), Phase::Held, "nobody goes on yet");
            told.push(held);
        }));
        assert!(!drain.resume(|held| told.push(held)));
        assert_eq!(told.len(), 1);
        assert!(drain.present_hold().is_none(), "the next one has its own beginning");
    }

    #[test]
    fn clients_of_a_gateway_that_stops_after_a_hold_are_still_kept_waiting() {
        let drain = Drain::default();
        assert!(!drain.keeps_waiting());
        assert!(drain.hold(Duration::from_secs(60)) && drain.keeps_waiting());
        assert!(drain.resume(|_| ()) && !drain.keeps_waiting());
        assert!(drain.hold(Duration::from_secs(60)));
        drain.begin();
        assert!(!drain.resume(|_| ()) && drain.keeps_waiting());
        let stopped = Drain::default();
        stopped.begin();
        assert!(!stopped.hold(Duration::from_secs(60)) && !stopped.keeps_waiting());
    }

    #[test]
    fn connections_are_busy_until_they_rest() {
        let drain = Drain::default();
        let (one, other) = (drain.connection(), drain.connection());
        assert_eq!(drain.busy(), 2);
        let resting = drain.rest();
        assert_eq!(drain.busy(), 1);
        drop(other);
        assert_eq!(drain.busy(), 0);
        drop((one, resting));
        assert_eq!(drain.busy(), 0);
    }
}
