//! Huge pages for memory that is filled once: one page fault for each 2 MiB
//! instead of each 4 KiB.
#![allow(unsafe_code, reason = "madvise is a system call on an address")]

use rustix::mm::Advice;

/// Size and alignment of a huge page on x86-64 and arm64, in bytes.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Asks the kernel to back the whole huge pages within `memory`. This is
/// advice: if the kernel cannot, nothing changes.
///
/// The call excludes all faults and populations of the process while it lasts,
/// and waits for those that run: once for a large range, rather than often.
pub fn prefer_huge_pages(memory: &mut [u8]) {
    advise(memory, Advice::LinuxHugepage);
}

/// Asks the kernel for small pages within `memory`, at the same cost as
/// [`prefer_huge_pages`]. Advice as well.
pub fn prefer_small_pages(memory: &mut [u8]) {
    advise(memory, Advice::LinuxNoHugepage);
}

fn advise(memory: &mut [u8], advice: Advice) {
    let skip = memory.as_ptr().align_offset(HUGE_PAGE_BYTES);
    let Some(rest) = memory.get_mut(skip..) else { return };
    let len = rest.len() / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    if len == 0 {
        return;
    }
    // SAFETY: the range is ours, mapped and page-aligned, and these kinds of
    // advice change no content.
    let advised = unsafe { rustix::mm::madvise(rest.as_mut_ptr().cast(), len, advice) };
    if let Err(error) = advised {
        tracing::trace!(%error, "the kernel takes no advice on the size of pages");
    }
}

/// Allows huge pages in this process where it asks for them. An allocator may
/// have switched them off for the whole process to keep its own memory small
/// (mimalloc's `no_thp`); then [`prefer_huge_pages`] would be without effect.
/// Advice as well.
pub fn allow_huge_pages() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(false) {
        tracing::trace!(%error, "huge pages stay switched off");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_leaves_the_content_alone() {
        let mut memory = vec![7u8; 3 * HUGE_PAGE_BYTES];
        prefer_huge_pages(&mut memory);
        prefer_small_pages(&mut memory);
        assert!(memory.iter().all(|byte| *byte == 7));
        prefer_huge_pages(&mut memory[..100]);
        prefer_huge_pages(&mut []);
    }

    #[test]
    fn what_an_allocator_has_switched_off_is_switched_on() {
        let is_off = || rustix::thread::transparent_huge_pages_are_disabled();
        rustix::thread::disable_transparent_huge_pages(true).unwrap();
        assert!(is_off().unwrap());
        allow_huge_pages();
        assert!(!is_off().unwrap());
    }
}
