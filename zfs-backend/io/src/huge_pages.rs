//! Huge pages for memory that is filled once: one page fault for each 2 MiB
//! instead of each 4 KiB.
#![allow(unsafe_code, reason = "madvise is a system call on an address")]

/// Size and alignment of a huge page on x86-64 and arm64, in bytes.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Asks the kernel to back the whole huge pages within `memory`. This is
/// advice: if the kernel cannot, nothing changes.
pub fn prefer_huge_pages(memory: &mut [u8]) {
    let skip = memory.as_ptr().align_offset(HUGE_PAGE_BYTES);
    let Some(rest) = memory.get_mut(skip..) else { return };
    let len = rest.len() / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    if len == 0 {
        return;
    }
    // SAFETY: the range is ours, mapped and page-aligned, and MADV_HUGEPAGE
    // changes no content.
    let advised = unsafe {
        rustix::mm::madvise(rest.as_mut_ptr().cast(), len, rustix::mm::Advice::LinuxHugepage)
    };
    if let Err(error) = advised {
        tracing::trace!(%error, "the kernel gives no huge pages");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_leaves_the_content_alone() {
        let mut memory = vec![7u8; 3 * HUGE_PAGE_BYTES];
        prefer_huge_pages(&mut memory);
        assert!(memory.iter().all(|byte| *byte == 7));
        prefer_huge_pages(&mut memory[..100]);
        prefer_huge_pages(&mut []);
    }
}
