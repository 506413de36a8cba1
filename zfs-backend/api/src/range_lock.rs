//! Locks on ranges of a disk: who has to be alone in a range holds it exclusively, others share it.
//! They need no runtime.

use crate::signal::Signal;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A range, in blocks or in bytes: the same for all locks of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First block or byte.
    pub start: u64,
    /// Number of blocks or bytes.
    pub len: u64,
}

impl Extent {
    /// Returns whether a block or byte is in both.
    pub fn overlaps(self, other: Self) -> bool {
        self.start < other.start.saturating_add(other.len)
            && other.start < self.start.saturating_add(self.len)
    }
}

#[derive(Debug)]
struct Held {
    ticket: u64,
    range: Extent,
}

#[derive(Debug, Default)]
struct Inner {
    shared: Vec<Held>,
    exclusive: Vec<Held>,
    /// Waiting exclusive requests. Later requests queue behind them, so that a
    /// stream of writes cannot starve them.
    queued: Vec<Held>,
    next_ticket: u64,
}

impl Inner {
    fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }

    fn blocked(&self, range: Extent, exclusive: bool, ticket: u64) -> bool {
        let hits = |held: &Held| held.range.overlaps(range);
        self.exclusive.iter().any(hits)
            || (exclusive && self.shared.iter().any(hits))
            || self.queued.iter().any(|held| held.ticket < ticket && hits(held))
    }

    /// Notes a sharer of the range, unless others keep it.
    fn try_share(&mut self, range: Extent, ticket: u64) -> Option<()> {
        let free = !self.blocked(range, false, ticket);
        free.then(|| self.shared.push(Held { ticket, range }))
    }

    /// Notes the holder of the range in place of its wait, unless others keep it.
    fn try_exclude(&mut self, range: Extent, ticket: u64) -> Option<()> {
        if self.blocked(range, true, ticket) {
            return None;
        }
        forget(&mut self.queued, ticket);
        self.exclusive.push(Held { ticket, range });
        Some(())
    }
}

fn forget(list: &mut Vec<Held>, ticket: u64) {
    if let Some(at) = list.iter().position(|held| held.ticket == ticket) {
        list.swap_remove(at);
    }
}

/// Range locks of one disk.
#[derive(Debug, Default)]
pub struct RangeLocks {
    inner: Mutex<Inner>,
    released: Signal,
}

/// A held range, or a place in the queue for it, released when dropped.
#[derive(Debug)]
#[must_use]
pub struct RangeGuard<L: Deref<Target = RangeLocks>> {
    locks: L,
    ticket: u64,
}

impl RangeLocks {
    /// Locks `range` together with other sharers.
    pub async fn share(&self, range: impl Into<Extent>) -> RangeGuard<&Self> {
        let range = range.into();
        let (ticket, shared) = {
            let mut inner = self.lock();
            let ticket = inner.ticket();
            (ticket, inner.try_share(range, ticket))
        };
        let guard = RangeGuard { locks: self, ticket };
        if shared.is_none() {
            self.released.wait_for(|| self.lock().try_share(range, ticket)).await;
        }
        guard
    }

    /// Locks `range` exclusively.
    pub async fn exclude(&self, range: impl Into<Extent>) -> RangeGuard<&Self> {
        RangeGuard::exclude(self, range.into()).await
    }

