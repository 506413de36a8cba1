//! Query to the kernel for the rights of this thread's identity on an open
//! object.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Rights to check; combine with `|`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights(libc::c_int);

impl Rights {
    /// Right to read, or to list a directory.
    pub const READ: Self = Self(libc::R_OK);
    /// Right to write, or to change a directory's entries.
    pub const WRITE: Self = Self(libc::W_OK);
    /// Right to execute, or to search a directory.
    pub const EXECUTE: Self = Self(libc::X_OK);

    /// Returns the union of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether all of `other` is included.
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

/// Succeeds when this thread's file system identity has all of `rights` on the
/// object behind `fd` (mode, ACL, read-only mount); an `O_PATH` descriptor
/// suffices.
///
/// # Errors
/// The error of faccessat2(2): `EACCES`, `EROFS`, or `ENOSYS` before Linux 5.8.
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
