//! Shards of what all threads write, such as counters. Each thread has one of them, so that
//! threads that work at the same time seldom write the same cache line.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of shards. Where more threads run, some of them share one.
pub const THREAD_SHARDS: usize = 32;

thread_local! {
    static SHARD: usize = next();
}

fn next() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    THREADS.fetch_add(1, Ordering::Relaxed) % THREAD_SHARDS
}

/// Returns the shard of this thread, a number below [`THREAD_SHARDS`]. Threads get them in
/// turn, in the order in which they first ask: [`THREAD_SHARDS`] threads that ask one after
/// the other have one each.
#[must_use]
#[inline]
pub fn thread_shard() -> usize {
    SHARD.with(|shard| *shard)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_thread_keeps_its_shard_and_others_have_others() {
        let own = thread_shard();
        assert!(own < THREAD_SHARDS && thread_shard() == own);
        let others = (0..2 * THREAD_SHARDS).map(|_| std::thread::spawn(thread_shard));
        let used: BTreeSet<usize> = others.map(|other| other.join().unwrap()).collect();
        assert!(used.len() > THREAD_SHARDS / 2, "{used:?}");
    }
}
