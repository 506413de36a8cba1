//! System calls of the store, with its own error type.

use crate::errno::OrStoreError;
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, OwnedFd};
use zgate_store::{StoreError, StoreResult};

/// Flags that open without following links and without access rights.
pub(crate) const PATH_FLAGS: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn wanted() -> StatxFlags {
    StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::MNT_ID
}

/// Reads the attributes of an open object.
pub(crate) fn stat(fd: &OwnedFd) -> StoreResult<Statx> {
    rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, wanted()).or_store()
}

/// Reads the attributes of an entry, without following a symbolic link, but
/// crossing a mount.
pub(crate) fn stat_at(dir: &OwnedFd, name: &CStr) -> StoreResult<Statx> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    rustix::fs::statx(dir, name, flags, wanted()).or_store()
}

/// Opens an entry as `O_PATH`.
pub(crate) fn open_path(dir: &OwnedFd, name: &CStr) -> StoreResult<OwnedFd> {
    rustix::fs::openat(dir, name, PATH_FLAGS, Mode::empty()).or_store()
}

/// Opens an entry as `O_PATH`, unless a file system is mounted on it: "cross
/// device", without access to that file system. A kernel without openat2 opens it.
pub(crate) fn open_path_here(dir: &OwnedFd, name: &CStr) -> StoreResult<OwnedFd> {
    let here = ResolveFlags::NO_XDEV;
    match rustix::fs::openat2(dir, name, PATH_FLAGS, Mode::empty(), here) {
        Err(Errno::NOSYS | Errno::PERM) => open_path(dir, name),
        opened => opened.or_store(),
    }
}

/// Returns whether a directory has this entry, without access to what is mounted on it.
pub(crate) fn exists_at(dir: &OwnedFd, name: &CStr) -> bool {
    matches!(open_path_here(dir, name), Ok(_) | Err(StoreError::CrossDevice))
}

/// Returns a path to the object of `fd` for calls that follow links; it reaches
/// exactly this object even if it has no name any more.
pub(crate) fn proc_path(fd: &OwnedFd) -> CString {
    CString::new(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap_or_default()
}

/// Opens the object of an `O_PATH` descriptor with access rights.
pub(crate) fn reopen(fd: &OwnedFd, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
    rustix::fs::open(proc_path(fd).as_c_str(), flags, Mode::empty())
}

/// Returns the current path of the object according to the kernel.
pub(crate) fn path_of(fd: &OwnedFd) -> StoreResult<Vec<u8>> {
    rustix::fs::readlink(proc_path(fd).as_c_str(), Vec::new()).or_store().map(CString::into_bytes)
}

/// Returns the permission bits for a creating call.
pub(crate) fn mode_bits(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o7777)
}
