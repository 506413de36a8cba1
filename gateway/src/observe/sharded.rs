//! Counters that all threads write, divided among shards of the threads: a request writes no
//! cache line of other cores to be counted. A reader adds the shards up.

use std::sync::OnceLock;
use zgate_store::{THREAD_SHARDS, thread_shard};

/// One value for each shard of the threads, made when a thread of it first counts.
#[derive(Debug)]
pub(crate) struct Sharded<T>([OnceLock<Box<OwnLines<T>>>; THREAD_SHARDS]);

/// A value on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct OwnLines<T> {
    value: T,
}

impl<T> Default for Sharded<T> {
    fn default() -> Self {
        Self([const { OnceLock::new() }; THREAD_SHARDS])
    }
}

impl<T: Default> Sharded<T> {
    /// Returns the value of this thread's shard.
    pub(crate) fn here(&self) -> &T {
        &self.0[thread_shard()].get_or_init(Box::default).value
    }
}

impl<T> Sharded<T> {
    /// Returns the sum of a number in all shards, looked at one after the other. A gauge that
    /// rises in one of them and falls in another one may come out negative.
    pub(crate) fn sum(&self, number: impl Fn(&T) -> u64) -> u64 {
        let made = self.0.iter().filter_map(OnceLock::get);
        // A gauge, which shards increase and decrease, wraps around in some of them.
        made.map(|shard| number(&shard.value)).fold(0, u64::wrapping_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn what_all_threads_count_adds_up() {
        let counts = Sharded::<AtomicU64>::default();
        let sum = || counts.sum(|count| count.load(Ordering::Relaxed));
        assert_eq!(sum(), 0);
        std::thread::scope(|scope| {
            for _ in 0..2 * THREAD_SHARDS {
                scope.spawn(|| counts.here().fetch_add(3, Ordering::Relaxed));
            }
        });
        let all = 6 * THREAD_SHARDS as u64;
        assert_eq!(sum(), all);
        // What many threads have begun, one ends.
        counts.here().fetch_sub(all, Ordering::Relaxed);
        assert_eq!(sum(), 0);
    }

    #[test]
    fn each_shard_begins_on_a_cache_line_of_its_own() {
        let counts = Sharded::<AtomicU64>::default();
        let address = || std::ptr::from_ref(counts.here()).addr();
        std::thread::scope(|scope| {
            for _ in 0..THREAD_SHARDS {
                let begins = scope.spawn(address).join().unwrap();
                assert_eq!(begins % 128, 0);
            }
        });
    }
}
