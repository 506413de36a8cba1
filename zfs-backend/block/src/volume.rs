//! A volume: reading, writing and the other operations of a disk.

use crate::aligned::{Alignment, in_suitable_memory, write_parts_of_blocks};
use crate::backing::{Backing, BackingKind};
use crate::errno::store_error;
use crate::freed::Freed;
use crate::options::{BlockOptions, OpenError};
use crate::span::Span;
use crate::{extents, open};
use bytes::Bytes;
use rustix::fs::Advice;
use std::fmt;
use std::io;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::RwLock;
use zgate_io::throttle::Throttle;
use zgate_io::{IoEngine, WriteSync};
use zgate_store::block_store::{BlockGeometry, Extent};
use zgate_store::{BlockStore, Payload, StoreError, StoreFuture, StoreResult};

/// A zvol, another block device or a regular file as a disk. Held exclusively
/// while it exists.
pub struct BlockVolume {
    pub(crate) backing: Arc<Backing>,
    pub(crate) engine: IoEngine,
    /// Writers share this lock; a change of a file's size holds it exclusively,
    /// because a late write would make the file longer again.
    pub(crate) size_gate: RwLock<()>,
    /// Error of a write that was to be stable. The kernel reports lost writes
    /// once, to the first caller that asks: that write may have received the
    /// report for earlier writes, and the next `sync` must not call those safe.
    writes_lost: Mutex<Option<StoreError>>,
    /// Ranges known to be free; files are queried instead.
    pub(crate) freed: Freed,
    /// Limit of the lines about failures: a host causes as many as it sends commands.
    faults: Throttle,
}

impl fmt::Debug for BlockVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockVolume({:?} {})", self.kind(), self.backing.path.display())
    }
}

impl BlockVolume {
    /// Opens the device or file at `path` and locks it. May wait for a disk,
    /// and for a few seconds for a device that udev examines.
    ///
    /// # Errors
    /// See [`OpenError`]: each names the path and the fault.
    pub fn open(
        path: impl AsRef<Path>,
        options: BlockOptions,
        engine: IoEngine,
    ) -> Result<Self, OpenError> {
        let backing = open::open(path.as_ref(), &options)?;
        tracing::info!(
            path = %backing.path.display(),
            kind = ?backing.shape.kind,
            capacity_bytes = backing.capacity_bytes(),
            physical_block_bytes = backing.shape.physical_block_bytes,
            direct = backing.direct.is_some(),
            read_only = backing.read_only,
            "volume opened"
        );
        let engine = engine.for_store(&backing.store()).patient();
        // Commands would ask on a core's thread.
        engine.learn_from(&backing.fd);
        Ok(Self {
            backing: Arc::new(backing),
            engine,
            size_gate: RwLock::new(()),
            writes_lost: Mutex::new(None),
            freed: Freed::default(),
            faults: Throttle::new(),
        })
    }

    /// Returns the kind of device or file behind the volume.
    #[must_use]
    pub fn kind(&self) -> BackingKind {
        self.backing.shape.kind
    }

