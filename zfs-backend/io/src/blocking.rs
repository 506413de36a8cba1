//! Reads, writes and syncs that wait for the disk, on the calling thread.

use crate::write_method::WriteSync;
use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev2};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use zgate_store::AlignedBuf;

/// Reads until the buffer is full or the file ends. A count that is not a
/// multiple of `whole_bytes` marks the end.
///
/// # Errors
/// That of preadv2(2), also behind bytes that were read: a short count would be taken
/// for the end of the file.
pub(crate) fn read_blocking(
    fd: &OwnedFd,
    offset: u64,
    buf: &mut AlignedBuf,
    (mut filled, whole_bytes): (usize, usize),
) -> io::Result<usize> {
    while filled < buf.len() && filled.is_multiple_of(whole_bytes) {
        let at = offset.saturating_add(filled as u64);
        match preadv2(fd, &mut [IoSliceMut::new(&mut buf[filled..])], at, ReadWriteFlags::empty()) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(filled)
}

/// Writes `data` from `done` on; returns the number of bytes written of all of
/// it.
pub(crate) fn write_blocking(
    fd: &OwnedFd,
    offset: u64,
    data: &[u8],
    mut done: usize,
    sync: WriteSync,
) -> io::Result<usize> {
    let mut flags = sync.flags();
    while done < data.len() {
        let at = offset.saturating_add(done as u64);
        match pwritev2(fd, &[IoSlice::new(&data[done..])], at, flags) {
            Ok(0) if done > 0 => break,
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            // The file system does not support per-write syncing: sync at the
            // end.
            Err(Errno::OPNOTSUPP) if !flags.is_empty() => flags = ReadWriteFlags::empty(),
            Err(_) if done > 0 => break,
            Err(errno) => return Err(errno.into()),
        }
    }
    if flags != sync.flags() {
        sync_blocking(fd, sync == WriteSync::Data)?;
    }
    Ok(done)
}

/// Brings a file to stable storage.
pub(crate) fn sync_blocking(fd: &OwnedFd, data_only: bool) -> io::Result<()> {
    if data_only {
        rustix::fs::fdatasync(fd)?;
    } else {
        rustix::fs::fsync(fd)?;
    }
    Ok(())
}
