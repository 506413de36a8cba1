//! Reads and writes of file data.

use crate::direct::{DirectIo, Read};
use crate::errno::OrStoreError;
use crate::losses::loss_of_write;
use crate::open_file::PosixFile;
use bytes::Bytes;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use zgate_io::{IoEngine, WriteSync, forget_pages};
use zgate_store::file_store::{ReadData, ReadHow, Stability};
use zgate_store::{BufferPool, FileSpan, MIN_SPAN_BYTES, Payload, StoreError, StoreResult};

/// Largest offset on Linux.
const MAX_OFFSET: u64 = i64::MAX as u64;

/// Reads at most `len` bytes at `offset`.
pub(crate) async fn read(
    pool: &BufferPool,
    policy: DirectIo,
    file: &PosixFile,
    (offset, len): (u64, usize),
    how: ReadHow,
) -> StoreResult<ReadData> {
    let fd = file.reader().ok_or(StoreError::AccessDenied)?;
    let engine = &file.entry.mount.engine;
    let at_hand = file.answers_at_once();
    let size = if at_hand {
        rustix::fs::fstat(&*fd)
    } else {
        let fd = Arc::clone(&fd);
        engine.run(move || rustix::fs::fstat(&*fd)).await.or_store()?
    };
    let size = size.or_store()?.st_size.max(0) as u64;
    let left = size.saturating_sub(offset);
    let want = usize::try_from(left).unwrap_or(usize::MAX).min(len);
    if want == 0 {
        return Ok(ReadData { data: Payload::Bytes(Bytes::new()), eof: offset >= size });
    }
    let reaches_end = offset + want as u64 >= size;
    let asked = Read { offset, len: want as u64, size };
    let past_cache = policy != DirectIo::Never && file.entry.reads_past_cache(policy, asked);
    if past_cache
        && !(policy == DirectIo::Auto && engine.is_resident(&fd, offset, want as u64))
        && let Some(data) = read_past_cache(engine, pool, file, asked).await?
    {
        let eof = reaches_end || data.len() < want;
        return Ok(ReadData { data: Payload::Bytes(data), eof });
    }
    if how.span_allowed
        && want >= MIN_SPAN_BYTES
        && let Some(span) = without_a_copy(engine, &fd, (offset, want)).await?
    {
        return Ok(ReadData { data: Payload::Span(span), eof: reaches_end });
    }
    let data = read_into_memory(pool, file, &fd, (offset, want)).await?;
    // Less than the size reported: the file has been truncated meanwhile.
    let eof = reaches_end || data.len() < want;
    Ok(ReadData { data: Payload::Bytes(data), eof })
}

/// Reads through the page cache; returns less where the file ends.
async fn read_into_memory(
    pool: &BufferPool,
    file: &PosixFile,
    fd: &Arc<OwnedFd>,
    (offset, len): (u64, usize),
) -> StoreResult<Bytes> {
    let engine = &file.entry.mount.engine;
    let (count, mut buf) = if file.answers_at_once() {
        engine.read(fd, offset, pool.take(len)).await
    } else {
        engine.read_into(fd, offset, pool.take(len)).await
    };
    let count = count.or_store();
    if count == Err(StoreError::Io) {
        // The pages that the disk could not fill stay in the page cache: the next read
        // would take them for data that a socket can send.
        let fd = Arc::clone(fd);
        let _ = engine.run_long(move || forget_pages(&fd, offset, len as u64)).await;
    }
    buf.truncate(count?);
    Ok(buf.into_bytes())
}

/// Returns a range of a file or of a pipe from which a socket can take the data.
async fn without_a_copy(
    engine: &IoEngine,
    fd: &Arc<OwnedFd>,
    (offset, len): (u64, usize),
) -> StoreResult<Option<FileSpan>> {
    if engine.is_resident(fd, offset, len as u64) {
        return Ok(Some(FileSpan { file: Arc::clone(fd) as _, offset, len }));
    }
    let pipe = engine.read_to_pipe(fd, offset, len).await.or_store()?;
    Ok(pipe.map(|pipe| FileSpan { file: Arc::new(pipe), offset: 0, len }))
}

/// Reads with O_DIRECT; `None` if the file system does not support it.
async fn read_past_cache(
    engine: &IoEngine,
    pool: &BufferPool,
    file: &PosixFile,
    asked: Read,
) -> StoreResult<Option<Bytes>> {
    let fd = match file.entry.cached_past_cache() {
        Some(fd) => Some(fd),
        None => {
            let entry = Arc::clone(&file.entry);
            engine.run(move || entry.open_past_cache()).await.or_store()?
        }
    };
    let Some(fd) = fd else { return Ok(None) };
    let (count, mut buf) =
        engine.read_direct(&fd, asked.offset, pool.take(asked.direct_len())).await;
    match count {
        Ok(count) => {
            // The file may have grown since its size was read.
            buf.truncate(count.min(usize::try_from(asked.len).unwrap_or(usize::MAX)));
            Ok(Some(buf.into_bytes()))
        }
        Err(error) if refuses_direct(&error) => {
            file.entry.refuse_past_cache();
            Ok(None)
        }
        Err(error) => Err(error).or_store(),
    }
}

/// Returns whether an error means that O_DIRECT's requirements are not met
/// (open(2)): the same read through the cache would not fail so.
fn refuses_direct(error: &std::io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INVAL | Errno::OPNOTSUPP))
}

/// Writes all of `data` at `offset`.
pub(crate) async fn write(
    file: &PosixFile,
    offset: u64,
    data: Bytes,
    stability: Stability,
) -> StoreResult<(usize, Stability)> {
    let (fd, mode) = file.writer_and_mode().ok_or(StoreError::AccessDenied)?;
    let engine = &file.entry.mount.engine;
    if offset.checked_add(data.len() as u64).is_none_or(|end| end > MAX_OFFSET) {
        return Err(StoreError::TooLarge);
    }
    if data.is_empty() {
        return Ok((0, stability));
    }
    let sync = match stability {
        Stability::Unstable => WriteSync::None,
        Stability::DataSync => WriteSync::Data,
        Stability::FileSync => WriteSync::Full,
    };
    if sync == WriteSync::None {
        let written = engine.write_from((&fd, mode), offset, data, sync).await;
        file.entry.mark_modified();
        return Ok((written.or_store()?, stability));
    }
    let syncs = file.entry.syncs();
    syncs.group.check()?;
    let _beside = syncs.group.beside().await;
    let report = syncs.reports.begin();
    let len = data.len();
    let written = engine.write_from((&fd, mode), offset, data, sync).await.or_store();
    file.entry.mark_modified();
    let is_told_once = file.entry.mount.names.how.reports_losses_once();
    let loss = loss_of_write(written, len, is_told_once);
    if let Some(error) = loss {
        file.losses().count(error);
    }
    let others = report.end(loss);
    let written = written?;
    // One of them may have been told that this write is lost.
    others.settled().await?;
    Ok((written, stability))
}

/// Brings all earlier writes to stable storage, data and times, because the
/// change number is derived from the times.
pub(crate) async fn commit(file: &PosixFile) -> StoreResult<()> {
    let fd = file.any()?;
    let syncs = file.entry.syncs();
    syncs.group.check()?;
    let sync = async |_| {
        let report = syncs.reports.begin();
        let synced = file.entry.mount.engine.sync(&fd, false).await.or_store();
        let synced = file.losses().note(synced);
        let others = report.end(synced.err());
        match synced {
            Ok(()) => others.settled().await,
            Err(error) => Err(error),
        }
    };
    syncs.group.join([()], sync).await
}
