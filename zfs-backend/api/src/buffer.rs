//! Page-aligned buffers that carry file data between storage and wire.
//!
//! A buffer belongs to one owner at a time; [`Payload`] shares it read-only by
//! reference count, so that a reply can be sent while the reply cache or a
//! second transport still holds it.

use bytes::{Bytes, BytesMut};
use std::any::Any;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Alignment of every buffer, in bytes; O_DIRECT needs it.
pub const BUFFER_ALIGNMENT_BYTES: usize = 4096;

/// The buffer sizes kept in a pool, in bytes, smallest first.
const CLASS_BYTES: [usize; 6] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];

/// Owner of a buffer's bytes.
enum Storage {
    /// Memory of the buffer itself.
    Heap(Vec<u8>),
    /// A piece of an [`Arena`].
    Arena(&'static mut [u8]),
    /// Memory lent by a caller of [`AlignedBuf::lent`].
    Lent(BytesMut),
}

impl Storage {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Arena(bytes) => bytes,
            Self::Lent(bytes) => bytes,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Arena(bytes) => bytes,
            Self::Lent(bytes) => bytes,
        }
    }
}

impl Default for Storage {
    fn default() -> Self {
        Self::Heap(Vec::new())
    }
}

/// A range of memory that is never returned to the system, so that it can be
/// registered with a device once for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arena {
    address: usize,
    len: usize,
}

impl Arena {
    /// Returns the address of the first byte, a multiple of
    /// [`BUFFER_ALIGNMENT_BYTES`].
    #[must_use]
    pub fn address(&self) -> usize {
        self.address
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the arena has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether all these bytes lie in the arena.
    #[must_use]
    pub fn contains(&self, bytes: &[u8]) -> bool {
        let start = bytes.as_ptr() as usize;
        start >= self.address && start - self.address + bytes.len() <= self.len
    }
}

/// An owned, page-aligned buffer. Returns to its pool when dropped.
pub struct AlignedBuf {
    storage: Storage,
    start: usize,
    len: usize,
    home: Option<Arc<PoolInner>>,
}

impl AlignedBuf {
    /// Allocates a zeroed buffer outside any pool.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let (storage, start) = allocate(len);
        Self { storage, start, len, home: None }
    }

    /// Wraps memory of the caller, aligned as it is, for handing to a device.
    /// [`AlignedBuf::into_lent`] returns it.
    #[must_use]
    pub fn lent(memory: BytesMut) -> Self {
        let len = memory.len();
        Self { storage: Storage::Lent(memory), start: 0, len, home: None }
    }

    /// Returns the memory that [`AlignedBuf::lent`] was called with.
    ///
    /// # Errors
    /// The buffer itself, if it was not made by [`AlignedBuf::lent`].
    pub fn into_lent(mut self) -> Result<BytesMut, Self> {
        match std::mem::take(&mut self.storage) {
            Storage::Lent(memory) => Ok(memory),
            other => {
                self.storage = other;
                Err(self)
            }
        }
    }

    /// Returns the usable length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the usable length is zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Shortens the usable length.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Freezes the buffer into shareable bytes; no copy is made.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.storage.bytes()[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.storage.bytes_mut()[self.start..self.start + self.len]
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            home.give_back(std::mem::take(&mut self.storage), self.start);
        }
    }
}

fn allocate(len: usize) -> (Storage, usize) {
    let storage = vec![0; len + BUFFER_ALIGNMENT_BYTES];
    let start = storage.as_ptr().align_offset(BUFFER_ALIGNMENT_BYTES);
    (Storage::Heap(storage), start)
}

/// One size class: the idle buffers as (storage, aligned start).
type Idle = Mutex<Vec<(Storage, usize)>>;

struct PoolInner {
    classes: [Idle; CLASS_BYTES.len()],
    idle_bytes: AtomicUsize,
    max_idle_bytes: usize,
    in_use_bytes: AtomicUsize,
    arena: Option<Arena>,
    /// Rest of the arena that has not been cut into buffers yet.
    uncut: Mutex<&'static mut [u8]>,
}

