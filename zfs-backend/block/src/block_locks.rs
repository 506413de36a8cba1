//! Locks on blocks that are larger than a sector. Whoever writes a part of a block reads it,
//! changes it and writes it back as a whole: a write that comes to the same block in between,
//! whole or in part, would be undone.

use crate::span::Span;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// A span of whole blocks that is being written, or waits for it.
#[derive(Debug)]
struct Entry {
    ticket: u64,
    span: Span,
    /// Parts of its blocks are written.
    alone: bool,
}

impl Entry {
    fn excludes(&self, other: &Self) -> bool {
        (self.alone || other.alone)
            && self.span.offset < other.span.end()
            && other.span.offset < self.span.end()
    }
}

#[derive(Debug, Default)]
struct Inner {
    /// In the order in which they came.
    entries: Vec<Entry>,
    next_ticket: u64,
}

/// Locks on the blocks of a volume.
#[derive(Debug, Default)]
pub(crate) struct BlockLocks {
    inner: Mutex<Inner>,
    released: Notify,
}

/// A lock, or a place in the queue for it, released when dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct BlockGuard {
    locks: Arc<BlockLocks>,
    ticket: u64,
}

impl BlockLocks {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks a span of whole blocks: `alone` to write parts of them, else together with others
    /// that write them as a whole. Those who came earlier go first.
    pub(crate) async fn take(self: &Arc<Self>, span: Span, alone: bool) -> BlockGuard {
        let guard = self.enter(span, alone);
        loop {
            let mut released = pin!(self.released.notified());
            // From now on, so that no release is missed.
            released.as_mut().enable();
            if self.is_free(guard.ticket) {
                return guard;
            }
            released.await;
        }
    }

    fn enter(self: &Arc<Self>, span: Span, alone: bool) -> BlockGuard {
        let mut inner = self.lock();
        let ticket = inner.next_ticket;
        inner.next_ticket += 1;
        inner.entries.push(Entry { ticket, span, alone });
        BlockGuard { locks: Arc::clone(self), ticket }
    }

    /// Returns whether nobody who came before this ticket excludes it.
    fn is_free(&self, ticket: u64) -> bool {
        let inner = self.lock();
        let own = inner.entries.iter().find(|entry| entry.ticket == ticket);
        let mut before = inner.entries.iter().take_while(|entry| entry.ticket < ticket);
        own.is_none_or(|own| !before.any(|entry| entry.excludes(own)))
    }
}

impl Drop for BlockGuard {
    fn drop(&mut self) {
        let mut inner = self.locks.lock();
        // Not swapped: the order is that of their coming.
        inner.entries.retain(|entry| entry.ticket != self.ticket);
        let others = !inner.entries.is_empty();
        drop(inner);
        if others {
            self.locks.released.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    const BLOCK: Span = Span { offset: 4096, len: 4096 };
    const BOTH: Span = Span { offset: 4096, len: 8192 };
    const NEXT: Span = Span { offset: 8192, len: 4096 };

    fn poll(take: Pin<&mut impl Future<Output = BlockGuard>>) -> Option<BlockGuard> {
        match take.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(guard) => Some(guard),
            Poll::Pending => None,
        }
    }

    #[test]
    fn who_writes_a_part_of_a_block_is_alone_in_it() {
        let locks = Arc::new(BlockLocks::default());
        let first = poll(pin!(locks.take(BOTH, false))).unwrap();
        let second = poll(pin!(locks.take(BLOCK, false))).unwrap();
        let mut part = Box::pin(locks.take(BLOCK, true));
        assert!(poll(part.as_mut()).is_none());
        drop(first);
        assert!(poll(part.as_mut()).is_none());
        drop(second);
        let part = poll(part.as_mut()).unwrap();
        for alone in [false, true] {
            assert!(poll(pin!(locks.take(BOTH, alone))).is_none());
            assert!(poll(pin!(locks.take(NEXT, alone))).is_some());
        }
        drop(part);
        assert!(poll(pin!(locks.take(BOTH, true))).is_some());
        assert!(locks.lock().entries.is_empty());
    }

    #[test]
    fn whoever_came_earlier_goes_first() {
        let locks = Arc::new(BlockLocks::default());
        let held = poll(pin!(locks.take(BLOCK, false))).unwrap();
        let mut part = Box::pin(locks.take(BOTH, true));
        assert!(poll(part.as_mut()).is_none());
        // A stream of whole writes does not keep it waiting for ever.
        let mut later = pin!(locks.take(BLOCK, false));
        assert!(poll(later.as_mut()).is_none());
        // Who gives up keeps nobody waiting.
        drop(part);
        assert!(poll(later.as_mut()).is_some());
        drop(held);
    }
}
