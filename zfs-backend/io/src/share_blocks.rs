//! Sharing blocks between files (FICLONERANGE).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Makes `to` share the blocks of a range of `from`; `len` 0 means to the end
/// of `from`. Atomic: all or nothing.
///
/// # Errors
/// The error of ioctl(2); `EOPNOTSUPP`, `ENOTTY` or `EXDEV` if blocks cannot be
/// shared.
#[allow(unsafe_code)]
pub fn clone_range(
    from: &OwnedFd,
    from_offset: u64,
    to: &OwnedFd,
    to_offset: u64,
    len: u64,
) -> io::Result<()> {
    let range = libc::file_clone_range {
        src_fd: i64::from(from.as_raw_fd()),
        src_offset: from_offset,
        src_length: len,
        dest_offset: to_offset,
    };
    // SAFETY: FICLONERANGE reads a struct file_clone_range, which is live.
    let status = unsafe { libc::ioctl(to.as_raw_fd(), libc::FICLONERANGE, &raw const range) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
