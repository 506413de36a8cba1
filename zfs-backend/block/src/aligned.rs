//! Alignment that O_DIRECT requires of offsets, lengths and memory. Partial
//! blocks are read, changed and written back.

use crate::backing::Backing;
use crate::errno::uninterrupted;
use crate::span::Span;
use bytes::Bytes;
use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev2};
use std::io::{self, IoSlice, IoSliceMut};
use zgate_io::WriteSync;
use zgate_store::buffer::BUFFER_ALIGNMENT_BYTES;

/// Alignment that O_DIRECT requires, in bytes; both values are powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alignment {
    /// Alignment of offsets and lengths.
    pub(crate) offset_bytes: u32,
    /// Alignment of memory; at most that of every buffer.
    pub(crate) memory_bytes: u32,
}

impl Alignment {
    /// Returns the alignment, if buffers can satisfy it.
    pub(crate) fn new(offset_bytes: u32, memory_bytes: u32) -> Option<Self> {
        let usable = offset_bytes.is_power_of_two()
            && memory_bytes.is_power_of_two()
            && memory_bytes as usize <= BUFFER_ALIGNMENT_BYTES;
        usable.then_some(Self { offset_bytes, memory_bytes })
    }

    /// Returns whether the memory may be passed to the device.
    pub(crate) fn suits(self, data: &[u8]) -> bool {
        (data.as_ptr() as usize).is_multiple_of(self.memory_bytes as usize)
    }
}

/// Writes `data`, whose ends may lie inside blocks; the caller has the lock on them. Blocks the
/// thread, and once begun runs to the end: a request abandoned half way must not leave an old
/// copy of neighbouring bytes to be written to the disk.
pub(crate) fn write_parts_of_blocks(
    backing: &Backing,
    alignment: Alignment,
    offset: u64,
    data: &[u8],
    sync: WriteSync,
) -> io::Result<()> {
    let block = u64::from(alignment.offset_bytes);
    let block_len = alignment.offset_bytes as usize;
    let wide = Span { offset, len: data.len() as u64 }.widened(block);
    let last_block = wide.end() - block;
    let wide_len = usize::try_from(wide.len).map_err(|_| Errno::INVAL)?;
    let mut buf = backing.pool.take(wide_len);
    let before = (offset - wide.offset) as usize;
    if before > 0 || wide_len == block_len {
        read_exactly(backing, wide.offset, &mut buf[..block_len])?;
    }
    if before + data.len() < wide_len && wide_len > block_len {
        read_exactly(backing, last_block, &mut buf[wide_len - block_len..])?;
    }
    buf[before..before + data.len()].copy_from_slice(data);
    write_exactly(backing, wide.offset, &buf, sync)
}

fn read_exactly(backing: &Backing, offset: u64, buf: &mut [u8]) -> io::Result<()> {
    let count = uninterrupted(|| {
        preadv2(&backing.fd, &mut [IoSliceMut::new(buf)], offset, ReadWriteFlags::empty())
    })?;
    if count == buf.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn write_exactly(backing: &Backing, offset: u64, buf: &[u8], sync: WriteSync) -> io::Result<()> {
    let flags = match sync {
        WriteSync::None => ReadWriteFlags::empty(),
        WriteSync::Data => ReadWriteFlags::DSYNC,
        WriteSync::Full => ReadWriteFlags::SYNC,
    };
    let mut done = 0;
    let mut asked = flags;
    while done < buf.len() {
        let rest = [IoSlice::new(&buf[done..])];
        match pwritev2(&backing.fd, &rest, offset + done as u64, asked) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            // The file system has no per-write sync flag: sync at the end.
            Err(Errno::OPNOTSUPP) if !asked.is_empty() => asked = ReadWriteFlags::empty(),
            Err(errno) => return Err(errno.into()),
        }
    }
    if asked != flags {
        rustix::fs::fdatasync(&backing.fd)?;
    }
    Ok(())
}

/// Copies the bytes into memory that the device can read, if they are not in
/// such memory already.
pub(crate) fn in_suitable_memory(backing: &Backing, alignment: Alignment, data: Bytes) -> Bytes {
    if alignment.suits(&data) {
        return data;
    }
    let mut buf = backing.pool.take(data.len());
    buf.copy_from_slice(&data);
    buf.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_demands_are_refused() {
        assert!(Alignment::new(512, 4).is_some());
        assert!(Alignment::new(0, 4).is_none());
        assert!(Alignment::new(512, 0).is_none());
        assert!(Alignment::new(4096, 8192).is_none());
        assert!(Alignment::new(1000, 4).is_none());
    }
}
