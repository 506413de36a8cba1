//! Asking the kernel what this thread's identity may do with an open object.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Rights asked about; combine with `|`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights(libc::c_int);

impl Rights {
    /// Read, or list a directory.
    pub const READ: Self = Self(libc::R_OK);
    /// Write, or change a directory's entries.
    pub const WRITE: Self = Self(libc::W_OK);
    /// Execute, or search a directory.
    pub const EXECUTE: Self = Self(libc::X_OK);

    /// Both sets together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` is included.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for Rights {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        self.and(other)
    }
}

/// Succeeds when this thread's file system identity has all of `rights` on
/// the object behind `fd` (mode, ACL, read-only mount); `O_PATH` will do.
///
/// # Errors
/// What faccessat2(2) reports: `EACCES`, `EROFS`, or `ENOSYS` before Linux 5.8.
#[allow(unsafe_code)]
pub fn check_access(fd: &OwnedFd, rights: Rights) -> io::Result<()> {
    // SAFETY: the path is a live, NUL-terminated, empty string; the call
    // changes nothing.
    let status = unsafe {
        libc::syscall(
            libc::SYS_faccessat2,
            fd.as_raw_fd(),
            c"".as_ptr(),
            rights.0,
            libc::AT_EACCESS | libc::AT_EMPTY_PATH,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
