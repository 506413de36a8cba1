//! The store trait on top of the operations; decides on which threads each of them runs.

mod at_hand;
mod crossing;

use crate::data;
use crate::direct::DirectIo;
use crate::errno::OrStoreError;
use crate::open_file::{PosixFile, is_gone};
use crate::ranges;
use crate::statfs::statfs;
use crate::tree::Tree;
use bytes::Bytes;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use zgate_io::{IoEngine, on_a_worker};
use zgate_store::attr::FsId;
use zgate_store::file_store::{
    Advice, CreateMode, CreatedFile, DirChange, DirPage, FsStat, NamedObject, NewNode, Node,
    OpenAccess, OpenFile, PosixAcl, ReadData, ReadHow, SeekWhat, Stability, StoreTraits, XattrSet,
};
use zgate_store::{
    AccessMask, Attr, BufferPool, Caller, FileKind, FileStore, NodeHandle, SetAttr, StoreError,
    StoreFuture, StoreResult,
};

/// A mounted tree, created by [`PosixStore::open`].
pub struct PosixStore {
    pub(crate) tree: Arc<Tree>,
    pub(crate) pool: BufferPool,
    pub(crate) traits: StoreTraits,
    pub(crate) direct_io: DirectIo,
}

impl std::fmt::Debug for PosixStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PosixStore({})", String::from_utf8_lossy(&self.tree.root_path))
    }
}

impl PosixStore {
    /// Releases all cached objects that no client has open, child mounts
    /// included, so that they can be unmounted. They are found again on access.
    pub fn release(&self) {
        self.tree.release();
    }

    /// Notes that its content may have been replaced: see [`crate::Losses::content_replaced`].
    pub fn content_replaced(&self) {
        self.tree.losses.content_replaced();
    }

    /// Begins to sync all files with unstable writes that are kept open for that; returns
    /// whether there are any. If the store is closed before they are synced, clients write
    /// their data again.
    #[must_use]
    pub fn begin_syncs(&self) -> bool {
        self.tree.unsynced.sync_all(|_| true)
    }

    /// Returns whether an open file has lost its last name: once closed, it
    /// cannot be opened again.
    #[must_use]
    pub fn is_removed(file: &OpenFile) -> bool {
        PosixFile::of(file).is_ok_and(|file| is_gone(&file.entry))
    }

    /// Opens a regular file for `who` once more: the access was granted before,
    /// and a later change of the file's owner or mode does not revoke it. What is
    /// lent is this right alone: changes of the data remain those of `who`.
    ///
    /// # Errors
    /// If there is no such file, or it cannot be opened.
    pub async fn open_granted(
        &self,
        who: &Caller,
        node: &NodeHandle,
        access: OpenAccess,
    ) -> StoreResult<OpenFile> {
        let (who, node) = (who.clone(), *node);
        self.by_itself(&node, move |tree| tree.open_granted(&who, &node, access)).await
    }

