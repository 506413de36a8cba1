//! Memory promised to the reply caches of all sessions.

use super::session::Channel;
use crate::limits::{MAX_REPLY_CACHE_BYTES, SPARE_CACHED_REPLY_BYTES, SPARE_SLOTS};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How much is promised in total.
#[derive(Clone, Debug, Default)]
pub struct ReplyMemory(Arc<AtomicUsize>);

/// One session's share; given back when dropped.
#[derive(Debug)]
pub struct Share {
    total: Arc<AtomicUsize>,
    bytes: usize,
}

impl ReplyMemory {
    /// Promises what a channel asks for. When that would exceed the total, the
    /// channel becomes a small one: it still works, with less under way.
    pub fn promise(&self, channel: &mut Channel) -> Share {
        let asked = |channel: &Channel| channel.slots as usize * channel.max_cached_bytes as usize;
        if self.0.load(Ordering::Relaxed) + asked(channel) > MAX_REPLY_CACHE_BYTES {
            channel.slots = channel.slots.min(SPARE_SLOTS);
            channel.max_cached_bytes = channel.max_cached_bytes.min(SPARE_CACHED_REPLY_BYTES);
        }
        let bytes = asked(channel);
        self.0.fetch_add(bytes, Ordering::Relaxed);
        Share { total: Arc::clone(&self.0), bytes }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{MAX_CACHED_REPLY_BYTES, MAX_SLOTS};

    #[test]
    fn late_sessions_become_small_and_memory_comes_back() {
        let memory = ReplyMemory::default();
        let large = Channel {
            header_pad_bytes: 0,
            max_request_bytes: 4096,
            max_response_bytes: 4096,
            max_cached_bytes: MAX_CACHED_REPLY_BYTES,
            max_ops: 8,
            slots: MAX_SLOTS,
        };
        let mut shares = Vec::new();
        let mut channel = large;
        while channel == large {
            shares.push(memory.promise(&mut channel));
        }
        assert_eq!(channel.slots, SPARE_SLOTS);
        shares.clear();
        let mut channel = large;
        let _share = memory.promise(&mut channel);
        assert_eq!(channel, large);
    }
}
