//! Writes names and attributes to stable storage before the reply, for exports
//! with that option (RFC 1813 §1.1; RFC 8881 §18.30.4 and similar sections).

use std::sync::Arc;
use zgate_store::file_store::{
    CreateMode, CreatedFile, DirChange, NamedObject, NewNode, Node, OpenFile,
};
use zgate_store::{Caller, FileKind, FileStore, NodeHandle, SetAttr, StoreFuture, StoreResult};

/// A store whose changes of names and attributes are on stable storage when
/// they return. Data is not affected (see WRITE's stability, COMMIT).
pub struct StableNames {
    inner: Arc<dyn FileStore>,
}

impl StableNames {
    /// Wraps another store.
    #[must_use]
    pub fn over(inner: Arc<dyn FileStore>) -> Self {
        Self { inner }
    }

    /// Syncs the changed objects. A failed sync is returned as an error,
    /// although the change was made: the client must not rely on it.
    async fn settle(&self, nodes: &[NodeHandle]) -> StoreResult<()> {
        self.inner.sync_objects(nodes).await
    }
}

/// Forwards an operation that changes an object, and syncs the object.
macro_rules! settled {
    (
        $name:ident($who:ident: $caller:ty, $node:ident: $handle:ty $(, $arg:ident: $kind:ty)*)
        -> $result:ty
    ) => {
        fn $name<'a>(
            &'a self, $who: $caller, $node: $handle $(, $arg: $kind)*
        ) -> StoreFuture<'a, $result> {
            Box::pin(async move {
                let done = self.inner.$name($who, $node $(, $arg)*).await?;
                self.settle(&[*$node]).await?;
                Ok(done)
            })
        }
    };
}

impl FileStore for StableNames {
    zgate_store::forward_files! {
        self => self.inner;
        root traits identity fsid recent_attr getattr lookup lookup_parent access readlink open
        readdir read write losses commit sync_names sync_objects seek copy_range clone_range advise
        statfs get_xattr list_xattrs get_acl
    }

    zgate_store::forward_files! { settled!(); setattr set_xattr remove_xattr set_acl }

