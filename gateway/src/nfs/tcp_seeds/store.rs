//! A tree of files in memory that reads into buffers of the pool, as a tree on disks does, and
//! takes its time.

use bytes::Bytes;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use zgate_memory::MemoryStore;
use zgate_store::file_store::{OpenFile, ReadData, ReadHow, Stability};
use zgate_store::{BufferPool, FileStore, Payload, StoreError, StoreFuture};

/// Longest READ that may be lost, in bytes. Only correct clients have such short ones run: a
/// peer that takes no replies would not miss one.
const LOST_BYTES: usize = 4 << 10;
/// Short READs of which one never ends, if any are lost.
const LOST_ONE_IN: u64 = 8;

/// The tree.
pub(super) struct PooledFiles {
    pub store: MemoryStore,
    pub pool: BufferPool,
    /// Time that each READ and WRITE takes.
    pub delay: Duration,
    /// Some short READs never end.
    pub loses_reads: bool,
    /// Short READs so far.
    pub short_reads: AtomicU64,
}

impl PooledFiles {
    /// Returns whether a READ of so many bytes never ends.
    fn loses(&self, len: usize) -> bool {
        if !self.loses_reads || len > LOST_BYTES {
            return false;
        }
        let number = self.short_reads.fetch_add(1, Ordering::Relaxed) + 1;
        number.is_multiple_of(LOST_ONE_IN)
    }

    async fn take_time(&self) {
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
    }
}

impl FileStore for PooledFiles {
    zgate_store::forward_files! {
        self => self.store;
        root traits fsid identity losses recent_attr getattr lookup lookup_parent access setattr
        readlink create_file create_node open remove rename link readdir commit sync_objects
        sync_names allocate deallocate seek copy_range clone_range advise statfs get_xattr
        set_xattr list_xattrs remove_xattr get_acl set_acl
    }

    fn read<'a>(
        &'a self,
        file: &'a OpenFile,
        offset: u64,
        len: usize,
        how: ReadHow,
    ) -> StoreFuture<'a, ReadData> {
        Box::pin(async move {
            if self.loses(len) {
                std::future::pending::<()>().await;
            }
            // A disk is given the buffer before it takes its time.
            let mut buffer = self.pool.take(len);
            self.take_time().await;
            let read = self.store.read(file, offset, len, how).await?;
            let Payload::Bytes(bytes) = read.data else { return Err(StoreError::Io) };
            buffer.truncate(bytes.len());
            buffer.copy_from_slice(&bytes);
            Ok(ReadData { data: Payload::Bytes(buffer.into_bytes()), ..read })
        })
    }

    fn write<'a>(
        &'a self,
        file: &'a OpenFile,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> StoreFuture<'a, (usize, Stability)> {
        Box::pin(async move {
            self.take_time().await;
            self.store.write(file, offset, data, stability).await
        })
    }
}
