//! The disk as the file system that the server uses.

use super::{Disk, NameUndo};
use crate::executor::lock;
use crate::mutant::Mutant;
use bytes::Bytes;
use zgate_memory::FileOp;
use zgate_store::attr::FsId;
use zgate_store::file_store::{
    Advice, CreateMode, CreatedFile, DirChange, DirPage, FsStat, NewNode, Node, OpenAccess,
    OpenFile, PosixAcl, ReadData, ReadHow, SeekWhat, Stability, StoreTraits, XattrSet,
};
use zgate_store::{
    AccessMask, Attr, Caller, FileKind, FileStore, NodeHandle, SetAttr, StoreFuture,
};

/// Calls that differ in nothing but their kind.
macro_rules! pass {
    ($($op:ident $name:ident($($arg:ident: $kind:ty),*) -> $result:ty;)*) => {$(
        fn $name<'a>(&'a self, $($arg: $kind),*) -> StoreFuture<'a, $result> {
            Box::pin(self.run(FileOp::$op, self.store.$name($($arg),*)))
        }
    )*};
}

impl FileStore for Disk {
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
        let hidden =
            matches!(self.mutant, Some(Mutant::VerifierKeptAfterError | Mutant::SyncErrorHidden));
        let failed = if hidden { 0 } else { self.store.losses() };
        failed + self.told_rollbacks()
    }

    fn commit<'a>(&'a self, file: &'a OpenFile) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            if self.mutant == Some(Mutant::CommitSyncsNothing) {
                Ok(())
            } else {
                let synced = self.sync(file).await;
                if self.mutant == Some(Mutant::SyncErrorHidden) { Ok(()) } else { synced }
            }
        })
    }

    fn write<'a>(
        &'a self,
        file: &'a OpenFile,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> StoreFuture<'a, (usize, Stability)> {
        Box::pin(self.put(file, offset, data, stability))
    }

    fn read<'a>(
        &'a self,
        file: &'a OpenFile,
        offset: u64,
        len: usize,
        how: ReadHow,
    ) -> StoreFuture<'a, ReadData> {
        Box::pin(self.get(file, offset, len, how))
    }

    fn create_node<'a>(
        &'a self,
        who: &'a Caller,
        dir: &'a NodeHandle,
        name: &'a [u8],
        what: &'a NewNode,
        attrs: &'a SetAttr,
    ) -> StoreFuture<'a, (Node, DirChange)> {
        let call = self.store.create_node(who, dir, name, what, attrs);
        let undo = || NameUndo::Remove(*dir, name.to_vec());
        Box::pin(self.change_names(FileOp::CreateNode, call, undo))
    }

    fn remove<'a>(
        &'a self,
        who: &'a Caller,
        dir: &'a NodeHandle,
        name: &'a [u8],
        kind: Option<FileKind>,
    ) -> StoreFuture<'a, DirChange> {
        let call = self.store.remove(who, dir, name, kind);
        let undo = || NameUndo::Make(*dir, name.to_vec());
        Box::pin(self.change_names(FileOp::Remove, call, undo))
    }

    fn rename<'a>(
        &'a self,
        who: &'a Caller,
        from_dir: &'a NodeHandle,
        from: &'a [u8],
        to_dir: &'a NodeHandle,
        to: &'a [u8],
    ) -> StoreFuture<'a, (DirChange, DirChange)> {
        let call = self.store.rename(who, from_dir, from, to_dir, to);
        // Clients rename within the root.
        let undo = move || {
            let replaced = from != to && self.exists(to_dir, to);
            NameUndo::Rename(*from_dir, from.to_vec(), to.to_vec(), replaced)
        };
        Box::pin(self.change_names(FileOp::Rename, call, undo))
    }

    fn sync_objects<'a>(&'a self, nodes: &'a [NodeHandle]) -> StoreFuture<'a, ()> {
        Box::pin(self.run(FileOp::SyncObjects, async move {
            self.store.sync_objects(nodes).await?;
            // All of them are in the root.
            if nodes.contains(&self.store.root()) {
                lock(&self.unsynced_names).clear();
            }
            Ok(())
        }))
    }

    pass! {
        GetAttr getattr(node: &'a NodeHandle) -> Attr;
        Lookup lookup(who: &'a Caller, dir: &'a NodeHandle, name: &'a [u8]) -> Node;
        LookupParent lookup_parent(who: &'a Caller, dir: &'a NodeHandle) -> Node;
        Access access(who: &'a Caller, node: &'a NodeHandle) -> AccessMask;
        SetAttr setattr(
            who: &'a Caller, node: &'a NodeHandle, changes: &'a SetAttr, open: Option<&'a OpenFile>
        ) -> Attr;
        ReadLink readlink(who: &'a Caller, node: &'a NodeHandle) -> Vec<u8>;
        CreateFile create_file(
            who: &'a Caller, dir: &'a NodeHandle, name: &'a [u8], mode: CreateMode,
            attrs: &'a SetAttr
        ) -> CreatedFile;
        Open open(who: &'a Caller, node: &'a NodeHandle, access: OpenAccess) -> OpenFile;
        Link link(
            who: &'a Caller, node: &'a NodeHandle, dir: &'a NodeHandle, name: &'a [u8]
        ) -> DirChange;
        ReadDir readdir(
            who: &'a Caller, dir: &'a NodeHandle, cookie: u64, max_entries: usize, with_nodes: bool
        ) -> DirPage;
        Allocate allocate(file: &'a OpenFile, offset: u64, len: u64) -> ();
        Deallocate deallocate(file: &'a OpenFile, offset: u64, len: u64) -> ();
        Seek seek(file: &'a OpenFile, offset: u64, what: SeekWhat) -> u64;
        CopyRange copy_range(
            from: &'a OpenFile, from_offset: u64, to: &'a OpenFile, to_offset: u64, len: u64
        ) -> u64;
        CloneRange clone_range(
            from: &'a OpenFile, from_offset: u64, to: &'a OpenFile, to_offset: u64, len: u64
        ) -> ();
        Advise advise(file: &'a OpenFile, offset: u64, len: u64, advice: Advice) -> ();
        StatFs statfs(node: &'a NodeHandle) -> FsStat;
        GetXattr get_xattr(who: &'a Caller, node: &'a NodeHandle, name: &'a [u8]) -> Vec<u8>;
        SetXattr set_xattr(
            who: &'a Caller, node: &'a NodeHandle, name: &'a [u8], value: &'a [u8], how: XattrSet
        ) -> DirChange;
        ListXattrs list_xattrs(who: &'a Caller, node: &'a NodeHandle) -> Vec<Vec<u8>>;
        RemoveXattr remove_xattr(who: &'a Caller, node: &'a NodeHandle, name: &'a [u8]) -> DirChange;
        GetAcl get_acl(node: &'a NodeHandle) -> PosixAcl;
        SetAcl set_acl(who: &'a Caller, node: &'a NodeHandle, acl: &'a PosixAcl) -> ();
    }
}
