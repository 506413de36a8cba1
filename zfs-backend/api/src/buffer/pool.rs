//! A pool of page-aligned buffers, shared by all threads.

use super::{AlignedBuf, Arena, BUFFER_ALIGNMENT_BYTES, Storage, allocate};
use crate::thread_shard::{THREAD_SHARDS, thread_shard};
use std::fmt;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The buffer sizes kept in a pool, in bytes, smallest first.
const CLASS_BYTES: [usize; 6] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// Number of the smallest sizes of which each shard of the threads keeps idle buffers.
const SHARDED_CLASSES: usize = 2;
/// Most idle buffers of one of these sizes in a shard.
const MAX_IDLE_IN_SHARD: usize = 32;
/// Part of a pool's idle bytes that one of these sizes may have in all shards together.
const SHARDED_PART: usize = 4;
/// Bytes that a shard takes or gives back until the pool's counter is told.
const MAX_UNTOLD_BYTES: usize = 64 << 10;

const _: () = assert!(SHARDED_CLASSES <= SHARDED_PART && SHARDED_CLASSES <= CLASS_BYTES.len());

/// An idle buffer, and its aligned start.
type IdleBuffer = (Storage, usize);

/// The small buffers of the threads of one shard. They come back here whichever thread drops
/// them: a request that takes small ones alone writes no cache line of other cores.
#[repr(align(128))]
pub(super) struct Shard {
    small: Mutex<SmallBuffers>,
    /// Most idle buffers, by size.
    most_idle: [usize; SHARDED_CLASSES],
    pool: Weak<PoolInner>,
}

#[derive(Default)]
struct SmallBuffers {
    idle: [Vec<IdleBuffer>; SHARDED_CLASSES],
    /// Bytes in use that the pool's counter does not include; negative: bytes that it
    /// includes, and that are not in use any more.
    untold_bytes: isize,
}

impl SmallBuffers {
    /// Counts bytes that are taken, negative ones that are given back. Returns those that the
    /// pool's counter must be told of.
    fn count(&mut self, bytes: isize) -> isize {
        self.untold_bytes += bytes;
        let must_tell = self.untold_bytes.unsigned_abs() >= MAX_UNTOLD_BYTES;
        if must_tell { std::mem::take(&mut self.untold_bytes) } else { 0 }
    }
}

impl Shard {
    fn small(&self) -> MutexGuard<'_, SmallBuffers> {
        self.small.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a buffer of one of the sizes of the pool.
    fn take(&self, pool: &PoolInner, class: usize) -> IdleBuffer {
        let taken = CLASS_BYTES[class] as isize;
        if class >= SHARDED_CLASSES {
            pool.count(taken);
            return pool.take(class);
        }
        let mut small = self.small();
        let told = small.count(taken);
        let idle = small.idle[class].pop();
        drop(small);
        pool.count(told);
        idle.unwrap_or_else(|| pool.take(class))
    }

    /// Takes a buffer back that this shard has given.
    pub(super) fn give_back(&self, storage: Storage, start: usize) {
        let class_bytes = match &storage {
            Storage::Heap(bytes) => bytes.len() - BUFFER_ALIGNMENT_BYTES,
            Storage::Arena(bytes) => bytes.len(),
            // The memory belongs to no pool.
            Storage::Lent(_) => return,
        };
        let Some(class) = CLASS_BYTES.iter().position(|&bytes| bytes == class_bytes) else {
            return;
        };
        let (mut told, mut left) = (-(class_bytes as isize), Some((storage, start)));
        if class < SHARDED_CLASSES {
            let mut small = self.small();
            told = small.count(told);
            if small.idle[class].len() < self.most_idle[class] {
                small.idle[class].extend(left.take());
            }
        }
        if told == 0 && left.is_none() {
            return;
        }
        // Without its pool the memory is freed.
        let Some(pool) = self.pool.upgrade() else { return };
        pool.count(told);
        if let Some((storage, start)) = left {
            pool.keep(class, storage, start);
        }
    }
}

struct PoolInner {
    classes: [Mutex<Vec<IdleBuffer>>; CLASS_BYTES.len()],
    /// Bytes of the idle buffers that are in no shard.
    idle_bytes: AtomicUsize,
    max_idle_bytes: usize,
    /// Bytes in use, without those that the shards have not told of. Negative for a moment
    /// where a thread tells of bytes that it gave back before another one has told that they
    /// were taken: neither holds the shard's lock any more.
    in_use_bytes: AtomicIsize,
    arena: Option<Arena>,
    /// Rest of the arena that has not been cut into buffers yet.
    uncut: Mutex<&'static mut [u8]>,
    shards: Box<[Arc<Shard>]>,
}

