//! Group commit: one sync for all callers that wait. Callers that arrive while
//! a sync runs share the next one. Syncs of one object do not overlap: an error
//! that the kernel reports once is recorded before the next sync begins.

use futures_util::FutureExt;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{RwLock, RwLockReadGuard};
use zgate_store::{StoreError, StoreResult};

/// Time after which a running sync marks its storage as hanging: no operation
/// is started that would have to wait for it.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time after which a running sync is slow: no operation is started that would have to wait for
/// it together with [`MAX_WAITING`] others.
const SLOW: Duration = Duration::from_secs(1);
/// Most requests that wait for a slow sync. They cannot be sent away, since their changes are
/// made: for as long as the storage hangs, each keeps its memory, and its place in its connection.
const MAX_WAITING: usize = 1024;

struct Line<T> {
    /// Number of syncs begun so far.
    begun: u64,
    /// Requests that the next sync will serve.
    waiting: Vec<T>,
    /// Start time of the running sync.
    since: Option<Instant>,
}

/// Result of the sync that ended last.
struct Last {
    number: u64,
    result: StoreResult<()>,
    /// Number and error of the last one that failed.
    failed: Option<(u64, StoreError)>,
}

impl Last {
    /// Returns the result for a request that came when `before` syncs had begun; `None`: none
    /// that began later has ended. Who is late to ask for it may find several: the one that
    /// served the request may have failed, although a later one has not.
    fn since(&self, before: u64) -> Option<StoreResult<()>> {
        let failed = self.failed.filter(|(number, _)| *number > before);
        let result = failed.map_or(self.result, |(_, error)| Err(error));
        (self.number > before).then_some(result)
    }

    fn record(&mut self, number: u64, result: StoreResult<()>) {
        (self.number, self.result) = (number, result);
        if let Err(error) = result {
            self.failed = Some((number, error));
        }
    }
}

/// Consecutive syncs of one object; `T` describes the part to sync.
pub(crate) struct GroupSync<T> {
    line: Mutex<Line<T>>,
    /// Held exclusively by the running sync, and shared by writes that sync
    /// themselves.
    turn: RwLock<Last>,
}

impl<T> Default for GroupSync<T> {
    fn default() -> Self {
        Self {
            line: Mutex::new(Line { begun: 0, waiting: Vec::new(), since: None }),
            turn: RwLock::new(Last { number: 0, result: Ok(()), failed: None }),
        }
    }
}

impl<T> std::fmt::Debug for GroupSync<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GroupSync({} begun)", self.line().begun)
    }
}

/// Records the end of a sync when dropped, even if its caller does not wait for it any
/// more. The sync of a caller that goes away may still run: an error that the kernel
/// reports once may be lost with it.
struct Running<'a, T> {
    group: &'a GroupSync<T>,
    /// Requests that it serves, until its result is known: without one, the next sync
    /// serves them.
    unserved: Vec<T>,
}

impl<T> Drop for Running<'_, T> {
    fn drop(&mut self) {
        let mut line = self.group.line();
        line.since = None;
        line.waiting.append(&mut self.unserved);
    }
}

impl<T> GroupSync<T> {
    fn line(&self) -> MutexGuard<'_, Line<T>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `what` synced by a sync that begins after this call. `sync` is
    /// called with all waiting requests unless another caller runs it first.
    ///
    /// # Errors
    /// The error of that sync, for all requests it served; [`StoreError::Io`] if it panicked
    /// for another caller.
    pub(crate) async fn join(
        &self,
        what: impl IntoIterator<Item = T>,
        sync: impl AsyncFnOnce(Vec<T>) -> StoreResult<()>,
    ) -> StoreResult<()>
    where
        T: Clone,
    {
        let before = {
            let mut line = self.line();
            line.waiting.extend(what);
            line.begun
        };
        let mut last = self.turn.write().await;
        if let Some(result) = last.since(before) {
            return result;
        }
        let (number, what) = {
            let mut line = self.line();
            line.begun += 1;
            line.since = Some(Instant::now());
            (line.begun, std::mem::take(&mut line.waiting))
        };
        let mut running = Running { group: self, unserved: what.clone() };
        // Pinned where it is made: awaited by value, it is moved twice.
        let work = pin!(async { sync(what).await });
        let outcome = AssertUnwindSafe(work).catch_unwind().await;
        // A panic would be repeated, too: it is the result for all that the sync served.
        let result = outcome.as_ref().map_or(Err(StoreError::Io), |result| *result);
        running.unserved.clear();
        drop(running);
        last.record(number, result);
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Excludes other syncs while a write syncs itself.
    pub(crate) async fn beside(&self) -> impl Sized + '_ {
        let guard: RwLockReadGuard<'_, Last> = self.turn.read().await;
        guard
    }