impl PoolInner {
    /// Cuts a buffer out of the arena.
    fn cut(&self, class_bytes: usize) -> Option<(Storage, usize)> {
        self.arena?;
        let mut uncut = self.uncut.lock().unwrap_or_else(PoisonError::into_inner);
        if uncut.len() < class_bytes {
            return None;
        }
        let (piece, rest) = std::mem::take(&mut *uncut).split_at_mut(class_bytes);
        *uncut = rest;
        Some((Storage::Arena(piece), 0))
    }

    fn give_back(&self, storage: Storage, start: usize) {
        let (class_bytes, stays) = match &storage {
            Storage::Heap(bytes) => (bytes.len() - BUFFER_ALIGNMENT_BYTES, false),
            Storage::Arena(bytes) => (bytes.len(), true),
            // The memory belongs to no pool.
            Storage::Lent(_) => return,
        };
        self.in_use_bytes.fetch_sub(class_bytes, Ordering::Relaxed);
        let Some(class) = CLASS_BYTES.iter().position(|&bytes| bytes == class_bytes) else {
            return;
        };
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
        Self {
            inner: Arc::new(PoolInner {
                classes: Default::default(),
                idle_bytes: AtomicUsize::new(0),
                max_idle_bytes,
                in_use_bytes: AtomicUsize::new(0),
                arena,
                uncut: Mutex::new(uncut),
            }),
        }
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
        let class_bytes = CLASS_BYTES[class];
        let idle = self.inner.classes[class].lock().unwrap_or_else(PoisonError::into_inner).pop();
        let (storage, start) = match idle {
            Some(buffer) => {
                self.inner.idle_bytes.fetch_sub(class_bytes, Ordering::Relaxed);
                buffer
            }
            None => self.inner.cut(class_bytes).unwrap_or_else(|| allocate(class_bytes)),
        };
        self.inner.in_use_bytes.fetch_add(class_bytes, Ordering::Relaxed);
        AlignedBuf { storage, start, len, home: Some(Arc::clone(&self.inner)) }
    }

    /// Returns the bytes of pool buffers in use now.
    #[must_use]
    pub fn in_use_bytes(&self) -> usize {
        self.inner.in_use_bytes.load(Ordering::Relaxed)
    }
}

/// Length in bytes from which passing a span to the transport is cheaper than a
/// copy, if the bytes are in memory.
pub const MIN_SPAN_BYTES: usize = 64 << 10;

/// A range of an open file whose bytes are believed to be in the page cache, or
/// of a pipe that holds them. The gateway passes it to `sendfile` or `splice`,
/// so that the data goes to the wire without a copy in zgate. A pipe can be sent
/// once, from its first byte on: a reply that is kept for retries has no span.
#[derive(Clone)]
pub struct FileSpan {
    /// Keeps the file open; the gateway downcasts it to
    /// [`std::os::fd::OwnedFd`], or to a filled pipe of the io engine.
    pub file: Arc<dyn Any + Send + Sync>,
    /// First byte in the file or the pipe.
    pub offset: u64,
    /// Length in bytes.
    pub len: usize,
}

impl fmt::Debug for FileSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileSpan({}+{})", self.offset, self.len)
    }
}

/// Bulk data to be sent.
#[derive(Clone, Debug)]
pub enum Payload {
    /// Bytes in memory, usually a pool buffer.
    Bytes(Bytes),
    /// A range of a file, for transports that can send it directly.
    Span(FileSpan),
}

impl Payload {
    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Span(span) => span.len,
        }
    }

    /// Returns whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lent_comes_back_as_it_is() {
        let mut memory = BytesMut::from(&b"0123456789"[..]).split_off(3);
        let address = memory.as_ptr();
        memory[0] = b'x';
        let mut buffer = AlignedBuf::lent(memory);
        buffer[1] = b'y';
        let memory = buffer.into_lent().unwrap();
        assert_eq!((&memory[..], memory.as_ptr()), (&b"xy56789"[..], address));
        assert!(AlignedBuf::zeroed(10).into_lent().is_err());
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
}