impl PoolInner {
    /// Counts bytes that are taken, negative ones that are given back.
    fn count(&self, bytes: isize) {
        if bytes != 0 {
            self.in_use_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Takes an idle buffer, or makes one.
    fn take(&self, class: usize) -> IdleBuffer {
        let class_bytes = CLASS_BYTES[class];
        let idle = self.classes[class].lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(buffer) = idle {
            self.idle_bytes.fetch_sub(class_bytes, Ordering::Relaxed);
            return buffer;
        }
        let of_arena = self.cut(class_bytes).or_else(|| self.find_in_shards(class));
        of_arena.unwrap_or_else(|| allocate(class_bytes))
    }

    /// Cuts a buffer out of the arena.
    fn cut(&self, class_bytes: usize) -> Option<IdleBuffer> {
        self.arena?;
        let mut uncut = self.uncut.lock().unwrap_or_else(PoisonError::into_inner);
        if uncut.len() < class_bytes {
            return None;
        }
        let (piece, rest) = std::mem::take(&mut *uncut).split_at_mut(class_bytes);
        *uncut = rest;
        Some((Storage::Arena(piece), 0))
    }

    /// Takes an idle buffer of the arena from any shard: other memory is copied into it, or
    /// registered with the device, for each transfer.
    fn find_in_shards(&self, class: usize) -> Option<IdleBuffer> {
        self.arena?;
        self.shards.iter().filter(|_| class < SHARDED_CLASSES).find_map(|shard| {
            let mut small = shard.small();
            let idle = &mut small.idle[class];
            let at = idle.iter().rposition(|(storage, _)| matches!(storage, Storage::Arena(_)))?;
            Some(idle.swap_remove(at))
        })
    }

    /// Keeps an idle buffer, if there is room for it.
    fn keep(&self, class: usize, storage: Storage, start: usize) {
        let class_bytes = CLASS_BYTES[class];
        let stays = matches!(storage, Storage::Arena(_));
        let idle_bytes = self.idle_bytes.load(Ordering::Relaxed);
        if !stays && idle_bytes + class_bytes > self.max_idle_bytes {
            return;
        }
        self.idle_bytes.fetch_add(class_bytes, Ordering::Relaxed);
        self.classes[class].lock().unwrap_or_else(PoisonError::into_inner).push((storage, start));
    }
}

/// A pool of page-aligned buffers in six sizes from 4 KiB to 4 MiB. Cloning
/// shares the pool. Taking a buffer never waits and never fails; the admission
/// of requests bounds the memory that a peer may hold.
#[derive(Clone)]
pub struct BufferPool {
    inner: Arc<PoolInner>,
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufferPool({} bytes in use)", self.in_use_bytes())
    }
}

impl BufferPool {
    /// Most bytes by which [`Self::about_in_use_bytes`] is too large or too small: what all
    /// shards of the threads may not have told of. What threads are telling of at this moment
    /// comes to it.
    pub const MAX_ERROR_BYTES: usize = MAX_UNTOLD_BYTES * THREAD_SHARDS;

    /// Creates a pool that keeps at most `max_idle_bytes` of unused buffers.
    #[must_use]
    pub fn new(max_idle_bytes: usize) -> Self {
        Self::build(max_idle_bytes, None, Default::default())
    }

    /// Creates a pool that cuts its buffers out of an arena while any of it is
    /// left, and then behaves as [`BufferPool::new`].
    #[must_use]
    pub fn with_arena(max_idle_bytes: usize, memory: &'static mut [u8]) -> Self {
        let start = memory.as_ptr().align_offset(BUFFER_ALIGNMENT_BYTES).min(memory.len());
        let uncut = &mut memory[start..];
        let arena = Arena { address: uncut.as_ptr() as usize, len: uncut.len() };
        Self::build(max_idle_bytes, Some(arena), uncut)
    }

    fn build(max_idle_bytes: usize, arena: Option<Arena>, uncut: &'static mut [u8]) -> Self {
        let most_idle: [usize; SHARDED_CLASSES] = std::array::from_fn(|class| {
            let part = max_idle_bytes / SHARDED_PART / THREAD_SHARDS;
            (part / CLASS_BYTES[class]).min(MAX_IDLE_IN_SHARD)
        });
        let in_shard = most_idle.iter().zip(CLASS_BYTES).map(|(most, bytes)| most * bytes);
        let in_shards = in_shard.sum::<usize>() * THREAD_SHARDS;
        let shard = |pool: &Weak<PoolInner>| {
            Arc::new(Shard { small: Mutex::default(), most_idle, pool: Weak::clone(pool) })
        };
        let inner = Arc::new_cyclic(|pool| PoolInner {
            classes: Default::default(),
            idle_bytes: AtomicUsize::new(0),
            max_idle_bytes: max_idle_bytes - in_shards,
            in_use_bytes: AtomicIsize::new(0),
            arena,
            uncut: Mutex::new(uncut),
            shards: (0..THREAD_SHARDS).map(|_| shard(pool)).collect(),
        });
        Self { inner }
    }

