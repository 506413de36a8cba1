//! The disk as the file system that the server uses.

use super::{Disk, NameUndo};
use crate::executor::lock;
use crate::mutant::Mutant;
use bytes::Bytes;
use zgate_memory::FileOp;
use zgate_store::file_store::{
    DirChange, NamedObject, NewNode, Node, OpenFile, ReadData, ReadHow, Stability,
};
use zgate_store::{Caller, FileKind, FileStore, NodeHandle, SetAttr, StoreFuture};

/// Runs the operation of the file system as a call of the kind `$op`.
macro_rules! run {
    ($op:ident $name:ident($($arg:ident: $kind:ty),*) -> $result:ty) => {
        fn $name<'a>(&'a self, $($arg: $kind),*) -> StoreFuture<'a, $result> {
            Box::pin(self.run(FileOp::$op, self.store.$name($($arg),*)))
        }
    };
}

/// Calls that differ in nothing but their kind.
macro_rules! pass {
    ($($op:ident $name:ident;)*) => {$(zgate_store::forward_files! { run!($op); $name })*};
}

impl FileStore for Disk {
    zgate_store::forward_files! { self => self.store; root traits fsid identity recent_attr }

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

    fn sync_names<'a>(&'a self, _: NamedObject, dirs: &'a [NodeHandle]) -> StoreFuture<'a, ()> {
        // The object itself is on stable storage as soon as it changes.
        self.sync_objects(dirs)
    }

    pass! {
        GetAttr getattr;
        Lookup lookup;
        LookupParent lookup_parent;
        Access access;
        SetAttr setattr;
        ReadLink readlink;
        CreateFile create_file;
        Open open;
        Link link;
        ReadDir readdir;
        Allocate allocate;
        Deallocate deallocate;
        Seek seek;
        CopyRange copy_range;
        CloneRange clone_range;
        Advise advise;
        StatFs statfs;
        GetXattr get_xattr;
        SetXattr set_xattr;
        ListXattrs list_xattrs;
        RemoveXattr remove_xattr;
        GetAcl get_acl;
        SetAcl set_acl;
    }
}
