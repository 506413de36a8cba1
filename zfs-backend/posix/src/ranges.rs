//! Operations on ranges of open files: space, holes, copies, hints. They may
//! take long and run on data workers.

use crate::data;
use crate::errno::{OrStoreError, store_error};
use crate::file_systems::WaitsFor;
use crate::open_file::PosixFile;
use crate::syscall;
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use rustix::io::Errno;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use zgate_io::share_blocks;
use zgate_store::file_store::{Advice, SeekWhat};
use zgate_store::{StoreError, StoreResult};

/// Bytes copied at once if the kernel cannot copy by itself.
const COPY_CHUNK_BYTES: usize = 1 << 20;
/// Bytes requested from copy_file_range at once.
const KERNEL_COPY_BYTES: u64 = 1 << 30;

/// Runs a change of a range of an open file on a data worker: ALLOCATE, DEALLOCATE, COPY and
/// CLONE, the latter two from a range of `source`. Some file systems do not clear set-id bits
/// for all of them. The change is unstable, like a write, unless there is no room for that.
pub(crate) async fn change<T: Send + 'static>(
    file: &PosixFile,
    source: Option<&PosixFile>,
    work: impl FnOnce(&OwnedFd) -> StoreResult<T> + Send + 'static,
) -> StoreResult<T> {
    let (fd, set_id) = (file.writer().ok_or(StoreError::AccessDenied)?, file.set_id);
    let unstable = file.begin_unstable();
    let change = move || {
        set_id.clear(&fd).or_store()?;
        set_id.during(&fd, || work(&fd)).or_store()?
    };
    let own = &file.entry.mount.engine;
    // Between two pools it may wait for either of them.
    let both = source.map(|source| own.between(&source.entry.mount.engine));
    let result = both.as_ref().unwrap_or(own).run_long(change).await;
    let result = result.or_store().and_then(|changed| changed);
    file.entry.mark_modified();
    if let Err(StoreError::Io) = result {
        // Write-back of the range, which may precede the operation, may
        // have failed.
        file.losses().count(StoreError::Io);
    }
    let must_sync = unstable.is_none();
    drop(unstable);
    if must_sync && result.is_ok() {
        data::commit(file).await?;
    }
    result
}

/// Reserves space.
pub(crate) fn allocate(fd: &OwnedFd, offset: u64, len: u64) -> StoreResult<()> {
    fallocate(fd, FallocateFlags::empty(), offset, len)
}

/// Punches a hole.
pub(crate) fn deallocate(fd: &OwnedFd, offset: u64, len: u64) -> StoreResult<()> {
    let size = rustix::fs::fstat(fd).or_store()?.st_size.max(0) as u64;
    // Beyond the end there is nothing to punch, however long the range.
    let len = len.min(size.saturating_sub(offset));
    if len == 0 {
        return Ok(());
    }
    fallocate(fd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len)
}

fn fallocate(fd: &OwnedFd, flags: FallocateFlags, offset: u64, len: u64) -> StoreResult<()> {
    if len == 0 {
        return Ok(());
    }
    if offset.checked_add(len).is_none_or(|end| end > i64::MAX as u64) {
        return Err(StoreError::TooLarge);
    }
    loop {
        match rustix::fs::fallocate(fd, flags, offset, len) {
            Err(Errno::INTR) => {}
            result => return result.or_store(),
        }
    }
}

/// Finds data or a hole, on a data worker.
pub(crate) async fn seek(file: &PosixFile, offset: u64, what: SeekWhat) -> StoreResult<u64> {
    let fd = file.reader().ok_or(StoreError::AccessDenied)?;
    let mount = &file.entry.mount;
    // Where this may wait for the file system, reads must not wait for the position of their
    // descriptor: they ask for the size by it, on a core's thread.
    let is_apart = mount.traits.waits_for == WaitsFor::Lock;
    let seek = move || {
        let own = if is_apart { syscall::reopen(&fd, OFlags::RDONLY).ok() } else { None };
        seek_by(own.as_ref().unwrap_or(&fd), offset, what)
    };
    mount.engine.run_long(seek).await.or_store()?
}

fn seek_by(fd: &OwnedFd, offset: u64, what: SeekWhat) -> StoreResult<u64> {
    if offset > i64::MAX as u64 {
        return Err(StoreError::BeyondEnd);
    }
    let from = match what {
        SeekWhat::Data => SeekFrom::Data(offset),
        SeekWhat::Hole => SeekFrom::Hole(offset),
    };
    rustix::fs::seek(fd, from).map_err(|errno| match errno {
        Errno::NXIO => StoreError::BeyondEnd,
        other => store_error(other),
    })
}