    /// Returns the arena that buffers are cut from, if there is one.
    #[must_use]
    pub fn arena(&self) -> Option<Arena> {
        self.inner.arena
    }

    /// Takes a buffer of exactly `len` usable bytes. Its content is unspecified
    /// (zeros, or data of an earlier owner): overwrite it before sharing it.
    #[must_use]
    pub fn take(&self, len: usize) -> AlignedBuf {
        let Some(class) = CLASS_BYTES.iter().position(|&bytes| bytes >= len) else {
            return AlignedBuf::zeroed(len);
        };
        let shard = &self.inner.shards[thread_shard()];
        let (storage, start) = shard.take(&self.inner, class);
        AlignedBuf { storage, start, len, home: Some(Arc::clone(shard)) }
    }

    /// Frees unused buffers, except those of the arena.
    pub fn free_idle(&self) {
        for (class, bytes) in self.inner.classes.iter().zip(CLASS_BYTES) {
            let mut idle = class.lock().unwrap_or_else(PoisonError::into_inner);
            let before = idle.len();
            idle.retain(|(storage, _)| matches!(storage, Storage::Arena(_)));
            let freed = (before - idle.len()) * bytes;
            self.inner.idle_bytes.fetch_sub(freed, Ordering::Relaxed);
        }
        for shard in self.inner.shards.iter() {
            let mut small = shard.small();
            for idle in &mut small.idle {
                idle.retain(|(storage, _)| matches!(storage, Storage::Arena(_)));
            }
        }
    }

    /// Returns the bytes of pool buffers in use now. It takes the locks of all shards, one after
    /// the other; each request may ask [`Self::about_in_use_bytes`].
    #[must_use]
    pub fn in_use_bytes(&self) -> usize {
        let told = self.inner.in_use_bytes.load(Ordering::Relaxed);
        let untold = self.inner.shards.iter().map(|shard| shard.small().untold_bytes);
        usize::try_from(told + untold.sum::<isize>()).unwrap_or(0)
    }