    fn create_file<'a>(
        &'a self,
        who: &'a Caller,
        dir: &'a NodeHandle,
        name: &'a [u8],
        mode: CreateMode,
        attrs: &'a SetAttr,
    ) -> StoreFuture<'a, CreatedFile> {
        Box::pin(async move {
            let file = self.inner.create_file(who, dir, name, mode, attrs).await?;
            if file.created {
                let of = if file.is_stable {
                    NamedObject::Stable
                } else {
                    NamedObject::Changed(file.node.handle)
                };
                self.inner.sync_names(of, &[*dir]).await?;
            } else if attrs.size == Some(0) {
                self.settle(&[file.node.handle]).await?;
            }
            Ok(file)
        })
    }

    fn create_node<'a>(
        &'a self,
        who: &'a Caller,
        dir: &'a NodeHandle,
        name: &'a [u8],
        what: &'a NewNode,
        attrs: &'a SetAttr,
    ) -> StoreFuture<'a, (Node, DirChange)> {
        Box::pin(async move {
            let made = self.inner.create_node(who, dir, name, what, attrs).await?;
            self.inner.sync_names(NamedObject::Changed(made.0.handle), &[*dir]).await?;
            Ok(made)
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
            let change = self.inner.remove(who, dir, name, kind).await?;
            self.inner.sync_names(NamedObject::Unchanged, &[*dir]).await?;
            Ok(change)
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
            let change = self.inner.rename(who, from_dir, from_name, to_dir, to_name).await?;
            // The new name first: the object must not be lost between the two
            // syncs.
            let dirs = [*to_dir, *from_dir];
            let dirs = if from_dir == to_dir { &dirs[..1] } else { &dirs };
            self.inner.sync_names(NamedObject::Unchanged, dirs).await?;
            Ok(change)
        })
    }

    fn link<'a>(
        &'a self,
        who: &'a Caller,
        node: &'a NodeHandle,
        dir: &'a NodeHandle,
        name: &'a [u8],
    ) -> StoreFuture<'a, DirChange> {
        Box::pin(async move {
            let change = self.inner.link(who, node, dir, name).await?;
            self.inner.sync_names(NamedObject::Changed(*node), &[*dir]).await?;
            Ok(change)
        })
    }

    // No client asks for these two by COMMIT.
    fn allocate<'a>(&'a self, file: &'a OpenFile, offset: u64, len: u64) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.inner.allocate(file, offset, len).await?;
            self.inner.commit(file).await
        })
    }

    fn deallocate<'a>(&'a self, file: &'a OpenFile, offset: u64, len: u64) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.inner.deallocate(file, offset, len).await?;
            self.inner.commit(file).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v3::proc::rig::block_on;
    use zgate_memory::{FileOp, MemoryStore};
    use zgate_store::StoreError;
    use zgate_store::file_store::{OpenAccess, XattrSet};

    #[test]
    fn every_change_of_a_name_or_an_attribute_is_made_stable() {
        let memory = MemoryStore::builder().root_mode(0o777).build();
        let store = StableNames::over(Arc::new(memory.clone()));
        let (who, root, attrs) = (Caller::root(), store.root(), SetAttr::default());
        let synced = || memory.faults().calls(FileOp::SyncObjects);
        let file = block_on(store.create_file(&who, &root, b"f", CreateMode::Guarded, &attrs));
        let file = file.unwrap().node.handle;
        assert_eq!(synced(), 1);
        block_on(store.create_node(&who, &root, b"d", &NewNode::Directory, &attrs)).unwrap();
        block_on(store.link(&who, &file, &root, b"g")).unwrap();
        block_on(store.rename(&who, &root, b"g", &root, b"h")).unwrap();
        block_on(store.remove(&who, &root, b"h", None)).unwrap();
        let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        block_on(store.setattr(&who, &file, &mode, None)).unwrap();
        block_on(store.set_xattr(&who, &file, b"x", b"1", XattrSet::Either)).unwrap();
        block_on(store.remove_xattr(&who, &file, b"x")).unwrap();
        assert_eq!(synced(), 8);
        block_on(store.lookup(&who, &root, b"f")).unwrap();
        let found = block_on(store.create_file(&who, &root, b"f", CreateMode::Unchecked, &attrs));
        assert!(!found.unwrap().created);
        assert_eq!(synced(), 8, "nothing changed");
    }

    #[test]
    fn room_and_holes_are_made_stable() {
        let memory = MemoryStore::builder().root_mode(0o777).build();
        let store = StableNames::over(Arc::new(memory.clone()));
        let (who, root, attrs) = (Caller::root(), store.root(), SetAttr::default());
        let created = block_on(store.create_file(&who, &root, b"f", CreateMode::Guarded, &attrs));
        let node = created.unwrap().node.handle;
        let access =
            OpenAccess { read: false, write: true, stateless: false, read_by_execute: false };
        let file = block_on(store.open(&who, &node, access)).unwrap();
        let committed = || memory.faults().calls(FileOp::Commit);
        block_on(store.allocate(&file, 0, 4096)).unwrap();
        assert_eq!(committed(), 1);
        block_on(store.deallocate(&file, 0, 4096)).unwrap();
        assert_eq!(committed(), 2);
        memory.faults().fail_next(FileOp::Commit, StoreError::Io);
        assert_eq!(block_on(store.deallocate(&file, 0, 4096)), Err(StoreError::Io));
    }

    #[test]
    fn what_cannot_be_made_stable_fails() {
        let memory = MemoryStore::builder().root_mode(0o777).build();
        let store = StableNames::over(Arc::new(memory.clone()));
        memory.faults().fail_next(FileOp::SyncObjects, StoreError::Io);
        let (who, root) = (Caller::root(), store.root());
        let made = block_on(store.create_node(
            &who,
            &root,
            b"d",
            &NewNode::Directory,
            &SetAttr::default(),
        ));
        assert_eq!(made.map(|_| ()), Err(StoreError::Io));
    }
}