    /// Returns the path the volume was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.backing.path
    }

    /// Returns a number that volumes of one engine have in common if their storage fails as a
    /// unit: those of a pool do.
    #[must_use]
    pub fn storage(&self) -> usize {
        self.engine.workers()
    }

    /// Returns whether I/O bypasses the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.backing.direct.is_some()
    }

    /// Returns the logical block size of the device in bytes; 1 for a file.
    /// Smaller transfers work but cost a read.
    #[must_use]
    pub fn unit_bytes(&self) -> u64 {
        self.backing.unit_bytes()
    }

    /// Converts an error and logs where it happened.
    pub(crate) fn fault(&self, what: &'static str, span: Span, error: &io::Error) -> StoreError {
        if let Some(left_out) = self.faults.pass() {
            tracing::warn!(
                left_out,
                path = %self.backing.path.display(),
                offset = span.offset,
                len = span.len,
                %error,
                "the storage below failed to {what}"
            );
        }
        store_error(error)
    }

    pub(crate) fn span(&self, offset: u64, len: u64) -> StoreResult<Span> {
        Span::within(offset, len, self.backing.capacity_bytes()).ok_or(StoreError::BeyondEnd)
    }

    /// Checks that a change is allowed. Call it with `size_gate` held: the
    /// capacity cannot shrink then.
    fn writable_span(&self, offset: u64, len: u64) -> StoreResult<Span> {
        if self.backing.read_only {
            return Err(StoreError::ReadOnly);
        }
        self.span(offset, len)
    }

    pub(crate) async fn get(&self, offset: u64, len: usize) -> StoreResult<Payload> {
        let span = self.span(offset, len as u64)?;
        if len == 0 {
            return Ok(Payload::Bytes(Bytes::new()));
        }
        let bytes = match self.backing.direct {
            None => self.fetch(span, true).await?,
            Some(alignment) => {
                let wide = span.widened(u64::from(alignment.offset_bytes));
                let skip = (offset - wide.offset) as usize;
                let bytes = self.fetch(wide, false).await?;
                if wide == span { bytes } else { bytes.slice(skip..skip + len) }
            }
        };
        Ok(Payload::Bytes(bytes))
    }

    /// Reads the whole range; data in the page cache is read at once.
    async fn fetch(&self, span: Span, cached: bool) -> StoreResult<Bytes> {
        let len = usize::try_from(span.len).map_err(|_| StoreError::TooLarge)?;
        let (fd, buf) = (&self.backing.fd, self.backing.pool.take(len));
        let (count, mut buf) = if cached {
            self.engine.read(fd, span.offset, buf).await
        } else {
            self.engine.read_into(fd, span.offset, buf).await
        };
        let mut count = match count {
            Ok(count) => count,
            Err(error) => return Err(self.failed_read(span, &error).await),
        };
        if count < len {
            // An error, or the end, follows the data read so far: a second read
            // returns it.
            let rest = self.backing.pool.take(len);
            let (again, rest) = self.engine.read_into(fd, span.offset, rest).await;
            count = match again {
                Ok(count) => count,
                Err(error) => return Err(self.failed_read(span, &error).await),
            };
            buf = rest;
        }
        if count < len {
            return Err(StoreError::BeyondEnd);
        }
        Ok(buf.into_bytes())
    }

    /// Writes all of `data`, at any offset and length.
    pub(crate) async fn put(&self, offset: u64, data: Bytes, sync: WriteSync) -> StoreResult<()> {
        let span = Span { offset, len: data.len() as u64 };
        self.freed.remove(span);
        let outcome = self.put_span(span, data, sync).await;
        self.freed.remove(span);
        outcome
    }

    async fn put_span(&self, span: Span, data: Bytes, sync: WriteSync) -> StoreResult<()> {
        match self.backing.direct {
            None => self.store(span, data, sync, 1).await,
            Some(alignment) => {
                let block = u64::from(alignment.offset_bytes);
                if span.is_aligned(block) {
                    let _whole = self.backing.lock_whole(span).await;
                    let data = in_suitable_memory(&self.backing, alignment, data);
                    self.store(span, data, sync, block).await
                } else {
                    self.change_blocks(span, alignment, data, sync).await
                }
            }
        }
    }

    async fn change_blocks(
        &self,
        span: Span,
        alignment: Alignment,
        data: Bytes,
        sync: WriteSync,
    ) -> StoreResult<()> {
        let wide = span.widened(u64::from(alignment.offset_bytes));
        let alone = self.backing.locks.exclude_owned(wide).await;
        let backing = Arc::clone(&self.backing);
        let write = move || {
            // To the end, also if nobody waits for it any more.
            let _alone = alone;
            write_parts_of_blocks(&backing, alignment, span.offset, &data, sync)
        };
        self.engine
            .run_long(write)
            .await
            .and_then(|outcome| outcome)
            .map_err(|error| self.fault("write", span, &error))
    }

    /// Writes all of `data`; after a short write, continues at a multiple of
    /// `block`.
    async fn store(&self, span: Span, data: Bytes, sync: WriteSync, block: u64) -> StoreResult<()> {
        let mut done = 0;
        let mut was_short = false;
        while done < data.len() {
            let at = span.offset + done as u64;
            let rest = data.slice(done..);
            let count = self
                .engine
                .write_from((&self.backing.fd, self.backing.method), at, rest, sync)
                .await
                .map_err(|error| self.fault("write", span, &error))?;
            let reached = done + count;
            was_short |= reached < data.len();
            // The rest failed; a second write returns the reason.
            let next = reached - if reached < data.len() { reached % block as usize } else { 0 };
            if next <= done {
                return Err(self.fault("write", span, &io::ErrorKind::WriteZero.into()));
            }
            done = next;
        }
        if was_short && sync != WriteSync::None {
            // The error behind the short write may have been the only report of
            // a loss; writing the rest again does not undo the loss.
            self.keep_loss(StoreError::Io);
        }
        Ok(())
    }

    /// Makes the next `sync` fail.
    pub(crate) fn keep_loss(&self, error: StoreError) {
        *self.writes_lost.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    /// Remembers a failure that may concern earlier writes as well. Without the
    /// page cache, lack of space concerns only the write itself.
    pub(crate) fn remember_loss(&self, error: StoreError) {
        let lost = match error {
            StoreError::Io => true,
            StoreError::NoSpace | StoreError::QuotaExceeded => self.backing.direct.is_none(),
            _ => false,
        };
        if lost {
            self.keep_loss(error);
        }
    }

    fn take_loss(&self) -> Option<StoreError> {
        self.writes_lost.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Syncs as [`BlockStore::sync`] does, for a caller that is no initiator: a
    /// failure is kept, so that the next `sync` reports it as well.
    ///
    /// # Errors
    /// [`StoreError`]: written data may be lost.
    pub async fn flush(&self) -> StoreResult<()> {
        let synced = self.sync().await;
        if let Err(error) = synced {
            self.keep_loss(error);
        }
        synced
    }

    fn advise(&self, span: Span) -> impl Future<Output = ()> + '_ {
        let backing = Arc::clone(&self.backing);
        async move {
            // Without the page cache there is nothing to fill.
            if backing.direct.is_some() || span.is_empty() {
                return;
            }
            let hint = move || {
                rustix::fs::fadvise(
                    &backing.fd,
                    span.offset,
                    NonZeroU64::new(span.len),
                    Advice::WillNeed,
                )
            };
            // A hint that fails is not an error.
            let _ = self.engine.run_long(hint).await;
        }
    }
}