    /// Returns the bytes of pool buffers in use now, more or less [`Self::MAX_ERROR_BYTES`].
    #[must_use]
    pub fn about_in_use_bytes(&self) -> usize {
        usize::try_from(self.inner.in_use_bytes.load(Ordering::Relaxed)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `work` on a thread of another shard than this thread's.
    fn elsewhere<T: Send + 'static>(work: impl Fn() -> T + Clone + Send + 'static) -> T {
        let here = thread_shard();
        let run = || {
            let work = work.clone();
            std::thread::spawn(move || (thread_shard() != here).then(work)).join().unwrap()
        };
        std::iter::repeat_with(run).flatten().next().unwrap()
    }

    #[test]
    fn buffers_are_aligned_and_reused() {
        let pool = BufferPool::new(1 << 20);
        let first = pool.take(5000);
        assert_eq!(first.len(), 5000);
        assert_eq!(first.as_ptr() as usize % BUFFER_ALIGNMENT_BYTES, 0);
        let address = first.as_ptr();
        assert_eq!(pool.in_use_bytes(), 16 << 10);
        drop(first.into_bytes());
        assert_eq!(pool.in_use_bytes(), 0);
        assert_eq!(pool.take(16 << 10).as_ptr(), address);
    }

    #[test]
    fn idle_memory_is_bounded() {
        let pool = BufferPool::new(8 << 10);
        let many: Vec<_> = (0..10).map(|_| pool.take(4096)).collect();
        drop(many);
        assert!(pool.inner.idle_bytes.load(Ordering::Relaxed) <= 8 << 10);
    }

    #[test]
    fn unused_buffers_are_freed_and_counted() {
        let pool = BufferPool::new(1 << 20);
        let held = pool.take(4096);
        drop([pool.take(4096), pool.take(65536)]);
        assert!(pool.inner.idle_bytes.load(Ordering::Relaxed) > 0);
        pool.free_idle();
        assert_eq!(pool.inner.idle_bytes.load(Ordering::Relaxed), 0);
        assert_eq!(pool.in_use_bytes(), 4096);
        drop(held);
    }

    #[test]
    fn an_arena_is_cut_up_once_and_used_for_ever() {
        let pool = BufferPool::with_arena(0, vec![0; 44 << 10].leak());
        let arena = pool.arena().unwrap();
        let first = pool.take(10_000);
        let second = pool.take(16 << 10);
        assert!(arena.contains(&first) && arena.contains(&second));
        assert_eq!(second.as_ptr() as usize % BUFFER_ALIGNMENT_BYTES, 0);
        let heap = pool.take(16 << 10);
        assert!(!arena.contains(&heap), "less is left");
        assert!(arena.contains(&pool.take(4096)));
        let address = first.as_ptr();
        drop((first, heap));
        assert_eq!(pool.take(16 << 10).as_ptr(), address);
        assert_eq!(pool.in_use_bytes(), 16 << 10);
    }

    #[test]
    fn a_buffer_above_the_largest_class_is_plain_memory() {
        let pool = BufferPool::new(1 << 20);
        assert_eq!(pool.take(5 << 20).len(), 5 << 20);
        assert_eq!(pool.in_use_bytes(), 0);
    }

    #[test]
    fn small_buffers_come_back_to_the_threads_that_took_them() {
        let pool = BufferPool::new(16 << 20);
        let own = pool.take(4096);
        let (address, taker) = (own.as_ptr(), pool.clone());
        let other = elsewhere(move || taker.take(4096));
        std::thread::spawn(move || drop((own, other))).join().unwrap();
        assert_eq!(pool.take(4096).as_ptr(), address);
    }

    #[test]
    fn small_buffers_are_counted_and_told_of_together() {
        let pool = BufferPool::new(16 << 20);
        let taken: Vec<_> = (0..40).map(|_| pool.take(4096)).collect();
        assert_eq!(pool.in_use_bytes(), 40 * 4096);
        assert_eq!(pool.about_in_use_bytes(), 2 * MAX_UNTOLD_BYTES);
        std::thread::spawn(move || drop(taken)).join().unwrap();
        assert_eq!(pool.in_use_bytes(), 0);
        assert!(pool.about_in_use_bytes() < MAX_UNTOLD_BYTES);
    }

    #[test]
    fn bytes_given_back_may_be_told_of_before_those_taken() {
        let pool = BufferPool::new(0);
        let in_use = || (pool.in_use_bytes(), pool.about_in_use_bytes());
        // Another thread has taken them, and is about to tell.
        pool.inner.count(-(MAX_UNTOLD_BYTES as isize));
        assert_eq!(in_use(), (0, 0));
        let taken = pool.take(MAX_UNTOLD_BYTES);
        pool.inner.count(MAX_UNTOLD_BYTES as isize);
        assert_eq!(in_use(), (MAX_UNTOLD_BYTES, MAX_UNTOLD_BYTES));
        drop(taken);
        assert_eq!(in_use(), (0, 0));
    }

    #[test]
    fn what_all_shards_have_not_told_of_is_bounded() {
        let pool = BufferPool::new(16 << 20);
        let take_some = |_| {
            let pool = pool.clone();
            let take = move || [(); 15].map(|()| pool.take(4096));
            std::thread::spawn(take).join().unwrap()
        };
        let taken: Vec<_> = (0..2 * THREAD_SHARDS).flat_map(take_some).collect();
        let bytes = taken.len() * 4096;
        assert_eq!(pool.in_use_bytes(), bytes);
        assert!(bytes - pool.about_in_use_bytes() < BufferPool::MAX_ERROR_BYTES);
        drop(taken);
        assert_eq!(pool.in_use_bytes(), 0);
        assert!(pool.about_in_use_bytes() < BufferPool::MAX_ERROR_BYTES);
    }

    #[test]
    fn idle_buffers_of_an_arena_are_found_in_all_shards() {
        let pool = BufferPool::with_arena(16 << 20, vec![0; 12 << 10].leak());
        let taker = pool.clone();
        elsewhere(move || drop([(); 4].map(|()| taker.take(4096))));
        assert!(pool.arena().unwrap().contains(&pool.take(4096)));
    }

    #[test]
    fn all_idle_buffers_together_are_bounded() {
        let pool = BufferPool::new(1 << 20);
        let many = |pool: &BufferPool, len| (0..64).map(|_| pool.take(len)).collect::<Vec<_>>();
        for _ in 0..2 * THREAD_SHARDS {
            let pool = pool.clone();
            let take = move || drop((many(&pool, 4 << 10), many(&pool, 16 << 10)));
            std::thread::spawn(take).join().unwrap();
        }
        let small = |shard: &Arc<Shard>| {
            let small = shard.small();
            let idle = small.idle.iter().zip(CLASS_BYTES);
            idle.map(|(idle, bytes)| idle.len() * bytes).sum::<usize>()
        };
        let in_shards: usize = pool.inner.shards.iter().map(small).sum();
        let shared = pool.inner.idle_bytes.load(Ordering::Relaxed);
        assert!(in_shards > 0 && in_shards + shared <= 1 << 20, "{in_shards} and {shared}");
        pool.free_idle();
        assert_eq!(pool.inner.shards.iter().map(small).sum::<usize>(), 0);
    }
}
