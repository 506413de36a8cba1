//! The store trait on top of the tree: every call passes the faults, then has
//! its effect at one moment.

use crate::builder::MemoryStoreBuilder;
use crate::faults::{Faults, FileOp};
use crate::inode::Inode;
use crate::open_file::MemoryFile;
use crate::tree::Tree;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zgate_store::attr::FsId;
use zgate_store::file_store::{
    Advice, CreateMode, CreatedFile, DirChange, DirPage, FsStat, NamedObject, NewNode, Node,
    OpenAccess, OpenFile, PosixAcl, ReadData, ReadHow, SeekWhat, Stability, StoreTraits, XattrSet,
};
use zgate_store::{
    AccessMask, Attr, Caller, FileKind, FileStore, NodeHandle, SetAttr, StoreError, StoreFuture,
    StoreResult,
};

/// A tree of files in memory. Clones share it.
///
/// Name-space and attribute changes are stable at once; data is stable after a
/// stable write or COMMIT. See [`MemoryStore::crash`].
#[derive(Clone)]
pub struct MemoryStore {
    pub(crate) shared: Arc<Shared>,
}

/// A tree at one moment, by the numbers of its objects; see [`MemoryStore::snapshot`].
#[derive(Clone, Debug)]
pub struct Snapshot(BTreeMap<u64, Inode>);

/// State shared by a store and its open files.
pub(crate) struct Shared {
    pub(crate) tree: Mutex<Tree>,
    pub(crate) faults: Faults<FileOp>,
    pub(crate) crashes: AtomicU64,
    pub(crate) losses: AtomicU64,
    /// Reads that might have been answered with a span.
    pub(crate) reads_to_send: AtomicU64,
    pub(crate) root: NodeHandle,
    pub(crate) traits: StoreTraits,
    pub(crate) fsid: FsId,
}

impl Shared {
    /// Locks the tree; the lock is never held across an await.
    pub(crate) fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemoryStore({:?})", self.shared.fsid)
    }
}

impl MemoryStore {
    /// Creates an unlimited store whose root directory belongs to root with
    /// mode 0755.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Returns a builder, for other properties.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder::default()
    }

    /// Returns the faults that can be set for this store.
    #[must_use]
    pub fn faults(&self) -> Faults<FileOp> {
        self.shared.faults.clone()
    }

    /// Simulates a power loss: unstable data falls back to its stable version.
    /// Held calls fail with [`StoreError::Io`], so that no call promises
    /// anything across the loss. Open files stay open. Returns the number of
    /// files that lost data.
    pub fn crash(&self) -> usize {
        self.shared.crashes.fetch_add(1, Ordering::AcqRel);
        self.shared.tree().crash()
    }

    /// Takes a snapshot, as `zfs snapshot` does: of what readers see, whether it was synced or not.
    /// A file that has no name any more is not in it.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.shared.tree().snapshot())
    }

    /// Goes back to a snapshot of this store, as `zfs rollback` does to a mounted file system: its
    /// objects have their handles, and are on stable storage. Open files stay open. What the
    /// snapshot does not have is gone: handles and open files are stale. Returns the number of
    /// objects that had changed since. [`FileStore::losses`] does not count it.
    pub fn roll_back(&self, to: &Snapshot) -> usize {
        self.shared.tree().roll_back(&to.0)
    }

    /// Returns the number of reads so far that allowed a span: data that is read from the
    /// file when it is sent. This store answers with bytes all the same.
    #[must_use]
    pub fn reads_to_send(&self) -> u64 {
        self.shared.reads_to_send.load(Ordering::Acquire)
    }

    fn crashes(&self) -> u64 {
        self.shared.crashes.load(Ordering::Acquire)
    }

    /// Runs one operation: faults before, effect, faults after.
    fn run<'a, T: Send + 'a>(
        &'a self,
        op: FileOp,
        effect: impl FnOnce(&mut Tree) -> StoreResult<T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move {
            let began = self.crashes();
            self.shared.faults.before(op).await?;
            if self.crashes() != began {
                return Err(StoreError::Io);
            }
            let result = effect(&mut self.shared.tree());
            self.shared.faults.after(op).await?;
            if self.crashes() == began { result } else { Err(StoreError::Io) }
        })
    }

    /// Counts a failed sync.
    fn note_loss<T>(&self, synced: StoreResult<T>) -> StoreResult<T> {
        if let Err(StoreError::Io | StoreError::NoSpace | StoreError::QuotaExceeded) = synced {
            self.shared.losses.fetch_add(1, Ordering::AcqRel);
        }
        synced
    }

    /// Runs one operation on an open file.
    fn run_on<'a, T: Send + 'a>(
        &'a self,
        op: FileOp,
        file: &'a OpenFile,
        effect: impl FnOnce(&mut Tree, &MemoryFile) -> StoreResult<T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        self.run(op, move |tree| effect(tree, MemoryFile::of(&self.shared, file)?))
    }
}