    /// Locks `range` exclusively, for work that nobody waits for any more, too.
    pub async fn exclude_owned(
        self: &Arc<Self>,
        range: impl Into<Extent>,
    ) -> RangeGuard<Arc<Self>> {
        RangeGuard::exclude(Arc::clone(self), range.into()).await
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L: Deref<Target = RangeLocks>> RangeGuard<L> {
    async fn exclude(locks: L, range: Extent) -> Self {
        let ticket = {
            let mut inner = locks.lock();
            let ticket = inner.ticket();
            inner.queued.push(Held { ticket, range });
            ticket
        };
        let guard = Self { locks, ticket };
        let try_exclude = || guard.locks.lock().try_exclude(range, ticket);
        guard.locks.released.wait_for(try_exclude).await;
        guard
    }
}

impl<L: Deref<Target = RangeLocks>> Drop for RangeGuard<L> {
    fn drop(&mut self) {
        let mut inner = self.locks.lock();
        forget(&mut inner.shared, self.ticket);
        forget(&mut inner.exclusive, self.ticket);
        forget(&mut inner.queued, self.ticket);
        drop(inner);
        self.locks.released.raise();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    const FRONT: Extent = Extent { start: 0, len: 8 };
    const BACK: Extent = Extent { start: 8, len: 8 };
    const BOTH: Extent = Extent { start: 0, len: 16 };

    #[test]
    fn sharers_share_and_exclusive_holders_do_not() {
        let locks = RangeLocks::default();
        let Poll::Ready(first) = poll(pin!(locks.share(FRONT))) else { panic!("free") };
        let Poll::Ready(second) = poll(pin!(locks.share(FRONT))) else { panic!("shared") };
        let mut alone = pin!(locks.exclude(FRONT));
        assert!(poll(alone.as_mut()).is_pending());
        assert!(poll(pin!(locks.exclude(BACK))).is_ready());
        drop(first);
        assert!(poll(alone.as_mut()).is_pending());
        drop(second);
        assert!(poll(alone.as_mut()).is_ready());
    }

    #[test]
    fn a_waiting_exclusive_request_is_not_overtaken() {
        let locks = RangeLocks::default();
        let Poll::Ready(held) = poll(pin!(locks.share(FRONT))) else { panic!("free") };
        let mut alone = Box::pin(locks.exclude(FRONT));
        assert!(poll(alone.as_mut()).is_pending());
        let mut later = pin!(locks.share(FRONT));
        assert!(poll(later.as_mut()).is_pending());
        // Leaving the queue lets the later request pass.
        drop(alone);
        assert!(poll(later.as_mut()).is_ready());
        drop(held);
    }

    #[test]
    fn an_owned_exclusive_lock_is_alone_in_its_range() {
        let locks = Arc::new(RangeLocks::default());
        let Poll::Ready(first) = poll(pin!(locks.share(BOTH))) else { panic!("free") };
        let Poll::Ready(second) = poll(pin!(locks.share(FRONT))) else { panic!("shared") };
        let mut part = Box::pin(locks.exclude_owned(FRONT));
        assert!(poll(part.as_mut()).is_pending());
        drop(first);
        assert!(poll(part.as_mut()).is_pending());
        drop(second);
        let Poll::Ready(part) = poll(part.as_mut()) else { panic!("free") };
        assert!(poll(pin!(locks.share(BOTH))).is_pending());
        assert!(poll(pin!(locks.exclude_owned(BOTH))).is_pending());
        assert!(poll(pin!(locks.share(BACK))).is_ready());
        assert!(poll(pin!(locks.exclude_owned(BACK))).is_ready());
        drop(part);
        assert!(poll(pin!(locks.exclude_owned(BOTH))).is_ready());
        let inner = locks.lock();
        assert!(inner.shared.is_empty() && inner.exclusive.is_empty() && inner.queued.is_empty());
    }

    #[test]
    fn who_gives_up_an_owned_lock_keeps_nobody_waiting() {
        let locks = Arc::new(RangeLocks::default());
        let Poll::Ready(held) = poll(pin!(locks.share(FRONT))) else { panic!("free") };
        let mut part = Box::pin(locks.exclude_owned(BOTH));
        assert!(poll(part.as_mut()).is_pending());
        // A stream of shared locks does not keep it waiting for ever.
        let mut later = pin!(locks.share(FRONT));
        assert!(poll(later.as_mut()).is_pending());
        drop(part);
        assert!(poll(later.as_mut()).is_ready());
        drop(held);
    }
}
