//! Page-aligned buffers that carry file data between storage and wire.
//!
//! A buffer belongs to one owner at a time; [`Payload`] shares it read-only by
//! reference count, so that a reply can be sent while the reply cache or a
//! second transport still holds it.

mod pool;

pub use pool::BufferPool;

use bytes::{Bytes, BytesMut};
use pool::Shard;
use std::any::Any;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Alignment of every buffer, in bytes; O_DIRECT needs it.
pub const BUFFER_ALIGNMENT_BYTES: usize = 4096;

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
    home: Option<Arc<Shard>>,
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
}