impl FileStore for MemoryStore {
    fn root(&self) -> NodeHandle {
        self.shared.root
    }

    fn traits(&self) -> StoreTraits {
        self.shared.traits
    }

    fn fsid(&self) -> FsId {
        self.shared.fsid
    }

    fn identity(&self, node: &NodeHandle) -> Option<NodeHandle> {
        // It names the file system, too.
        Some(*node)
    }

    fn recent_attr(&self, _: &NodeHandle) -> Option<Attr> {
        // The present ones need no other thread.
        None
    }

    fn getattr<'a>(&'a self, node: &'a NodeHandle) -> StoreFuture<'a, Attr> {
        self.run(FileOp::GetAttr, |tree| tree.getattr(node))
    }

    fn lookup<'a>(
        &'a self,
        who: &'a Caller,
        dir: &'a NodeHandle,
        name: &'a [u8],
    ) -> StoreFuture<'a, Node> {
        self.run(FileOp::Lookup, move |tree| tree.lookup(who, dir, name))
    }

    fn lookup_parent<'a>(&'a self, who: &'a Caller, dir: &'a NodeHandle) -> StoreFuture<'a, Node> {
        self.run(FileOp::LookupParent, move |tree| tree.lookup_parent(who, dir))
    }

    fn access<'a>(&'a self, who: &'a Caller, node: &'a NodeHandle) -> StoreFuture<'a, AccessMask> {
        self.run(FileOp::Access, move |tree| tree.access(who, node))
    }

    fn setattr<'a>(
        &'a self,
        who: &'a Caller,
        node: &'a NodeHandle,
        changes: &'a SetAttr,
        open: Option<&'a OpenFile>,
    ) -> StoreFuture<'a, Attr> {
        self.run(FileOp::SetAttr, move |tree| {
            let open = open.map(|file| MemoryFile::of(&self.shared, file)).transpose()?;
            let writer = open.and_then(|file| file.writable().ok());
            tree.setattr(who, node, changes, writer)
        })
    }

    fn readlink<'a>(&'a self, _: &'a Caller, node: &'a NodeHandle) -> StoreFuture<'a, Vec<u8>> {
        self.run(FileOp::ReadLink, |tree| tree.readlink(node))
    }

    fn create_file<'a>(
        &'a self,
        who: &'a Caller,
        dir: &'a NodeHandle,
        name: &'a [u8],
        mode: CreateMode,
        attrs: &'a SetAttr,
    ) -> StoreFuture<'a, CreatedFile> {
        self.run(FileOp::CreateFile, move |tree| {
            let made = tree.create_file(who, dir, name, mode, attrs)?;
            let open = made
                .opened
                .map(|number| MemoryFile::open(&self.shared, number, (true, true), who.uid == 0));
            Ok(CreatedFile {
                node: made.node,
                open,
                created: made.created,
                is_stable: false,
                dir: made.dir,
            })
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
        self.run(FileOp::CreateNode, move |tree| tree.create_node(who, dir, name, what, attrs))
    }

    fn open<'a>(
        &'a self,
        who: &'a Caller,
        node: &'a NodeHandle,
        access: OpenAccess,
    ) -> StoreFuture<'a, OpenFile> {
        self.run(FileOp::Open, move |tree| {
            let number = tree.open(who, node, access)?;
            let rights = (access.read, access.write);
            Ok(MemoryFile::open(&self.shared, number, rights, who.uid == 0))
        })
    }

    fn remove<'a>(
        &'a self,
        who: &'a Caller,
        dir: &'a NodeHandle,
        name: &'a [u8],
        kind: Option<FileKind>,
    ) -> StoreFuture<'a, DirChange> {
        self.run(FileOp::Remove, move |tree| tree.remove(who, dir, name, kind))
    }

    fn rename<'a>(
        &'a self,
        who: &'a Caller,
        from_dir: &'a NodeHandle,
        from_name: &'a [u8],
        to_dir: &'a NodeHandle,
        to_name: &'a [u8],
    ) -> StoreFuture<'a, (DirChange, DirChange)> {
        self.run(FileOp::Rename, move |tree| tree.rename(who, from_dir, from_name, to_dir, to_name))
    }

    fn link<'a>(
        &'a self,
        who: &'a Caller,
        node: &'a NodeHandle,
        dir: &'a NodeHandle,
        name: &'a [u8],
    ) -> StoreFuture<'a, DirChange> {
        self.run(FileOp::Link, move |tree| tree.link(who, node, dir, name))
    }

    fn readdir<'a>(
        &'a self,
        who: &'a Caller,
        dir: &'a NodeHandle,
        cookie: u64,
        max_entries: usize,
        with_nodes: bool,
    ) -> StoreFuture<'a, DirPage> {
        self.run(FileOp::ReadDir, move |tree| {
            tree.readdir(who, dir, cookie, max_entries, with_nodes)
        })
    }

    fn read<'a>(
        &'a self,
        file: &'a OpenFile,
        offset: u64,
        len: usize,
        how: ReadHow,
    ) -> StoreFuture<'a, ReadData> {
        if how.span_allowed {
            self.shared.reads_to_send.fetch_add(1, Ordering::AcqRel);
        }
        self.run_on(FileOp::Read, file, move |tree, file| tree.read(file, (offset, len), how))
    }

    fn write<'a>(
        &'a self,
        file: &'a OpenFile,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> StoreFuture<'a, (usize, Stability)> {
        Box::pin(async move {
            let write =
                |tree: &mut Tree, file: &MemoryFile| tree.write(file, offset, &data, stability);
            let written = self.run_on(FileOp::Write, file, write).await;
            if stability == Stability::Unstable { written } else { self.note_loss(written) }
        })
    }

    fn losses(&self) -> u64 {
        self.shared.losses.load(Ordering::Acquire)
    }

    fn commit<'a>(&'a self, file: &'a OpenFile) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let commit = |tree: &mut Tree, file: &MemoryFile| tree.commit(file);
            self.note_loss(self.run_on(FileOp::Commit, file, commit).await)
        })
    }

    fn sync_objects<'a>(&'a self, _: &'a [NodeHandle]) -> StoreFuture<'a, ()> {
        // Names and attributes are stable here as soon as they change.
        Box::pin(async { self.note_loss(self.run(FileOp::SyncObjects, |_| Ok(())).await) })
    }

    fn sync_names<'a>(&'a self, _: NamedObject, dirs: &'a [NodeHandle]) -> StoreFuture<'a, ()> {
        self.sync_objects(dirs)
    }

    fn allocate<'a>(&'a self, file: &'a OpenFile, offset: u64, len: u64) -> StoreFuture<'a, ()> {
        self.run_on(FileOp::Allocate, file, move |tree, file| tree.allocate(file, offset, len))
    }

    fn deallocate<'a>(&'a self, file: &'a OpenFile, offset: u64, len: u64) -> StoreFuture<'a, ()> {
        self.run_on(FileOp::Deallocate, file, move |tree, file| tree.deallocate(file, offset, len))
    }

    fn seek<'a>(&'a self, file: &'a OpenFile, offset: u64, what: SeekWhat) -> StoreFuture<'a, u64> {
        self.run_on(FileOp::Seek, file, move |tree, file| tree.seek(file, offset, what))
    }

    fn copy_range<'a>(
        &'a self,
        from: &'a OpenFile,
        from_offset: u64,
        to: &'a OpenFile,
        to_offset: u64,
        len: u64,
    ) -> StoreFuture<'a, u64> {
        self.run_on(FileOp::CopyRange, from, move |tree, from| {
            let to = MemoryFile::of(&self.shared, to)?;
            tree.copy(from, from_offset, to, to_offset, len)
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
        self.run_on(FileOp::CloneRange, from, move |tree, from| {
            let to = MemoryFile::of(&self.shared, to)?;
            tree.clone(from, from_offset, to, to_offset, len)
        })
    }

    fn advise<'a>(&'a self, file: &'a OpenFile, _: u64, _: u64, _: Advice) -> StoreFuture<'a, ()> {
        self.run_on(FileOp::Advise, file, |_, _| Ok(()))
    }

    fn statfs<'a>(&'a self, node: &'a NodeHandle) -> StoreFuture<'a, FsStat> {
        self.run(FileOp::StatFs, |tree| tree.statfs(node))
    }

    fn get_xattr<'a>(
        &'a self,
        who: &'a Caller,
        node: &'a NodeHandle,
        name: &'a [u8],
    ) -> StoreFuture<'a, Vec<u8>> {
        self.run(FileOp::GetXattr, move |tree| tree.get_xattr(who, node, name))
    }

    fn set_xattr<'a>(
        &'a self,
        who: &'a Caller,
        node: &'a NodeHandle,
        name: &'a [u8],
        value: &'a [u8],
        how: XattrSet,
    ) -> StoreFuture<'a, DirChange> {
        self.run(FileOp::SetXattr, move |tree| tree.set_xattr(who, node, name, value, how))
    }

    fn list_xattrs<'a>(
        &'a self,
        who: &'a Caller,
        node: &'a NodeHandle,
    ) -> StoreFuture<'a, Vec<Vec<u8>>> {
        self.run(FileOp::ListXattrs, move |tree| tree.list_xattrs(who, node))
    }

    fn remove_xattr<'a>(
        &'a self,
        who: &'a Caller,
        node: &'a NodeHandle,
        name: &'a [u8],
    ) -> StoreFuture<'a, DirChange> {
        self.run(FileOp::RemoveXattr, move |tree| tree.remove_xattr(who, node, name))
    }

    fn get_acl<'a>(&'a self, node: &'a NodeHandle) -> StoreFuture<'a, PosixAcl> {
        self.run(FileOp::GetAcl, |tree| tree.get_acl(node))
    }

    fn set_acl<'a>(
        &'a self,
        who: &'a Caller,
        node: &'a NodeHandle,
        acl: &'a PosixAcl,
    ) -> StoreFuture<'a, ()> {
        self.run(FileOp::SetAcl, move |tree| tree.set_acl(who, node, acl))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::When;
    use crate::fixture::*;
    use std::pin::pin;
    use std::task::Poll;

    #[test]
    fn it_is_a_store_like_any_other() {
        let store: Arc<dyn FileStore> = Arc::new(MemoryStore::new());
        let attr = block_on(store.getattr(&store.root())).unwrap();
        assert_eq!((attr.kind, attr.mode, attr.uid), (FileKind::Directory, 0o755, 0));
        assert_eq!(attr.fsid, store.fsid());
    }

    #[test]
    fn a_power_loss_takes_what_was_not_promised() {
        let s = Fixture::new();
        let (node, file) = s.file("f");
        s.write_so(&file, 0, b"promised", Stability::FileSync).unwrap();
        s.write(&file, 8, b" later").unwrap();
        block_on(s.store.commit(&file)).unwrap();
        s.write(&file, 0, b"lost").unwrap();
        s.write(&file, 1 << 20, b"lost").unwrap();
        let (_, other) = s.file("other");
        s.write_so(&other, 0, b"kept", Stability::DataSync).unwrap();
        let before = block_on(s.store.getattr(&node.handle)).unwrap();
        assert_eq!(s.store.crash(), 1);
        assert_eq!(s.read(&file, 0, 100).0, b"promised later");
        assert_eq!(s.read(&other, 0, 100).0, b"kept");
        let after = block_on(s.store.getattr(&node.handle)).unwrap();
        assert!(after.change > before.change && after.used_bytes < before.used_bytes);
        assert!(s.lookup(&s.root(), "other").is_ok());
        assert_eq!(s.store.crash(), 0);
    }

    #[test]
    fn a_rollback_brings_back_what_the_snapshot_has_and_nothing_else() {
        let s = Fixture::new();
        let ((node, file), (kept, _)) = (s.file("f"), s.file("kept"));
        let removed = s.mkdir(&s.root(), "removed");
        s.write(&file, 0, b"then").unwrap();
        let snapshot = s.store.snapshot();
        s.write_so(&file, 0, b"later", Stability::FileSync).unwrap();
        s.remove(&s.root(), "removed").unwrap();
        let (newer, open) = s.file("newer");
        let change = |node: &NodeHandle| block_on(s.store.getattr(node)).unwrap().change;
        let before = [change(&s.root()), change(&node.handle), change(&kept.handle)];
        // The root, the file and the directory that was removed.
        assert_eq!(s.store.roll_back(&snapshot), 3);
        assert_eq!((s.read(&file, 0, 100).0, s.store.crash()), (b"then".to_vec(), 0));
        assert_eq!(s.lookup(&s.root(), "removed").unwrap().handle, removed.handle);
        assert!(change(&s.root()) > before[0] && change(&node.handle) > before[1]);
        assert_eq!(change(&kept.handle), before[2]);
        assert_eq!(error_of(block_on(s.store.getattr(&newer.handle))), StoreError::Stale);
        assert_eq!(s.write(&open, 0, b"x"), Err(StoreError::Stale));
        drop(open);
        assert_ne!(s.file("newer").0.handle, newer.handle);
        assert_eq!(s.write(&file, 4, b" and now"), Ok(8));
        s.store.roll_back(&snapshot);
        assert_eq!(s.read(&file, 0, 100).0, b"then", "a snapshot can be used again");
    }

    #[test]
    fn what_fails_has_no_effect() {
        let s = Fixture::new();
        let (_, file) = s.file("f");
        s.store.faults().fail_next(FileOp::Write, StoreError::Io);
        assert_eq!(s.write(&file, 0, b"x"), Err(StoreError::Io));
        assert_eq!(s.read(&file, 0, 10).0, b"");
        assert_eq!(s.write(&file, 0, b"x"), Ok(1));
        // A failed COMMIT has promised nothing.
        s.store.faults().fail_next(FileOp::Commit, StoreError::Io);
        assert_eq!(block_on(s.store.commit(&file)), Err(StoreError::Io));
        s.store.crash();
        assert_eq!(s.read(&file, 0, 10).0, b"");
        assert_eq!(s.store.faults().calls(FileOp::Write), 2);
    }

    #[test]
    fn a_held_call_has_its_effect_when_released() {
        let s = Fixture::new();
        let (_, file) = s.file("f");
        let hold = s.store.faults().hold(FileOp::Write, When::BeforeEffect);
        let data = Bytes::from_static(b"x");
        let mut write = pin!(s.store.write(&file, 0, data.clone(), Stability::Unstable));
        assert!(poll_once(write.as_mut()).is_pending());
        assert_eq!((hold.waiting(), s.read(&file, 0, 10).0), (1, vec![]));
        hold.release();
        assert_eq!(poll_once(write.as_mut()), Poll::Ready(Ok((1, Stability::Unstable))));

        let hold = s.store.faults().hold_next(FileOp::Write, When::AfterEffect);
        let mut write = pin!(s.store.write(&file, 1, data, Stability::Unstable));
        assert!(poll_once(write.as_mut()).is_pending());
        assert_eq!(s.read(&file, 0, 10).0, b"xx");
        drop(hold);
        assert!(poll_once(write.as_mut()).is_ready());
    }

    #[test]
    fn calls_under_way_end_with_the_power() {
        let s = Fixture::new();
        let (_, file) = s.file("f");
        for when in [When::BeforeEffect, When::AfterEffect] {
            let hold = s.store.faults().hold(FileOp::Write, when);
            let data = Bytes::from_static(b"x");
            let mut write = pin!(s.store.write(&file, 0, data, Stability::Unstable));
            assert!(poll_once(write.as_mut()).is_pending());
            s.store.crash();
            hold.release();
            assert_eq!(poll_once(write.as_mut()), Poll::Ready(Err(StoreError::Io)));
            assert_eq!(s.read(&file, 0, 10).0, b"");
        }
    }

    #[test]
    fn a_create_that_nobody_waits_for_leaves_no_open_behind() {
        let s = Fixture::new();
        let _hold = s.store.faults().hold_next(FileOp::CreateFile, When::AfterEffect);
        let (who, top, attrs) = (root(), s.root(), SetAttr::default());
        {
            let mut create =
                pin!(s.store.create_file(&who, &top, b"f", CreateMode::Guarded, &attrs));
            assert!(poll_once(create.as_mut()).is_pending());
        }
        let node = s.lookup(&s.root(), "f").unwrap();
        s.remove(&s.root(), "f").unwrap();
        assert_eq!(error_of(block_on(s.store.getattr(&node.handle))), StoreError::Stale);
    }
}
