//! Memory for an arena that RDMA devices register: huge pages, so that a device
//! needs few entries for it, and pinning a buffer of it touches few pages.

use crate::huge_pages::{HUGE_PAGE_BYTES, prefer_huge_pages};
use std::fmt;

/// Kind of pages that an arena consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Huge pages reserved by the administrator (vm.nr_hugepages).
    Reserved,
    /// Huge pages where the kernel finds some, small ones elsewhere.
    Transparent,
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reserved => "reserved huge pages",
            Self::Transparent => "transparent huge pages",
        })
    }
}

/// Allocates zeroed memory that is never freed: `bytes`, rounded up to whole
/// huge pages. Reserved huge pages are used if they suffice for all of it.
#[must_use]
pub fn allocate(bytes: usize) -> (&'static mut [u8], Pages) {
    let len = bytes.div_ceil(HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES;
    if let Some(memory) = reserved(len) {
        return (memory, Pages::Reserved);
    }
    let all = vec![0; len + HUGE_PAGE_BYTES].leak();
    let start = all.as_ptr().align_offset(HUGE_PAGE_BYTES).min(HUGE_PAGE_BYTES);
    let memory = &mut all[start..start + len];
    // Before the first write: memory with small pages keeps them for now.
    prefer_huge_pages(memory);
    (memory, Pages::Transparent)
}

#[allow(unsafe_code)]
fn reserved(len: usize) -> Option<&'static mut [u8]> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
    let flags = MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_2MB;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice; with this flag
    // the kernel sets all pages aside now or fails.
    let address = unsafe { mmap_anonymous(std::ptr::null_mut(), len, protection, flags) }.ok()?;
    // SAFETY: the mapping is ours. A child process does not get it: copying on
    // write would need huge pages that nobody has set aside.
    if let Err(error) = unsafe { madvise(address, len, Advice::LinuxDontFork) } {
        tracing::debug!(%error, "the arena is not excluded from child processes");
    }
    // SAFETY: mapped for reading and writing, zeroed, of this length, nobody
    // else's, and never unmapped.
    Some(unsafe { std::slice::from_raw_parts_mut(address.cast(), len) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_huge_pages_of_zeros() {
        let (memory, pages) = allocate(HUGE_PAGE_BYTES + 1);
        assert_eq!(memory.len(), 2 * HUGE_PAGE_BYTES);
        assert_eq!(memory.as_ptr().align_offset(HUGE_PAGE_BYTES), 0);
        assert!(memory.iter().all(|byte| *byte == 0));
        memory.fill(1);
        assert!(pages.to_string().ends_with("huge pages"));
    }
}