    /// Returns the path that it was opened at, free of symbolic links.
    #[must_use]
    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.tree.root_path))
    }

    /// Returns the engine for the storage of the root.
    #[must_use]
    pub fn engine(&self) -> &IoEngine {
        &self.tree.root.mount.engine
    }

    /// Runs work on `node` on a metadata worker under the process's own
    /// identity.
    async fn by_itself<T: Send + 'static>(
        &self,
        node: &NodeHandle,
        work: impl FnOnce(&Arc<Tree>) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        let tree = Arc::clone(&self.tree);
        self.tree.engine_of(node).run(move || work(&tree)).await.or_store()?
    }

    /// Reads attributes, to which everybody has a right, on a metadata worker: those of a cached
    /// object on a disk of this machine under whichever identity the worker has. Only the
    /// process finds an object that is not cached, and the server of a network file system is
    /// told that the process asks.
    async fn attr_by_worker(&self, node: NodeHandle) -> StoreResult<Attr> {
        let read = move |tree: &Arc<Tree>| tree.live_attr(&*tree.entry(&node)?);
        let on_disk = self.tree.cached(&node).filter(|entry| !entry.mount.is_remote());
        let Some(engine) = on_disk.map(|entry| entry.mount.engine.clone()) else {
            return self.by_itself(&node, read).await;
        };
        let tree = Arc::clone(&self.tree);
        engine.run_as_anyone(move || read(&tree)).await.or_store()?
    }

    /// Runs work on `node` on a metadata worker as `who`.
    async fn by<T: Send + 'static>(
        &self,
        who: &Caller,
        node: &NodeHandle,
        work: impl FnOnce(&Arc<Tree>, &Caller) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        self.on(self.tree.engine_of(node), who, work).await
    }

    /// Does the same on the workers of `engine`.
    async fn on<T: Send + 'static>(
        &self,
        engine: IoEngine,
        who: &Caller,
        work: impl FnOnce(&Arc<Tree>, &Caller) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        let (tree, caller) = (Arc::clone(&self.tree), who.clone());
        if !self.tree.switches_identity {
            return engine.run(move || work(&tree, &caller)).await.or_store()?;
        }
        match engine.run_as(who.clone(), move || work(&tree, &caller)).await.or_store() {
            Ok(outcome) => outcome,
            Err(StoreError::OutOfResources) => Err(StoreError::OutOfResources),
            // An identity that cannot be taken on has no rights.
            Err(_) => Err(StoreError::AccessDenied),
        }
    }

    /// Runs a change of names or attributes as [`Self::by`] does. Refuses it
    /// while an earlier change cannot be brought to stable storage, because its
    /// client would only wait behind that one.
    async fn change<T: Send + 'static>(
        &self,
        who: &Caller,
        node: &NodeHandle,
        work: impl FnOnce(&Arc<Tree>, &Caller) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        self.tree.mount_of(node).names.check()?;
        self.by(who, node, work).await
    }

    /// Runs work on a data worker.
    async fn long<T: Send + 'static>(
        &self,
        engine: &IoEngine,
        work: impl FnOnce() -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        engine.run_long(work).await.or_store()?
    }
}

impl Drop for PosixStore {
    /// Closes cached objects on a worker, because there may be many.
    fn drop(&mut self) {
        let tree = Arc::clone(&self.tree);
        // Until then its file systems are in use.
        let freeing = tree.begin_freeing();
        // Without a sync, which a disk may take long over, also when the process ends.
        let close = move || {
            tree.unsynced.abandon();
            tree.release();
            drop(tree);
            drop(freeing);
        };
        if on_a_worker() { close() } else { self.engine().detach(close) }
    }
}

impl FileStore for PosixStore {
    fn root(&self) -> NodeHandle {
        self.tree.root.handle
    }

    fn traits(&self) -> StoreTraits {
        self.traits
    }

    fn identity(&self, node: &NodeHandle) -> Option<NodeHandle> {
        self.tree.identities.of(node)
    }

    fn fsid(&self) -> FsId {
        self.tree.root.mount.fsid
    }

    fn recent_attr(&self, node: &NodeHandle) -> Option<Attr> {
        self.known_attr(node)
    }

    fn getattr<'a>(&'a self, node: &'a NodeHandle) -> StoreFuture<'a, Attr> {
        Box::pin(async move {
            if let Some(entry) = self.at_hand(node) {
                return self.tree.live_attr(&entry);
            }
            self.attr_by_worker(*node).await
        })
    }

