//! Locks on runs of logical blocks: commands that SBC requires to be atomic
//! hold theirs exclusively, plain reads and writes share.

use super::signal::Signal;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A run of logical blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockRange {
    /// First logical block.
    pub(crate) lba: u64,
    /// Number of logical blocks.
    pub(crate) blocks: u64,
}

impl BlockRange {
    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.lba < other.lba.saturating_add(other.blocks)
            && other.lba < self.lba.saturating_add(self.blocks)
    }
}

#[derive(Debug)]
struct Held {
    ticket: u64,
    range: BlockRange,
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

    fn blocked(&self, range: BlockRange, exclusive: bool, ticket: u64) -> bool {
        let hits = |held: &Held| held.range.overlaps(range);
        self.exclusive.iter().any(hits)
            || (exclusive && self.shared.iter().any(hits))
            || self.queued.iter().any(|held| held.ticket < ticket && hits(held))
    }

    /// Notes a sharer of the range, unless others keep it.
    fn try_share(&mut self, range: BlockRange, ticket: u64) -> Option<()> {
        let free = !self.blocked(range, false, ticket);
        free.then(|| self.shared.push(Held { ticket, range }))
    }
}

fn forget(list: &mut Vec<Held>, ticket: u64) {
    if let Some(at) = list.iter().position(|held| held.ticket == ticket) {
        list.swap_remove(at);
    }
}

/// Range locks of one disk.
#[derive(Debug, Default)]
pub(crate) struct RangeLocks {
    inner: Mutex<Inner>,
    released: Signal,
}

/// A held range, or a place in the queue for it, released when dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct RangeGuard<'a> {
    locks: &'a RangeLocks,
    ticket: u64,
}

impl RangeLocks {
    /// Locks `range` together with other sharers.
    pub(crate) async fn share(&self, range: BlockRange) -> RangeGuard<'_> {
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
    pub(crate) async fn exclude(&self, range: BlockRange) -> RangeGuard<'_> {
        let ticket = {
            let mut inner = self.lock();
            let ticket = inner.ticket();
            inner.queued.push(Held { ticket, range });
            ticket
        };
        let guard = RangeGuard { locks: self, ticket };
        self.released
            .wait_for(|| {
                let mut inner = self.lock();
                if inner.blocked(range, true, ticket) {
                    return None;
                }
                forget(&mut inner.queued, ticket);
                inner.exclusive.push(Held { ticket, range });
                Some(())
            })
            .await;
        guard
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RangeGuard<'_> {
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

    const FRONT: BlockRange = BlockRange { lba: 0, blocks: 8 };
    const BACK: BlockRange = BlockRange { lba: 8, blocks: 8 };

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
}
