//! Memory that is used again: whoever got it has let it go, and what was in it
//! is to be overwritten. Nothing is cleared, no page is faulted in anew.
#![allow(unsafe_code, reason = "what is in used memory is initialised, which no type says")]

use crate::huge_pages::prefer_huge_pages;
use bytes::BytesMut;

/// Keeps a stretch of memory from being freed after its last user.
#[derive(Debug)]
pub struct Anchor {
    handle: BytesMut,
    bytes: usize,
}

impl Anchor {
    /// Of all of `memory`, every byte of which is initialised.
    #[must_use]
    pub fn new(memory: &mut BytesMut) -> Self {
        let bytes = memory.len();
        Self { handle: memory.split_to(0), bytes }
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The memory again with whatever is in it, if nobody else has a part of
    /// it; the anchor otherwise.
    ///
    /// # Errors
    /// The anchor, when the memory is in use.
    pub fn take(mut self) -> Result<BytesMut, Self> {
        if !self.handle.try_reclaim(self.bytes) {
            return Err(self);
        }
        // SAFETY: the capacity is there, as just reclaimed, and begins where it
        // began: an allocation is taken back in place. All of it was
        // initialised when the anchor was made, and bytes stay so whoever
        // writes them.
        unsafe { self.handle.set_len(self.bytes) };
        Ok(self.handle)
    }
}

/// Has the kernel give `memory` its pages now, all in one call, huge ones if
/// `huge`: cheaper than a fault for each, and not while a socket is read. It is
/// advice: where the kernel cannot, faults do it later.
pub fn populate(memory: &mut [u8], huge: bool) {
    if huge {
        prefer_huge_pages(memory);
    }
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
        tracing::trace!(%error, "memory is not populated in advance");
    }
}

/// Size of a page, in bytes; of larger ones it is a divisor.
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
        for huge in [true, false] {
            let mut memory = BytesMut::from(&vec![7u8; 3 << 20][..]);
            populate(&mut memory, huge);
            assert!(memory.iter().all(|byte| *byte == 7));
            populate(&mut memory.split_to(100), huge);
        }
    }
}