/// Copies a range; short at the source's end.
pub(crate) fn copy(
    from: &OwnedFd,
    from_offset: u64,
    to: &OwnedFd,
    to_offset: u64,
    len: u64,
) -> StoreResult<u64> {
    let limit = i64::MAX as u64;
    if from_offset > limit || to_offset.checked_add(len).is_none_or(|end| end > limit) {
        return Err(StoreError::TooLarge);
    }
    let size = rustix::fs::fstat(from).or_store()?.st_size.max(0) as u64;
    let len = len.min(size.saturating_sub(from_offset));
    if overlaps(from, from_offset, to, to_offset, len)? {
        return Err(StoreError::Invalid);
    }
    let mut done = 0;
    while done < len {
        let (mut source, mut target) = (from_offset + done, to_offset + done);
        let want = (len - done).min(KERNEL_COPY_BYTES) as usize;
        match rustix::fs::copy_file_range(from, Some(&mut source), to, Some(&mut target), want) {
            Ok(0) => break,
            Ok(count) => done += count as u64,
            Err(Errno::INTR) => {}
            Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                return copy_through_memory(from, to, from_offset, to_offset, done, len);
            }
            Err(_) if done > 0 => break,
            Err(errno) => return Err(store_error(errno)),
        }
    }
    Ok(done)
}

fn overlaps(from: &OwnedFd, a: u64, to: &OwnedFd, b: u64, len: u64) -> StoreResult<bool> {
    if a.abs_diff(b) >= len {
        return Ok(false);
    }
    let (one, other) = (rustix::fs::fstat(from).or_store()?, rustix::fs::fstat(to).or_store()?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

fn copy_through_memory(
    from: &OwnedFd,
    to: &OwnedFd,
    from_offset: u64,
    to_offset: u64,
    mut done: u64,
    len: u64,
) -> StoreResult<u64> {
    let mut chunk = vec![0; COPY_CHUNK_BYTES.min(usize::try_from(len).unwrap_or(COPY_CHUNK_BYTES))];
    while done < len {
        let want = usize::try_from(len - done).unwrap_or(chunk.len()).min(chunk.len());
        let outcome = rustix::io::pread(from, &mut chunk[..want], from_offset + done)
            .and_then(|read| rustix::io::pwrite(to, &chunk[..read], to_offset + done));
        match outcome {
            Ok(0) => break,
            Ok(count) => done += count as u64,
            Err(Errno::INTR) => {}
            Err(_) if done > 0 => break,
            Err(errno) => return Err(store_error(errno)),
        }
    }
    Ok(done)
}

/// Shares blocks.
pub(crate) fn clone(
    from: &OwnedFd,
    from_offset: u64,
    to: &OwnedFd,
    to_offset: u64,
    len: u64,
) -> StoreResult<()> {
    shared(share_blocks::clone_range(from, from_offset, to, to_offset, len))
}

/// Converts the result of FICLONERANGE. Up to 2.3.3 ZFS does not wait until the source's blocks
/// are on disk (`zfs_bclone_wait_dirty=0`): EAGAIN until they are, within seconds.
fn shared(result: io::Result<()>) -> StoreResult<()> {
    match result {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::AGAIN) => {
            Err(StoreError::OutOfResources)
        }
        other => other.or_store(),
    }
}

/// Passes an access hint to the kernel.
pub(crate) fn advise(fd: &OwnedFd, offset: u64, len: u64, advice: Advice) {
    use rustix::fs::Advice as Hint;
    let hint = match advice {
        Advice::Normal => Hint::Normal,
        Advice::Sequential => Hint::Sequential,
        Advice::Random => Hint::Random,
        Advice::WillNeed => Hint::WillNeed,
        Advice::DontNeed => Hint::DontNeed,
        Advice::NoReuse => Hint::NoReuse,
    };
    // A hint that fails is not an error.
    let _ = rustix::fs::fadvise(fd, offset, NonZeroU64::new(len), hint);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_are_not_on_disk_yet_are_waited_for() {
        let told = |errno: Errno| shared(Err(errno.into()));
        assert_eq!(told(Errno::AGAIN), Err(StoreError::OutOfResources));
        assert_eq!(told(Errno::XDEV), Err(StoreError::CrossDevice));
        assert_eq!(told(Errno::OPNOTSUPP), Err(StoreError::NotSupported));
        assert_eq!(shared(Err(io::Error::other("x"))), Err(StoreError::Io));
    }
}
