//! Operations of a followed dataset: each enters the tree and calls the store's
//! operation.

use super::file::opened;
use super::store::DatasetTree;
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

/// Store of the export, in front of a [`DatasetTree`]: files it opens refer
/// back to it.
#[derive(Debug)]
pub(crate) struct DatasetStore(pub(crate) Arc<DatasetTree>);

/// Forwards operations on names and objects.
macro_rules! pass {
    ($($name:ident($($arg:ident: $kind:ty),*) -> $result:ty;)*) => {$(
        fn $name<'a>(&'a self, $($arg: $kind),*) -> StoreFuture<'a, $result> {
            Box::pin(async move { self.0.enter().await?.store.$name($($arg),*).await })
        }
    )*};
}

/// Forwards operations on an open file.
macro_rules! pass_file {
    ($($name:ident($($arg:ident: $kind:ty),*) -> $result:ty;)*) => {$(
        fn $name<'a>(&'a self, file: &'a OpenFile, $($arg: $kind),*) -> StoreFuture<'a, $result> {
            Box::pin(async move {
                let visit = self.0.enter().await?;
                let file = opened(file, &visit.store).await?;
                visit.store.$name(&file, $($arg),*).await
            })
        }
    )*};
}

/// Forwards operations on two open files.
macro_rules! pass_files {
    ($($name:ident -> $result:ty;)*) => {$(
        fn $name<'a>(
            &'a self,
            from: &'a OpenFile,
            from_offset: u64,
            to: &'a OpenFile,
            to_offset: u64,
            len: u64,
        ) -> StoreFuture<'a, $result> {
            Box::pin(async move {
                let visit = self.0.enter().await?;
                let from = opened(from, &visit.store).await?;
                let to = opened(to, &visit.store).await?;
                visit.store.$name(&from, from_offset, &to, to_offset, len).await
            })
        }
    )*};
}

impl FileStore for DatasetStore {
    fn root(&self) -> NodeHandle {
        self.0.known().0
    }

    fn traits(&self) -> StoreTraits {
        self.0.known().1
    }

    fn fsid(&self) -> FsId {
        self.0.known().2
    }

    fn identity(&self, node: &NodeHandle) -> Option<NodeHandle> {
        self.0.identity(node)
    }

    fn losses(&self) -> u64 {
        self.0.losses()
    }

    fn setattr<'a>(
        &'a self,
        who: &'a Caller,
        node: &'a NodeHandle,
        changes: &'a SetAttr,
        open: Option<&'a OpenFile>,
    ) -> StoreFuture<'a, Attr> {
        Box::pin(async move {
            let visit = self.0.enter().await?;
            let open = match open {
                Some(file) => Some(opened(file, &visit.store).await?),
                None => None,
            };
            visit.store.setattr(who, node, changes, open.as_ref()).await
        })
    }

    fn create_file<'a>(
        &'a self,
        who: &'a Caller,
        dir: &'a NodeHandle,
        name: &'a [u8],
        mode: CreateMode,
        attrs: &'a SetAttr,
    ) -> StoreFuture<'a, CreatedFile> {
        Box::pin(async move {
            let visit = self.0.enter().await?;
            let mut made = visit.store.create_file(who, dir, name, mode, attrs).await?;
            let access =
                OpenAccess { read: true, write: true, stateless: false, read_by_execute: false };
            made.open = made.open.map(|file| self.0.adopt(who, made.node.handle, access, file));
            Ok(made)
        })
    }

    fn open<'a>(
        &'a self,
        who: &'a Caller,
        node: &'a NodeHandle,
        access: OpenAccess,
    ) -> StoreFuture<'a, OpenFile> {
        Box::pin(async move {
            let visit = self.0.enter().await?;
            let file = visit.store.open(who, node, access).await?;
            Ok(self.0.adopt(who, *node, access, file))
        })
    }

    fn remove<'a>(
        &'a self,
        who: &'a Caller,
        dir: &'a NodeHandle,
        name: &'a [u8],
        kind: Option<FileKind>,
    ) -> StoreFuture<'a, DirChange> {
        Box::pin(async move {
            let visit = self.0.enter().await?;
            visit.open_before_removal(dir, name).await;
            visit.store.remove(who, dir, name, kind).await
        })
    }

    fn rename<'a>(
        &'a self,
        who: &'a Caller,
        from_dir: &'a NodeHandle,
        from_name: &'a [u8],
        to_dir: &'a NodeHandle,
        to_name: &'a [u8],
    ) -> StoreFuture<'a, (DirChange, DirChange)> {
        Box::pin(async move {
            let visit = self.0.enter().await?;
            visit.open_before_removal(to_dir, to_name).await;
            visit.store.rename(who, from_dir, from_name, to_dir, to_name).await
        })
    }

    fn sync_objects<'a>(&'a self, nodes: &'a [NodeHandle]) -> StoreFuture<'a, ()> {
        Box::pin(async move { self.0.enter_after_change().await?.store.sync_objects(nodes).await })
    }

    fn sync_names<'a>(&'a self, of: NamedObject, dirs: &'a [NodeHandle]) -> StoreFuture<'a, ()> {
        Box::pin(async move { self.0.enter_after_change().await?.store.sync_names(of, dirs).await })
    }

    pass! {
        getattr(node: &'a NodeHandle) -> Attr;
        lookup(who: &'a Caller, dir: &'a NodeHandle, name: &'a [u8]) -> Node;
        lookup_parent(who: &'a Caller, dir: &'a NodeHandle) -> Node;
        access(who: &'a Caller, node: &'a NodeHandle) -> AccessMask;
        readlink(who: &'a Caller, node: &'a NodeHandle) -> Vec<u8>;
        create_node(
            who: &'a Caller, dir: &'a NodeHandle, name: &'a [u8], what: &'a NewNode,
            attrs: &'a SetAttr
        ) -> (Node, DirChange);
        link(
            who: &'a Caller, node: &'a NodeHandle, dir: &'a NodeHandle, name: &'a [u8]
        ) -> DirChange;
        readdir(
            who: &'a Caller, dir: &'a NodeHandle, cookie: u64, max_entries: usize,
            with_nodes: bool
        ) -> DirPage;
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

    pass_file! {
        read(offset: u64, len: usize, how: ReadHow) -> ReadData;
        write(offset: u64, data: Bytes, stability: Stability) -> (usize, Stability);
        commit() -> ();
        allocate(offset: u64, len: u64) -> ();
        deallocate(offset: u64, len: u64) -> ();
        seek(offset: u64, what: SeekWhat) -> u64;
        advise(offset: u64, len: u64, advice: Advice) -> ();
    }

    pass_files! {
        copy_range -> u64;
        clone_range -> ();
    }
}
