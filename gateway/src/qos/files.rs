//! A tree of files with limited rates. What moves data waits; names, attributes and
//! syncs do not.

use super::limiter::Limiter;
use bytes::Bytes;
use std::sync::Arc;
use zgate_store::attr::FsId;
use zgate_store::file_store::{
    Advice, CreateMode, CreatedFile, DirChange, DirPage, FsStat, NamedObject, NewNode, Node,
    OpenAccess, OpenFile, PosixAcl, ReadData, ReadHow, SeekWhat, Stability, StoreTraits, XattrSet,
};
use zgate_store::{
    AccessMask, Attr, Caller, FileKind, FileStore, NodeHandle, SetAttr, StoreFuture,
};

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

/// Forwards operations that move no data.
macro_rules! pass {
    ($($name:ident($($arg:ident: $kind:ty),*) -> $result:ty;)*) => {$(
        fn $name<'a>(&'a self, $($arg: $kind),*) -> StoreFuture<'a, $result> {
            self.store.$name($($arg),*)
        }
    )*};
}

/// Forwards operations on an open file once their bytes may move.
macro_rules! limit {
    ($($name:ident($($arg:ident: $kind:ty),*) -> $result:ty: $bytes:expr;)*) => {$(
        fn $name<'a>(&'a self, file: &'a OpenFile, $($arg: $kind),*) -> StoreFuture<'a, $result> {
            Box::pin(async move {
                self.limiter.admit($bytes).await;
                self.store.$name(file, $($arg),*).await
            })
        }
    )*};
}

impl FileStore for LimitedFiles {
    fn root(&self) -> NodeHandle {
        self.store.root()
    }

    fn traits(&self) -> StoreTraits {
        self.store.traits()
    }

    fn fsid(&self) -> FsId {
        self.store.fsid()
    }

    fn identity(&self, node: &NodeHandle) -> Option<NodeHandle> {
        self.store.identity(node)
    }

    fn losses(&self) -> u64 {
        self.store.losses()
    }

    fn read<'a>(
        &'a self,
        file: &'a OpenFile,
        offset: u64,
        len: usize,
        how: ReadHow,
    ) -> StoreFuture<'a, ReadData> {
        Box::pin(async move {
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

    fn clone_range<'a>(
        &'a self,
        from: &'a OpenFile,
        from_offset: u64,
        to: &'a OpenFile,
        to_offset: u64,
        len: u64,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.limiter.admit(0).await;
            self.store.clone_range(from, from_offset, to, to_offset, len).await
        })
    }

    limit! {
        allocate(offset: u64, len: u64) -> (): 0;
        deallocate(offset: u64, len: u64) -> (): 0;
    }

    pass! {
        getattr(node: &'a NodeHandle) -> Attr;
        lookup(who: &'a Caller, dir: &'a NodeHandle, name: &'a [u8]) -> Node;
        lookup_parent(who: &'a Caller, dir: &'a NodeHandle) -> Node;
        access(who: &'a Caller, node: &'a NodeHandle) -> AccessMask;
        setattr(
            who: &'a Caller, node: &'a NodeHandle, changes: &'a SetAttr,
            open: Option<&'a OpenFile>
        ) -> Attr;
        readlink(who: &'a Caller, node: &'a NodeHandle) -> Vec<u8>;
        create_file(
            who: &'a Caller, dir: &'a NodeHandle, name: &'a [u8], mode: CreateMode,
            attrs: &'a SetAttr
        ) -> CreatedFile;
        create_node(
            who: &'a Caller, dir: &'a NodeHandle, name: &'a [u8], what: &'a NewNode,
            attrs: &'a SetAttr
        ) -> (Node, DirChange);
        open(who: &'a Caller, node: &'a NodeHandle, access: OpenAccess) -> OpenFile;
        remove(
            who: &'a Caller, dir: &'a NodeHandle, name: &'a [u8], kind: Option<FileKind>
        ) -> DirChange;
        rename(
            who: &'a Caller, from_dir: &'a NodeHandle, from_name: &'a [u8],
            to_dir: &'a NodeHandle, to_name: &'a [u8]
        ) -> (DirChange, DirChange);
        link(
            who: &'a Caller, node: &'a NodeHandle, dir: &'a NodeHandle, name: &'a [u8]
        ) -> DirChange;
        readdir(
            who: &'a Caller, dir: &'a NodeHandle, cookie: u64, max_entries: usize,
            with_nodes: bool
        ) -> DirPage;
        commit(file: &'a OpenFile) -> ();
        sync_objects(nodes: &'a [NodeHandle]) -> ();
        sync_names(of: NamedObject, dirs: &'a [NodeHandle]) -> ();
        seek(file: &'a OpenFile, offset: u64, what: SeekWhat) -> u64;
        advise(file: &'a OpenFile, offset: u64, len: u64, advice: Advice) -> ();
        statfs(node: &'a NodeHandle) -> FsStat;
        get_xattr(who: &'a Caller, node: &'a NodeHandle, name: &'a [u8]) -> Vec<u8>;
        set_xattr(
            who: &'a Caller, node: &'a NodeHandle, name: &'a [u8], value: &'a [u8],
            how: XattrSet
        ) -> DirChange;
        list_xattrs(who: &'a Caller, node: &'a NodeHandle) -> Vec<Vec<u8>>;
        remove_xattr(who: &'a Caller, node: &'a NodeHandle, name: &'a [u8]) -> DirChange;
        get_acl(node: &'a NodeHandle) -> PosixAcl;
        set_acl(who: &'a Caller, node: &'a NodeHandle, acl: &'a PosixAcl) -> ();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::Instant;
    use zgate_config::Rates;
    use zgate_memory::MemoryStore;

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
        let how = ReadHow { span_allowed: false };
        store.read(&file, 0, 4, how).await.unwrap();
        assert!(begun.elapsed() > written);
    }
}
