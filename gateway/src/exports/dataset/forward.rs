//! Operations of a followed dataset: each enters the tree and calls the store's
//! operation.

use super::file::opened;
use super::store::DatasetTree;
use std::sync::Arc;
use zgate_store::attr::FsId;
use zgate_store::file_store::{
    CreateMode, CreatedFile, DirChange, OpenAccess, OpenFile, StoreTraits,
};
use zgate_store::{Attr, Caller, FileKind, FileStore, NodeHandle, SetAttr, StoreFuture};

/// Store of the export, in front of a [`DatasetTree`]: files it opens refer
/// back to it.
#[derive(Debug)]
pub(crate) struct DatasetStore(pub(crate) Arc<DatasetTree>);

/// Forwards an operation on an open file.
macro_rules! on_file {
    ($name:ident($file:ident: $open:ty $(, $arg:ident: $kind:ty)*) -> $result:ty) => {
        fn $name<'a>(&'a self, $file: $open $(, $arg: $kind)*) -> StoreFuture<'a, $result> {
            Box::pin(async move {
                let visit = self.0.enter().await?;
                let $file = opened($file, &visit.store).await?;
                visit.store.$name(&$file $(, $arg)*).await
            })
        }
    };
}

/// Forwards an operation on two open files.
macro_rules! on_files {
    (
        $name:ident(
            $from:ident: $source:ty, $from_offset:ident: $start:ty,
            $to:ident: $target:ty $(, $arg:ident: $kind:ty)*
        ) -> $result:ty
    ) => {
        fn $name<'a>(
            &'a self, $from: $source, $from_offset: $start, $to: $target $(, $arg: $kind)*
        ) -> StoreFuture<'a, $result> {
            Box::pin(async move {
                let visit = self.0.enter().await?;
                let $from = opened($from, &visit.store).await?;
                let $to = opened($to, &visit.store).await?;
                visit.store.$name(&$from, $from_offset, &$to $(, $arg)*).await
            })
        }
    };
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

    fn recent_attr(&self, node: &NodeHandle) -> Option<Attr> {
        self.0.recent_attr(node)
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
            let node = made.node.handle;
            let adopted = |file| self.0.adopt(who, node, access, (&*visit.store, file));
            made.open = made.open.map(adopted);
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
            Ok(self.0.adopt(who, *node, access, (&*visit.store, file)))
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

    zgate_store::forward_files! {
        self => async self.0.enter().await?.store;
        getattr lookup lookup_parent access readlink create_node link readdir statfs get_xattr
        set_xattr list_xattrs remove_xattr get_acl set_acl
    }

    zgate_store::forward_files! {
        self => async self.0.enter_after_change().await?.store;
        sync_objects sync_names
    }

    zgate_store::forward_files! {
        on_file!();
        read write commit allocate deallocate seek advise
    }

    zgate_store::forward_files! { on_files!(); copy_range clone_range }
}