    /// Refuses while a sync has been running for too long, or for long while many wait for it.
    ///
    /// # Errors
    /// [`StoreError::OutOfResources`]: try again later.
    pub(crate) fn check(&self) -> StoreResult<()> {
        self.check_at(Instant::now)
    }

    fn check_at(&self, now: impl FnOnce() -> Instant) -> StoreResult<()> {
        let (since, waiting) = {
            let line = self.line();
            (line.since, line.waiting.len())
        };
        let Some(since) = since else { return Ok(()) };
        let patience = if waiting < MAX_WAITING { PATIENCE } else { SLOW };
        if now().saturating_duration_since(since) >= patience {
            return Err(StoreError::OutOfResources);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::panic::catch_unwind;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};
    use tokio::sync::oneshot;

    type Request<'a> = Pin<Box<dyn Future<Output = StoreResult<()>> + 'a>>;

    fn poll(request: &mut Request<'_>) -> Poll<StoreResult<()>> {
        request.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    type Gate = Option<oneshot::Sender<StoreResult<()>>>;

    /// Syncs that block until their gates are opened with a result.
    #[derive(Default)]
    struct Disk {
        syncs: RefCell<Vec<(Vec<u32>, Gate)>>,
    }

    impl Disk {
        async fn sync(&self, what: Vec<u32>) -> StoreResult<()> {
            let (gate, end) = oneshot::channel();
            self.syncs.borrow_mut().push((what, Some(gate)));
            end.await.unwrap()
        }

        /// Begins a request of the group that syncs on this disk.
        fn join<'a>(&'a self, group: &'a GroupSync<u32>, what: u32) -> Request<'a> {
            Box::pin(group.join([what], async |all| self.sync(all).await))
        }

        fn end(&self, number: usize, result: StoreResult<()>) {
            self.syncs.borrow_mut()[number].1.take().unwrap().send(result).unwrap();
        }

        fn synced(&self) -> Vec<Vec<u32>> {
            self.syncs.borrow().iter().map(|(what, _)| what.clone()).collect()
        }
    }

    #[test]
    fn those_who_come_while_one_runs_share_the_next() {
        let (group, disk) = (GroupSync::default(), Disk::default());
        let join = |what| disk.join(&group, what);
        let mut all: Vec<_> = (0..5).map(join).collect();
        assert!(all.iter_mut().all(|request| poll(request).is_pending()));
        assert_eq!(disk.synced(), [vec![0]]);
        disk.end(0, Ok(()));
        assert_eq!(poll(&mut all[0]), Poll::Ready(Ok(())));
        assert!(all[1..].iter_mut().all(|request| poll(request).is_pending()));
        assert_eq!(disk.synced(), [vec![0], vec![1, 2, 3, 4]], "one for four");
        disk.end(1, Err(StoreError::Io));
        for request in &mut all[1..] {
            assert_eq!(poll(request), Poll::Ready(Err(StoreError::Io)), "it was for all of them");
        }
    }

    /// Between its request and its place in the line a thread may sleep as long as it likes.
    #[test]
    fn who_comes_late_for_its_result_is_told_of_the_sync_that_failed() {
        let mut last = Last { number: 0, result: Ok(()), failed: None };
        last.record(6, Err(StoreError::Io));
        last.record(7, Ok(()));
        assert_eq!(last.since(5), Some(Err(StoreError::Io)), "the sixth served it");
        assert_eq!(last.since(6), Some(Ok(())));
        assert_eq!(last.since(7), None);
    }

    #[test]
    fn who_goes_away_keeps_nobody_waiting() {
        let (group, disk) = (GroupSync::default(), Disk::default());
        let join = |what| disk.join(&group, what);
        let (mut first, mut second) = (join(1), join(2));
        assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
        drop(first);
        assert!(poll(&mut second).is_pending());
        assert_eq!(
            disk.synced(),
            [vec![1], vec![2, 1]],
            "the part that nobody has seen synced is repeated"
        );
        disk.end(1, Ok(()));
        assert_eq!(poll(&mut second), Poll::Ready(Ok(())));
    }

    #[test]
    fn a_sync_whose_caller_goes_away_is_repeated_for_the_others() {
        let (group, disk) = (GroupSync::default(), Disk::default());
        let join = |what| disk.join(&group, what);
        let (mut first, mut second, mut third) = (join(1), join(2), join(3));
        for request in [&mut first, &mut second, &mut third] {
            assert!(poll(request).is_pending());
        }
        disk.end(0, Ok(()));
        assert_eq!(poll(&mut first), Poll::Ready(Ok(())));
        assert!(poll(&mut second).is_pending());
        drop(second);
        assert!(poll(&mut third).is_pending());
        assert_eq!(disk.synced(), [vec![1], vec![2, 3], vec![2, 3]]);
        disk.end(2, Err(StoreError::Io));
        assert_eq!(poll(&mut third), Poll::Ready(Err(StoreError::Io)));
    }

    #[test]
    fn a_sync_that_panics_is_not_repeated() {
        let (group, disk) = (GroupSync::default(), Disk::default());
        let join = |what| disk.join(&group, what);
        let panics = async |_: Vec<u32>| -> StoreResult<()> { panic!("told to") };
        let (mut first, mut third) = (join(1), join(3));
        let mut second: Request<'_> = Box::pin(group.join([2], panics));
        for request in [&mut first, &mut second, &mut third] {
            assert!(poll(request).is_pending());
        }
        disk.end(0, Ok(()));
        assert_eq!(poll(&mut first), Poll::Ready(Ok(())));
        assert!(catch_unwind(AssertUnwindSafe(|| poll(&mut second))).is_err());
        assert_eq!(poll(&mut third), Poll::Ready(Err(StoreError::Io)), "it was for both of them");
        let mut fourth = join(4);
        assert!(poll(&mut fourth).is_pending());
        assert_eq!(disk.synced(), [[1], [4]]);
        disk.end(1, Ok(()));
        assert_eq!(poll(&mut fourth), Poll::Ready(Ok(())));
    }

    #[test]
    fn nothing_is_begun_behind_a_sync_that_does_not_end() {
        let (group, disk) = (GroupSync::default(), Disk::default());
        assert_eq!(group.check(), Ok(()));
        let mut sync = disk.join(&group, 1);
        assert!(poll(&mut sync).is_pending());
        let later = Instant::now() + PATIENCE;
        assert_eq!(group.check_at(|| later), Err(StoreError::OutOfResources));
        disk.end(0, Ok(()));
        assert!(poll(&mut sync).is_ready());
        assert_eq!(group.check_at(|| later), Ok(()));
    }

    #[test]
    fn a_slow_sync_has_a_bounded_number_of_requests_that_wait() {
        let (group, disk) = (GroupSync::default(), Disk::default());
        let mut all: Vec<_> =
            (0..=MAX_WAITING as u32).map(|what| disk.join(&group, what)).collect();
        let (before, slow) = (Instant::now(), Instant::now() + Duration::from_secs(4));
        let last = all.pop().unwrap();
        assert!(all.iter_mut().all(|request| poll(request).is_pending()));
        assert_eq!(group.check_at(|| slow), Ok(()), "there is room for one");
        all.push(last);
        assert!(poll(all.last_mut().unwrap()).is_pending());
        assert_eq!(group.check_at(|| slow), Err(StoreError::OutOfResources));
        assert_eq!(group.check_at(|| before), Ok(()), "it has just begun");
        disk.end(0, Ok(()));
        assert!(poll(&mut all[0]).is_ready());
        assert!(poll(&mut all[1]).is_pending(), "it syncs for all of them");
        assert_eq!(group.check_at(|| slow), Ok(()));
    }
}