    fn lookup<'a>(
        &'a self,
        who: &'a Caller,
        dir: &'a NodeHandle,
        name: &'a [u8],
    ) -> StoreFuture<'a, Node> {
        Box::pin(async move {
            if let Some(answer) = self.tree.lookup_in_memory(who, dir, name) {
                return answer;
            }
            self.look_up(who, *dir, name).await
        })
    }

    fn lookup_parent<'a>(&'a self, who: &'a Caller, dir: &'a NodeHandle) -> StoreFuture<'a, Node> {
        Box::pin(self.look_up_parent(who, *dir))
    }

    fn access<'a>(&'a self, who: &'a Caller, node: &'a NodeHandle) -> StoreFuture<'a, AccessMask> {
        Box::pin(async move {
            if let Some(entry) = self.at_hand(node)
                && let Some(answer) = self.tree.inline_as(who, || self.tree.access(who, &entry))
            {
                return answer;
            }
            let node = *node;
            self.by(who, &node, move |tree, who| tree.access(who, &*tree.entry(&node)?)).await
        })
    }

    fn setattr<'a>(
        &'a self,
        who: &'a Caller,
        node: &'a NodeHandle,
        changes: &'a SetAttr,
        open: Option<&'a OpenFile>,
    ) -> StoreFuture<'a, Attr> {
        Box::pin(async move {
            let (node, changes, open) = (*node, changes.clone(), open.cloned());
            self.change(who, &node, move |tree, who| {
                let open = open.as_ref().map(PosixFile::of).transpose()?;
                tree.setattr(who, &node, &changes, open)
            })
            .await
        })
    }

    fn readlink<'a>(&'a self, _: &'a Caller, node: &'a NodeHandle) -> StoreFuture<'a, Vec<u8>> {
        Box::pin(async move {
            let node = *node;
            self.by_itself(&node, move |tree| tree.readlink(&*tree.entry(&node)?)).await
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
        Box::pin(self.create_or_find(who, *dir, name, mode, attrs))
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
            let (dir, name, what, attrs) = (*dir, name.to_vec(), what.clone(), attrs.clone());
            self.change(who, &dir, move |tree, who| {
                tree.create_node(who, &dir, &name, &what, &attrs)
            })
            .await
        })
    }

    fn open<'a>(
        &'a self,
        who: &'a Caller,
        node: &'a NodeHandle,
        access: OpenAccess,
    ) -> StoreFuture<'a, OpenFile> {
        Box::pin(self.open_file(who, *node, access))
    }

    fn remove<'a>(
        &'a self,
        who: &'a Caller,
        dir: &'a NodeHandle,
        name: &'a [u8],
        kind: Option<FileKind>,
    ) -> StoreFuture<'a, DirChange> {
        Box::pin(async move {
            let (dir, name) = (*dir, name.to_vec());
            self.change(who, &dir, move |tree, who| tree.remove(who, &dir, &name, kind)).await
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
            self.tree.refuse_crossing(from_dir, to_dir)?;
            let (from_dir, from_name) = (*from_dir, from_name.to_vec());
            let (to_dir, to_name) = (*to_dir, to_name.to_vec());
            self.change(who, &from_dir, move |tree, who| {
                tree.rename(who, &from_dir, &from_name, &to_dir, &to_name)
            })
            .await
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
            self.tree.refuse_crossing(node, dir)?;
            let (node, dir, name) = (*node, *dir, name.to_vec());
            self.change(who, &node, move |tree, who| tree.link(who, &node, &dir, &name)).await
        })
    }

    fn readdir<'a>(
        &'a self,
        who: &'a Caller,
        dir: &'a NodeHandle,
        cookie: u64,
        max_entries: usize,
        with_nodes: bool,
    ) -> StoreFuture<'a, DirPage> {
        Box::pin(async move {
            let listed = self.tree.readdir_in_memory(who, dir, cookie, max_entries, with_nodes);
            if let Some(answer) = listed {
                return answer;
            }
            let dir = *dir;
            let list = move |tree: &Arc<Tree>, who: &Caller| {
                tree.readdir(who, &dir, cookie, max_entries, with_nodes)
            };
            let (mut page, mounted) = self.by(who, &dir, list).await?;
            for (index, engine) in mounted {
                let entry = &mut page.entries[index];
                let (tree, name, cookie) =
                    (Arc::clone(&self.tree), entry.name.clone(), entry.cookie);
                let found = engine.run(move || tree.mounted_node(&dir, &name, cookie)).await;
                entry.node = found.or_store().and_then(|node| node);
            }
            Ok(page)
        })
    }

    fn read<'a>(
        &'a self,
        file: &'a OpenFile,
        offset: u64,
        len: usize,
        how: ReadHow,
    ) -> StoreFuture<'a, ReadData> {
        Box::pin(async move {
            let file = PosixFile::of(file)?;
            data::read(&self.pool, self.direct_io, file, (offset, len), how).await
        })
    }

    fn write<'a>(
        &'a self,
        file: &'a OpenFile,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> StoreFuture<'a, (usize, Stability)> {
        Box::pin(async move { data::write(PosixFile::of(file)?, offset, data, stability).await })
    }

    fn losses(&self) -> u64 {
        self.tree.losses.generation()
    }

    fn commit<'a>(&'a self, file: &'a OpenFile) -> StoreFuture<'a, ()> {
        Box::pin(async move { data::commit(PosixFile::of(file)?).await })
    }

    fn allocate<'a>(&'a self, file: &'a OpenFile, offset: u64, len: u64) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let file = PosixFile::of(file)?;
            ranges::change(file, None, move |fd| ranges::allocate(fd, offset, len)).await
        })
    }

    fn deallocate<'a>(&'a self, file: &'a OpenFile, offset: u64, len: u64) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let file = PosixFile::of(file)?;
            ranges::change(file, None, move |fd| ranges::deallocate(fd, offset, len)).await
        })
    }

    fn seek<'a>(&'a self, file: &'a OpenFile, offset: u64, what: SeekWhat) -> StoreFuture<'a, u64> {
        Box::pin(async move { ranges::seek(PosixFile::of(file)?, offset, what).await })
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
            let (from, to) = (PosixFile::of(from)?, PosixFile::of(to)?);
            let source = from.reader().ok_or(StoreError::AccessDenied)?;
            let copy = move |fd: &OwnedFd| ranges::copy(&source, from_offset, fd, to_offset, len);
            ranges::change(to, Some(from), copy).await
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
            let (from, to) = (PosixFile::of(from)?, PosixFile::of(to)?);
            let source = from.reader().ok_or(StoreError::AccessDenied)?;
            let clone = move |fd: &OwnedFd| ranges::clone(&source, from_offset, fd, to_offset, len);
            ranges::change(to, Some(from), clone).await
        })
    }

    fn advise<'a>(
        &'a self,
        file: &'a OpenFile,
        offset: u64,
        len: u64,
        advice: Advice,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let file = PosixFile::of(file)?;
            file.entry.note_advice(self.direct_io, advice);
            let fd = file.any()?;
            self.long(&file.entry.mount.engine, move || {
                ranges::advise(&fd, offset, len, advice);
                Ok(())
            })
            .await
        })
    }

    fn sync_objects<'a>(&'a self, nodes: &'a [NodeHandle]) -> StoreFuture<'a, ()> {
        Box::pin(self.tree.sync_objects(nodes))
    }

    fn sync_names<'a>(&'a self, of: NamedObject, dirs: &'a [NodeHandle]) -> StoreFuture<'a, ()> {
        Box::pin(self.tree.sync_names(of, dirs))
    }

    fn statfs<'a>(&'a self, node: &'a NodeHandle) -> StoreFuture<'a, FsStat> {
        Box::pin(async move {
            let node = *node;
            self.by_itself(&node, move |tree| statfs(&*tree.entry(&node)?)).await
        })
    }

    fn get_xattr<'a>(
        &'a self,
        who: &'a Caller,
        node: &'a NodeHandle,
        name: &'a [u8],
    ) -> StoreFuture<'a, Vec<u8>> {
        Box::pin(async move {
            let (node, name) = (*node, name.to_vec());
            self.by(who, &node, move |tree, who| tree.get_xattr(who, &node, &name)).await
        })
    }

    fn set_xattr<'a>(
        &'a self,
        who: &'a Caller,
        node: &'a NodeHandle,
        name: &'a [u8],
        value: &'a [u8],
        how: XattrSet,
    ) -> StoreFuture<'a, DirChange> {
        Box::pin(async move {
            let (node, name, value) = (*node, name.to_vec(), value.to_vec());
            self.change(who, &node, move |tree, who| tree.set_xattr(who, &node, &name, &value, how))
                .await
        })
    }

    fn list_xattrs<'a>(
        &'a self,
        who: &'a Caller,
        node: &'a NodeHandle,
    ) -> StoreFuture<'a, Vec<Vec<u8>>> {
        Box::pin(async move {
            let node = *node;
            self.by(who, &node, move |tree, who| tree.list_xattrs(who, &node)).await
        })
    }

    fn remove_xattr<'a>(
        &'a self,
        who: &'a Caller,
        node: &'a NodeHandle,
        name: &'a [u8],
    ) -> StoreFuture<'a, DirChange> {
        Box::pin(async move {
            let (node, name) = (*node, name.to_vec());
            self.change(who, &node, move |tree, who| tree.remove_xattr(who, &node, &name)).await
        })
    }

    fn get_acl<'a>(&'a self, node: &'a NodeHandle) -> StoreFuture<'a, PosixAcl> {
        Box::pin(async move {
            let node = *node;
            self.by_itself(&node, move |tree| tree.get_acl(&node)).await
        })
    }

    fn set_acl<'a>(
        &'a self,
        who: &'a Caller,
        node: &'a NodeHandle,
        acl: &'a PosixAcl,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let (node, acl) = (*node, acl.clone());
            self.change(who, &node, move |tree, who| tree.set_acl(who, &node, &acl)).await
        })
    }
}
