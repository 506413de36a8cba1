//! A tree of files with limited rates. What moves data waits; names, attributes and
//! syncs do not.

use super::limiter::Limiter;
use bytes::Bytes;
use std::sync::Arc;
use zgate_store::file_store::{OpenFile, ReadData, ReadHow, Stability};
use zgate_store::{FileStore, StoreFuture};

/// Store whose reads, writes and copies wait for their rate.
struct LimitedFiles {
    store: Arc<dyn FileStore>,
    limiter: Arc<Limiter>,
}

/// Limits a store.
pub(crate) fn limited_files(
    store: Arc<dyn FileStore>,
    limiter: Arc<Limiter>,
) -> Arc<dyn FileStore> {
    Arc::new(LimitedFiles { store, limiter })
}

impl FileStore for LimitedFiles {
    // They move no data.
    zgate_store::forward_files! {
        self => self.store;
        root traits fsid identity losses recent_attr getattr lookup lookup_parent access setattr
        readlink create_file create_node open remove rename link readdir commit sync_objects
        sync_names seek advise statfs get_xattr set_xattr list_xattrs remove_xattr get_acl set_acl
    }

    // They change data, but transfer none.
    zgate_store::forward_files! {
        self => async {
            self.limiter.admit(0).await;
            &self.store
        };
        allocate deallocate clone_range
    }

    fn read<'a>(
        &'a self,
        file: &'a OpenFile,
        offset: u64,
        len: usize,
        how: ReadHow,
    ) -> StoreFuture<'a, ReadData> {
        Box::pin(async move {
            if how.tells_holes {
                // In place of data the size may be told, which is not limited: what is between
                // the holes is read next, and waits then.
                let told = self.store.read(file, offset, 0, how).await?;
                if told.size_with_holes.is_some() {
                    return Ok(told);
                }
            }
            self.limiter.admit(len as u64).await;
            self.store.read(file, offset, len, how).await
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
            self.limiter.admit(data.len() as u64).await;
            self.store.write(file, offset, data, stability).await
        })
    }

    fn copy_range<'a>(
        &'a self,
        from: &'a OpenFile,
        from_offset: u64,
        to: &'a OpenFile,
        to_offset: u64,
        len: u64,
    ) -> StoreFuture<'a, u64> {
        Box::pin(async move {
            self.limiter.admit(len).await;
            self.store.copy_range(from, from_offset, to, to_offset, len).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::Instant;
    use zgate_config::Rates;
    use zgate_memory::MemoryStore;
    use zgate_store::file_store::CreateMode;
    use zgate_store::{Caller, SetAttr};

    #[tokio::test(start_paused = true)]
    async fn data_waits_and_names_do_not() {
        let rates = Rates { iops_max: Some(10), bytes_per_second_max: None };
        let limiter = Arc::new(Limiter::new(rates));
        let store = limited_files(Arc::new(MemoryStore::new()), limiter);
        let (root, who) = (store.root(), Caller::root());
        let begun = Instant::now();
        let made = store
            .create_file(&who, &root, b"a", CreateMode::Guarded, &SetAttr::default())
            .await
            .unwrap();
        for _ in 0..100 {
            store.lookup(&who, &root, b"a").await.unwrap();
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
        let file = made.open.unwrap();
        for number in 0..21 {
            let data = Bytes::from_static(b"data");
            store.write(&file, number * 4, data, Stability::Unstable).await.unwrap();
        }
        // The first passed at once.
        assert!(begun.elapsed() >= Duration::from_millis(1700), "{:?}", begun.elapsed());
        let written = begun.elapsed();
        let how = ReadHow { span_allowed: false, tells_holes: false };
        store.read(&file, 0, 4, how).await.unwrap();
        assert!(begun.elapsed() > written);
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_with_holes_waits_for_its_data_alone() {
        let rates = Rates { iops_max: Some(10), bytes_per_second_max: Some(1 << 20) };
        let limiter = Arc::new(Limiter::new(rates));
        let store = limited_files(Arc::new(MemoryStore::new()), limiter);
        let (root, who) = (store.root(), Caller::root());
        let attrs = SetAttr { size: Some(1 << 30), ..SetAttr::default() };
        let made = store.create_file(&who, &root, b"a", CreateMode::Guarded, &attrs);
        let made = made.await.unwrap();
        let size = made.node.attr.size;
        let file = made.open.unwrap();
        let begun = Instant::now();
        let read = async |tells_holes| {
            let how = ReadHow { span_allowed: false, tells_holes };
            let read = store.read(&file, 0, 1 << 20, how).await.unwrap();
            (read.data.len(), read.size_with_holes)
        };
        for _ in 0..100 {
            assert_eq!(read(true).await, (0, Some(size)));
        }
        assert_eq!(read(false).await, (1 << 20, None));
        // Nor does the question for holes wait for what others took.
        assert_eq!(read(true).await, (0, Some(size)));
        assert_eq!(begun.elapsed(), Duration::ZERO);
        read(false).await;
        assert!(begun.elapsed() >= Duration::from_millis(700), "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_without_holes_waits_whether_they_would_be_told_or_not() {
        let rates = Rates { iops_max: Some(10), bytes_per_second_max: None };
        let limiter = Arc::new(Limiter::new(rates));
        let store = limited_files(Arc::new(MemoryStore::new()), limiter);
        let (root, who) = (store.root(), Caller::root());
        let attrs = SetAttr::default();
        let made = store.create_file(&who, &root, b"a", CreateMode::Guarded, &attrs);
        let file = made.await.unwrap().open.unwrap();
        let data = Bytes::from_static(&[1; 64]);
        store.write(&file, 0, data, Stability::Unstable).await.unwrap();
        let begun = Instant::now();
        let how = ReadHow { span_allowed: false, tells_holes: true };
        for _ in 0..20 {
            let read = store.read(&file, 0, 64, how).await.unwrap();
            assert_eq!((read.data.len(), read.size_with_holes), (64, None));
        }
        assert!(begun.elapsed() >= Duration::from_millis(1600), "{:?}", begun.elapsed());
    }
}
