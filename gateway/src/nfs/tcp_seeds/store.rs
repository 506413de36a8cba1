//! A tree of files in memory that reads into buffers of the pool, as a tree on disks does, and
//! takes its time.

use bytes::Bytes;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use zgate_memory::MemoryStore;
use zgate_store::attr::FsId;
use zgate_store::file_store::{
    Advice, CreateMode, CreatedFile, DirChange, DirPage, FsStat, NewNode, Node, OpenAccess,
    OpenFile, PosixAcl, ReadData, ReadHow, SeekWhat, Stability, StoreTraits, XattrSet,
};
use zgate_store::{
    AccessMask, Attr, BufferPool, Caller, FileKind, FileStore, NodeHandle, Payload, SetAttr,
    StoreError, StoreFuture,
};

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

/// Forwards operations that move no data.
macro_rules! pass {
    ($($name:ident($($arg:ident: $kind:ty),*) -> $result:ty;)*) => {$(
        fn $name<'a>(&'a self, $($arg: $kind),*) -> StoreFuture<'a, $result> {
            self.store.$name($($arg),*)
        }
    )*};
}

impl FileStore for PooledFiles {
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
            let ReadData { data, eof } = self.store.read(file, offset, len, how).await?;
            let Payload::Bytes(bytes) = data else { return Err(StoreError::Io) };
            buffer.truncate(bytes.len());
            buffer.copy_from_slice(&bytes);
            Ok(ReadData { data: Payload::Bytes(buffer.into_bytes()), eof })
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
        allocate(file: &'a OpenFile, offset: u64, len: u64) -> ();
        deallocate(file: &'a OpenFile, offset: u64, len: u64) -> ();
        seek(file: &'a OpenFile, offset: u64, what: SeekWhat) -> u64;
        copy_range(
            from: &'a OpenFile, from_offset: u64, to: &'a OpenFile, to_offset: u64, len: u64
        ) -> u64;
        clone_range(
            from: &'a OpenFile, from_offset: u64, to: &'a OpenFile, to_offset: u64, len: u64
        ) -> ();
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