impl BlockStore for BlockVolume {
    fn geometry(&self) -> BlockGeometry {
        let (backing, shape) = (&self.backing, &self.backing.shape);
        BlockGeometry {
            capacity_bytes: backing.capacity_bytes(),
            physical_block_bytes: shape.physical_block_bytes,
            optimal_io_bytes: shape.optimal_io_bytes,
            // Write protection does not change the abilities of a disk: a
            // discard is refused, but discard is not reported as missing.
            discard_granularity_bytes: shape.discard_granularity_bytes,
            discard_zeroes: shape.kind.discard_zeroes(),
            write_cache: shape.write_cache,
            read_only: backing.read_only,
        }
    }

    fn read<'a>(&'a self, offset: u64, len: usize) -> StoreFuture<'a, Payload> {
        Box::pin(self.get(offset, len))
    }

    fn read_to_send<'a>(&'a self, offset: u64, len: usize) -> StoreFuture<'a, Payload> {
        Box::pin(self.get_to_send(offset, len))
    }

    fn write<'a>(&'a self, offset: u64, data: Bytes, fua: bool) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let _gate = self.size_gate.read().await;
            self.writable_span(offset, data.len() as u64)?;
            if !fua {
                return self.put(offset, data, WriteSync::None).await;
            }
            let written = self.put(offset, data, WriteSync::Data).await;
            if let Err(error) = written {
                self.remember_loss(error);
            }
            written
        })
    }

    fn sync<'a>(&'a self) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            if self.backing.read_only {
                return Ok(());
            }
            let whole = Span { offset: 0, len: self.backing.capacity_bytes() };
            let synced = self.engine.sync(&self.backing.fd, true).await;
            // Not before: while one that waits for its disk had the loss, others would succeed.
            let lost_before = self.take_loss();
            synced.map_err(|error| self.fault("sync", whole, &error))?;
            lost_before.map_or(Ok(()), Err)
        })
    }

    fn admit_change<'a>(&'a self) -> StoreFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn discard<'a>(&'a self, offset: u64, len: u64) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let _gate = self.size_gate.read().await;
            self.free(self.writable_span(offset, len)?).await
        })
    }

    fn write_zeroes<'a>(&'a self, offset: u64, len: u64, may_unmap: bool) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let _gate = self.size_gate.read().await;
            self.zero(self.writable_span(offset, len)?, may_unmap).await
        })
    }

    fn extents<'a>(&'a self, offset: u64, len: u64, max: usize) -> StoreFuture<'a, Vec<Extent>> {
        Box::pin(async move {
            let span = self.span(offset, len)?;
            if span.is_empty() || max == 0 {
                return Ok(Vec::new());
            }
            if self.kind() != BackingKind::File {
                return Ok(self.freed.extents(span, max));
            }
            let backing = Arc::clone(&self.backing);
            self.engine
                .run_long(move || Ok(extents::of_file(&backing.fd, span, max)?))
                .await
                .and_then(|found| found)
                .map_err(|error| self.fault("list extents", span, &error))
        })
    }

    fn prefetch<'a>(&'a self, offset: u64, len: u64) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.advise(self.span(offset, len)?).await;
            Ok(())
        })
    }

    fn refresh<'a>(&'a self) -> StoreFuture<'a, u64> {
        Box::pin(async move {
            // Held shared: the query must not fall between the two halves of a
            // resize.
            let _gate = self.size_gate.read().await;
            let whole = Span { offset: 0, len: self.backing.capacity_bytes() };
            self.look_again().await.map_err(|error| self.fault("read its size", whole, &error))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Waker};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};
    use zgate_io::EngineChoice;
    use zgate_store::BufferPool;

    /// A file with blocks of 4096 bytes, as O_DIRECT may have them.
    fn with_large_blocks() -> BlockVolume {
        let backing = Backing::of_new_file(Alignment::new(4096, 512));
        rustix::fs::ftruncate(&backing.fd, 1 << 20).unwrap();
        backing.set_capacity(1 << 20);
        BlockVolume {
            backing: Arc::new(backing),
            engine: IoEngine::new(EngineChoice::Threads, 2).unwrap(),
            size_gate: RwLock::new(()),
            writes_lost: Mutex::new(None),
            freed: Freed::default(),
            faults: Throttle::new(),
        }
    }

    /// Returns whether a change has not ended after it has had time for it.
    fn waits(change: &mut StoreFuture<'_, ()>) -> bool {
        let mut poll = || change.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        poll().is_pending() && {
            std::thread::sleep(std::time::Duration::from_millis(50));
            poll().is_pending()
        }
    }

    /// Opens a file of 1 MiB as a volume.
    fn volume(dir: &tempfile::TempDir) -> BlockVolume {
        let path = dir.path().join("disk");
        std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
        let engine = IoEngine::new(EngineChoice::Threads, 2).unwrap();
        BlockVolume::open(&path, BlockOptions::new(BufferPool::new(0)), engine).unwrap()
    }

    /// Counts the lines of a log.
    #[derive(Clone, Default)]
    struct Lines(Arc<AtomicUsize>);

    impl Subscriber for Lines {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, _: &Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    /// A part of a block is written together with the rest, as that was before.
    #[tokio::test]
    async fn a_whole_block_is_not_changed_while_a_part_of_it_is_written() {
        let volume = with_large_blocks();
        let block = Span { offset: 4096, len: 4096 };
        let data = || Bytes::from(vec![7; 4096]);
        let part = volume.backing.locks.exclude_owned(block).await;
        volume.write(0, data(), false).await.unwrap();
        let mut write = volume.write(4096, data(), false);
        let mut zeroes = volume.write_zeroes(4096, 8192, true);
        assert!(waits(&mut write) && waits(&mut zeroes));
        drop(part);
        write.await.unwrap();
        zeroes.await.unwrap();
        // Parts wait for whole blocks, too.
        let whole = volume.backing.lock_whole(block).await;
        assert!(whole.is_some());
        let mut write = volume.write(4096 + 512, Bytes::from(vec![8; 512]), false);
        assert!(waits(&mut write));
        drop(whole);
        write.await.unwrap();
        let Payload::Bytes(read) = volume.read(4096, 1024).await.unwrap() else { panic!("a span") };
        assert!(read[..512] == [0; 512] && read[512..] == [8; 512]);
    }

    /// As a thin disk on a full file system does, whose host goes on writing.
    #[test]
    fn a_disk_that_fails_for_each_command_does_not_fill_the_log() {
        let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let volumes = dirs.each_ref().map(volume);
        let (lines, full) = (Lines::default(), io::Error::from(rustix::io::Errno::NOSPC));
        tracing::subscriber::with_default(lines.clone(), || {
            for number in 0..100 {
                let span = Span { offset: number * 512, len: 512 };
                let told = volumes.each_ref().map(|volume| volume.fault("write", span, &full));
                assert_eq!(told, [StoreError::NoSpace; 2]);
            }
        });
        assert_eq!(lines.0.load(Ordering::Relaxed), 2, "one of each disk");
    }

    /// A flush before a snapshot may wait long for its disk, and hosts sync meanwhile.
    #[tokio::test]
    async fn of_syncs_at_the_same_time_the_first_to_end_tells_of_the_loss() {
        let dir = tempfile::tempdir().unwrap();
        let volume = volume(&dir);
        volume.keep_loss(StoreError::Io);
        // It has begun, and nobody asks for its end.
        let mut slow = volume.sync();
        let told = match slow.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => [volume.sync().await, slow.await],
            Poll::Ready(told) => [told, volume.sync().await],
        };
        assert_eq!(told, [Err(StoreError::Io), Ok(())]);
    }
}
