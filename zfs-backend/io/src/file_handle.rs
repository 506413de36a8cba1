//! Kernel file handles: name_to_handle_at(2) and open_by_handle_at(2).

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Longest handle the kernel issues, in bytes.
pub const MAX_KERNEL_HANDLE_BYTES: usize = 128;

/// A handle issued by the kernel, and the mount it was found in.
#[derive(Clone, Copy, Debug)]
pub struct KernelHandle {
    /// File system specific type of the handle.
    pub handle_type: i32,
    /// Mount the object was reached through (first column of mountinfo).
    pub mount_id: i32,
    len: usize,
    bytes: [u8; MAX_KERNEL_HANDLE_BYTES],
}

impl KernelHandle {
    /// Builds a handle from its parts; `None` if it is too long.
    #[must_use]
    pub fn from_parts(handle_type: i32, raw: &[u8]) -> Option<Self> {
        let mut bytes = [0; MAX_KERNEL_HANDLE_BYTES];
        bytes.get_mut(..raw.len())?.copy_from_slice(raw);
        Some(Self { handle_type, mount_id: 0, len: raw.len(), bytes })
    }

    /// Returns the opaque bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// struct file_handle with room for the longest handle.
#[repr(C)]
struct RawHandle {
    handle_bytes: u32,
    handle_type: i32,
    bytes: [u8; MAX_KERNEL_HANDLE_BYTES],
}

/// Returns the handle of `name` in `dir`, or of `dir` itself if `name` is
/// empty. A symbolic link is not followed; a mount is crossed.
///
/// # Errors
/// The error of name_to_handle_at(2); `EOPNOTSUPP` if the file system has no
/// handles.
#[allow(unsafe_code)]
pub fn name_to_handle(dir: &OwnedFd, name: &CStr) -> io::Result<KernelHandle> {
    let mut raw = RawHandle {
        handle_bytes: MAX_KERNEL_HANDLE_BYTES as u32,
        handle_type: 0,
        bytes: [0; MAX_KERNEL_HANDLE_BYTES],
    };
    let mut mount_id: libc::c_int = 0;
    let flags = if name.is_empty() { libc::AT_EMPTY_PATH } else { 0 };
    // SAFETY: `raw` has the layout of struct file_handle followed by
    // `handle_bytes` writable bytes; `name` is NUL-terminated; all are live.
    let status = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            dir.as_raw_fd(),
            name.as_ptr(),
            &raw mut raw,
            &raw mut mount_id,
            flags,
        )
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    let len = (raw.handle_bytes as usize).min(MAX_KERNEL_HANDLE_BYTES);
    Ok(KernelHandle { handle_type: raw.handle_type, mount_id, len, bytes: raw.bytes })
}

/// Opens the object as `O_PATH` in the file system of `mount`, which must be
/// open without `O_PATH`. Needs CAP_DAC_READ_SEARCH.
///
/// # Errors
/// `ESTALE` if the object is gone; else the error of open_by_handle_at(2).
#[allow(unsafe_code)]
pub fn open_by_handle(mount: &OwnedFd, handle: &KernelHandle) -> io::Result<OwnedFd> {
    let mut raw = RawHandle {
        handle_bytes: handle.len as u32,
        handle_type: handle.handle_type,
        bytes: handle.bytes,
    };
    // SAFETY: `raw` is a live struct file_handle with `handle_bytes` bytes.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            mount.as_raw_fd(),
            &raw mut raw,
            libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel returned a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}
