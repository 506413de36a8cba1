//! Reports of lost data. Most file systems report a failed write-back once per
//! descriptor (errseq_t in the kernel), and all writers of a file share one: of writes and
//! syncs that overlap, the one that is told may be another than the one whose data is
//! lost. So each of them hands its loss to all that overlap with it.

use crate::losses::is_loss;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use zgate_store::{StoreError, StoreResult};

#[derive(Debug, Default)]
struct State {
    /// Number of syncs begun so far; the number of the last one.
    begun: u64,
    /// Numbers of those that have not ended.
    running: BTreeSet<u64>,
    /// Number of losses so far.
    losses: u64,
    /// The last loss.
    last: Option<StoreError>,
}

/// Syncs of one file: those of writes that sync themselves, and others.
#[derive(Debug)]
pub(crate) struct Reports {
    state: Mutex<State>,
    /// Notified at the end of each.
    ended: Notify,
    /// Set if the file system reports a loss once.
    is_told_once: bool,
}

/// A sync that runs; it ends when dropped. `None` where nobody waits for it.
#[derive(Debug)]
pub(crate) struct Report<'a>(Option<Running<'a>>);

#[derive(Debug)]
struct Running<'a> {
    of: &'a Reports,
    number: u64,
    /// Losses before it.
    losses: u64,
}

/// Those that ran when a sync ended; `None` where it does not wait for them.
#[derive(Debug)]
pub(crate) struct Others<'a>(Option<Overlap<'a>>);

#[derive(Debug)]
struct Overlap<'a> {
    of: &'a Reports,
    /// Number of the last one that had begun.
    last: u64,
    /// Losses before the sync, and its own.
    losses: u64,
}

impl Reports {
    pub(crate) fn new(is_told_once: bool) -> Self {
        Self { state: Mutex::default(), ended: Notify::new(), is_told_once }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a sync.
    pub(crate) fn begin(&self) -> Report<'_> {
        if !self.is_told_once {
            return Report(None);
        }
        let mut state = self.state();
        state.begun += 1;
        let number = state.begun;
        state.running.insert(number);
        Report(Some(Running { of: self, number, losses: state.losses }))
    }

    /// Waits for the end of all up to a number.
    async fn until_ended(&self, last: u64) {
        loop {
            // It is notified of what ends from here on.
            let ended = self.ended.notified();
            if self.state().running.first().is_none_or(|first| *first > last) {
                return;
            }
            ended.await;
        }
    }
}

impl<'a> Report<'a> {
    /// Ends it with its error, which the others learn of if it may be their loss. Nobody
    /// else waits for it any more.
    pub(crate) fn end(self, error: Option<StoreError>) -> Others<'a> {
        let Some(running) = self.0 else { return Others(None) };
        let (of, mut losses) = (running.of, running.losses);
        let mut state = of.state();
        if error.is_some_and(is_loss) {
            state.losses += 1;
            state.last = error;
            losses += 1;
        }
        let last = state.begun;
        drop(state);
        Others(Some(Overlap { of, last, losses }))
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.of.state().running.remove(&self.number);
        self.of.ended.notify_waiters();
    }
}

impl Others<'_> {
    /// Waits for them, so that it is known what they were told.
    ///
    /// # Errors
    /// The loss that one of them was told of since the sync began.
    pub(crate) async fn settled(self) -> StoreResult<()> {
        let Some(Overlap { of, last, losses }) = self.0 else { return Ok(()) };
        of.until_ended(last).await;
        let state = of.state();
        match state.last {
            Some(error) if state.losses > losses => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    type Settled = Poll<StoreResult<()>>;

    fn poll(settled: Pin<&mut impl Future<Output = StoreResult<()>>>) -> Settled {
        settled.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn at_once(others: Others<'_>) -> Settled {
        poll(pin!(others.settled()))
    }

    const FINE: Settled = Poll::Ready(Ok(()));
    const LOST: Settled = Poll::Ready(Err(StoreError::Io));

    #[test]
    fn all_that_overlap_learn_of_a_loss() {
        let reports = Reports::new(true);
        let (first, second) = (reports.begin(), reports.begin());
        // The kernel has told the second one of the first one's loss.
        let mut settled = pin!(first.end(None).settled());
        assert!(poll(settled.as_mut()).is_pending(), "the other may have been told");
        let later = reports.begin();
        let _own = second.end(Some(StoreError::Io));
        assert_eq!(poll(settled.as_mut()), LOST, "it does not wait for later ones");
        assert_eq!(at_once(later.end(None)), LOST);
        assert_eq!(at_once(reports.begin().end(None)), FINE, "what comes after is another's");
    }

    #[test]
    fn what_others_do_without_a_loss_is_fine() {
        let reports = Reports::new(true);
        for error in [None, Some(StoreError::Stale)] {
            let (first, second) = (reports.begin(), reports.begin());
            let mut settled = pin!(first.end(None).settled());
            assert!(poll(settled.as_mut()).is_pending());
            let _ended = second.end(error);
            assert_eq!(poll(settled.as_mut()), FINE);
        }
        let (first, dropped) = (reports.begin(), reports.begin());
        drop(dropped);
        assert_eq!(at_once(first.end(None)), FINE);
    }

    #[test]
    fn the_own_loss_is_not_told_twice() {
        let reports = Reports::new(true);
        let (first, second) = (reports.begin(), reports.begin());
        let first = first.end(Some(StoreError::Io));
        let second = second.end(None);
        assert_eq!((at_once(first), at_once(second)), (FINE, LOST));
    }

    #[test]
    fn nobody_waits_where_each_is_told() {
        let reports = Reports::new(false);
        let (first, _second) = (reports.begin(), reports.begin());
        assert_eq!(at_once(first.end(None)), FINE);
    }
}
