//! A disk with limited rates.

use super::limiter::Limiter;
use bytes::Bytes;
use std::sync::Arc;
use zgate_config::Rates;
use zgate_store::block_store::{BlockGeometry, BlockStore, Extent};
use zgate_store::{Payload, StoreFuture};

/// Disk whose reads and writes wait for their rate, and commands that discard or write zeros.
struct LimitedDisk {
    disk: Arc<dyn BlockStore>,
    limiter: Limiter,
}

/// Limits a disk; returns it as it is if there is no limit.
pub(crate) fn limited_disk(disk: Arc<dyn BlockStore>, rates: Rates) -> Arc<dyn BlockStore> {
    if rates.is_unlimited() {
        return disk;
    }
    Arc::new(LimitedDisk { disk, limiter: Limiter::new(rates) })
}

impl BlockStore for LimitedDisk {
    fn geometry(&self) -> BlockGeometry {
        self.disk.geometry()
    }

    fn read<'a>(&'a self, offset: u64, len: usize) -> StoreFuture<'a, Payload> {
        Box::pin(async move {
            self.limiter.admit(len as u64).await;
            self.disk.read(offset, len).await
        })
    }

    fn read_to_send<'a>(&'a self, offset: u64, len: usize) -> StoreFuture<'a, Payload> {
        Box::pin(async move {
            self.limiter.admit(len as u64).await;
            self.disk.read_to_send(offset, len).await
        })
    }

    fn write<'a>(&'a self, offset: u64, data: Bytes, fua: bool) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.limiter.admit(data.len() as u64).await;
            self.disk.write(offset, data, fua).await
        })
    }

    fn sync<'a>(&'a self) -> StoreFuture<'a, ()> {
        self.disk.sync()
    }

    fn admit_change<'a>(&'a self) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.limiter.admit(0).await;
            self.disk.admit_change().await
        })
    }

    fn discard<'a>(&'a self, offset: u64, len: u64) -> StoreFuture<'a, ()> {
        self.disk.discard(offset, len)
    }

    fn write_zeroes<'a>(&'a self, offset: u64, len: u64, may_unmap: bool) -> StoreFuture<'a, ()> {
        self.disk.write_zeroes(offset, len, may_unmap)
    }

    fn extents<'a>(&'a self, offset: u64, len: u64, max: usize) -> StoreFuture<'a, Vec<Extent>> {
        self.disk.extents(offset, len, max)
    }

    fn prefetch<'a>(&'a self, offset: u64, len: u64) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.limiter.admit(len).await;
            self.disk.prefetch(offset, len).await
        })
    }

    fn refresh<'a>(&'a self) -> StoreFuture<'a, u64> {
        self.disk.refresh()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qos::limits::BURST;
    use std::time::Duration;
    use tokio::time::Instant;
    use zgate_block::{BlockOptions, BlockVolume, DirectIo};
    use zgate_io::{EngineChoice, IoEngine};
    use zgate_memory::SimDisk;
    use zgate_store::{BufferPool, MIN_SPAN_BYTES};

    const HALF: usize = 512 << 10;

    #[tokio::test(start_paused = true)]
    async fn reads_and_writes_wait_and_lose_nothing() {
        let disk: Arc<dyn BlockStore> = Arc::new(SimDisk::new(8 << 20));
        let rates = Rates { iops_max: None, bytes_per_second_max: Some(1 << 20) };
        let limited = limited_disk(Arc::clone(&disk), rates);
        let begun = Instant::now();
        for number in 0..8_u8 {
            let data = Bytes::from(vec![number; HALF]);
            limited.write(u64::from(number) * HALF as u64, data, false).await.unwrap();
        }
        // The last one has waited for the seven before it.
        let least = Duration::from_millis(3500).checked_sub(BURST).unwrap();
        assert!(begun.elapsed() >= least, "{:?}", begun.elapsed());
        let Payload::Bytes(read) = limited.read(7 * HALF as u64, HALF).await.unwrap() else {
            panic!("a disk in memory has bytes")
        };
        assert!(begun.elapsed() >= least + Duration::from_millis(500));
        assert_eq!(read, vec![7; HALF]);
        // A flush does not wait.
        let flushed = Instant::now();
        limited.sync().await.unwrap();
        assert_eq!(flushed.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_that_discards_counts_once_however_many_calls_it_makes() {
        let rates = Rates { iops_max: Some(10), bytes_per_second_max: None };
        let limited = limited_disk(Arc::new(SimDisk::new(8 << 20)), rates);
        let begun = Instant::now();
        for _ in 0..20 {
            limited.admit_change().await.unwrap();
            for number in 0..100 {
                limited.write_zeroes(number * 4096, 4096, true).await.unwrap();
            }
        }
        let (elapsed, all) = (begun.elapsed(), Duration::from_secs(2));
        assert!(elapsed + 2 * BURST >= all && elapsed < all + BURST, "{elapsed:?}");
    }

    #[test]
    fn a_socket_takes_large_reads_from_the_file_as_without_a_limit() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = BlockOptions::new(BufferPool::new(1 << 20));
        (options.direct, options.create_bytes) = (DirectIo::Never, Some(1 << 20));
        let engine = IoEngine::new(EngineChoice::Threads, 1).unwrap();
        let disk = BlockVolume::open(dir.path().join("disk"), options, engine).unwrap();
        let rates = Rates { iops_max: Some(1000), bytes_per_second_max: None };
        let limited = limited_disk(Arc::new(disk), rates);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let sent = runtime.block_on(async {
            // What lies in the page cache is lent.
            limited.write(0, Bytes::from(vec![1; MIN_SPAN_BYTES]), false).await.unwrap();
            limited.read_to_send(0, MIN_SPAN_BYTES).await.unwrap()
        });
        assert!(matches!(sent, Payload::Span(_)), "{sent:?}");
    }

    #[test]
    fn without_a_limit_the_disk_is_the_same() {
        let disk: Arc<dyn BlockStore> = Arc::new(SimDisk::new(1 << 20));
        assert!(Arc::ptr_eq(&disk, &limited_disk(Arc::clone(&disk), Rates::default())));
    }
}
