//! Reuse of memory after its last user has dropped it. Its old content is to be
//! overwritten: nothing is cleared, and no page is faulted in again.
#![allow(unsafe_code, reason = "reused memory is initialised, which no type expresses")]

use bytes::BytesMut;

/// Keeps memory from being freed after its last user.
#[derive(Debug)]
pub struct Anchor {
    handle: BytesMut,
    bytes: usize,
}

impl Anchor {
    /// Anchors all of `memory`, every byte of which is initialised.
    #[must_use]
    pub fn new(memory: &mut BytesMut) -> Self {
        let bytes = memory.len();
        Self { handle: memory.split_to(0), bytes }
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Takes the memory back with its present content, if no other reference to
    /// it is left; else returns the anchor.
    ///
    /// # Errors
    /// The anchor, if the memory is in use.
    pub fn take(mut self) -> Result<BytesMut, Self> {
        if !self.handle.try_reclaim(self.bytes) {
            return Err(self);
        }
        // SAFETY: the capacity is there, as just reclaimed, and begins where it
        // began: an allocation is reclaimed in place. All of it was initialised
        // when the anchor was made, and initialised bytes stay initialised.
        unsafe { self.handle.set_len(self.bytes) };
        Ok(self.handle)
    }
}

/// Has the kernel allocate the pages of `memory` now, in one call: cheaper than
/// a fault for each page while a socket is read. Threads can do so concurrently.
/// This is advice: if the kernel cannot, faults do it later.
pub fn populate(memory: &mut [u8]) {
    let skip = memory.as_ptr().align_offset(PAGE_BYTES);
    let Some(rest) = memory.get_mut(skip..) else { return };
    let len = rest.len() / PAGE_BYTES * PAGE_BYTES;
    if len == 0 {
        return;
    }
    // SAFETY: the range is ours, mapped and page-aligned; populating changes no
    // content.
    let populated = unsafe {
        rustix::mm::madvise(rest.as_mut_ptr().cast(), len, rustix::mm::Advice::LinuxPopulateWrite)
    };
    if let Err(error) = populated {
        tracing::trace!(%error, "memory cannot be populated in advance");
    }
}

/// Size of a page in bytes; larger page sizes are multiples of it.
const PAGE_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_when_its_last_user_is_gone() {
        let mut memory = BytesMut::zeroed(10_000).split_off(96);
        let address = memory.as_ptr();
        let anchor = Anchor::new(&mut memory);
        memory.fill(7);
        let half = memory.split_off(5000);
        drop(memory);
        let anchor = anchor.take().unwrap_err();
        drop(half);
        let again = anchor.take().unwrap();
        assert_eq!((again.as_ptr(), again.len()), (address, 9904));
        assert!(again.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn populating_leaves_the_content_alone() {
        let mut memory = BytesMut::from(&vec![7u8; 3 << 20][..]);
        populate(&mut memory);
        assert!(memory.iter().all(|byte| *byte == 7));
        populate(&mut memory.split_to(100));
    }
}
