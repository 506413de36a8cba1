//! Files opened by clients.

use crate::entry::{Entry, Writer};
use crate::losses::Losses;
use crate::mounts::Mount;
use crate::syscall;
use crate::tree::Tree;
use crate::unsynced::UnstableWrite;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use zgate_io::access_check::Rights;
use zgate_io::{SetIdBits, WriteMode, on_a_worker};
use zgate_store::file_store::{OpenAccess, OpenFile};
use zgate_store::{Caller, FileKind, NodeHandle, StoreError, StoreResult};

/// The store's [`OpenFile`]: it closes the file when its last user drops it.
struct Opened(Option<PosixFile>);

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(file) = self.0.take() {
            file.close();
        }
    }
}

/// An open file: exactly the rights that `open` granted.
pub(crate) struct PosixFile {
    /// Keeps the object alive and findable.
    pub(crate) entry: Arc<Entry>,
    tree: Arc<Tree>,
    reader: Option<Arc<OwnedFd>>,
    writer: Option<Writer>,
    /// Effect of changes under this open on set-id bits: decided by the
    /// opener's rights.
    pub(crate) set_id: SetIdBits,
}

impl PosixFile {
    /// Creates a file opened by `who`.
    pub(crate) fn new(
        tree: &Arc<Tree>,
        entry: Arc<Entry>,
        reader: Option<Arc<OwnedFd>>,
        writer: Option<Writer>,
        who: &Caller,
    ) -> Self {
        let set_id = SetIdBits::after_change_by(who);
        Self { entry, tree: Arc::clone(tree), reader, writer, set_id }
    }

    /// Creates a file that `who` has just created: it may be read as well as
    /// written, regardless of its mode.
    pub(crate) fn created(
        tree: &Arc<Tree>,
        entry: Arc<Entry>,
        writer: Writer,
        who: &Caller,
    ) -> Self {
        Self::new(tree, entry, Some(Arc::clone(&writer.fd)), Some(writer), who)
    }

    /// Returns the file for clients: it counts as open until the last of them drops it.
    pub(crate) fn into_open(self) -> OpenFile {
        self.entry.opens.fetch_add(1, Ordering::AcqRel);
        Arc::new(Opened(Some(self)))
    }

    /// Returns the store's own file behind an open file; an error if it is
    /// another store's.
    pub(crate) fn of(file: &OpenFile) -> StoreResult<&Self> {
        let opened: Option<&Opened> = file.downcast_ref();
        opened.and_then(|opened| opened.0.as_ref()).ok_or(StoreError::BadHandle)
    }

    /// Returns the descriptor for reading, if read access was granted.
    pub(crate) fn reader(&self) -> Option<Arc<OwnedFd>> {
        self.reader.clone()
    }

    /// Returns the descriptor for writing, if write access was granted.
    pub(crate) fn writer(&self) -> Option<Arc<OwnedFd>> {
        self.writer.as_ref().map(|writer| Arc::clone(&writer.fd))
    }

    /// Returns the descriptor for writing, with the mode of its writes.
    pub(crate) fn writer_and_mode(&self) -> Option<(Arc<OwnedFd>, WriteMode)> {
        let set_id = self.set_id;
        let mode = |writer: &Writer| WriteMode { method: writer.method, set_id };
        self.writer.as_ref().map(|writer| (Arc::clone(&writer.fd), mode(writer)))
    }

    /// Returns the loss counter of its store.
    pub(crate) fn losses(&self) -> &Losses {
        &self.tree.losses
    }

    /// Begins a change of its data that a COMMIT syncs. `None` if no more files may wait
    /// for that: the change must sync itself.
    pub(crate) fn begin_unstable(&self) -> Option<UnstableWrite<'_>> {
        if !self.entry.reports_losses_once() {
            return Some(UnstableWrite::unrecorded());
        }
        self.tree.unsynced.begin(&self.entry)
    }

    /// Records the result of a COMMIT, whose sync began when `before` unstable writes had
    /// ended.
    pub(crate) fn committed(&self, before: u64, result: StoreResult<()>) {
        if self.entry.reports_losses_once() {
            self.tree.unsynced.synced(&self.entry, before, result);
        }
    }

    /// Returns any descriptor.
    pub(crate) fn any(&self) -> StoreResult<Arc<OwnedFd>> {
        self.writer().or_else(|| self.reader()).ok_or(StoreError::AccessDenied)
    }

    /// Closes the file. The last close of a file without a name frees its space, and even a
    /// stat may take long: a thread that must not wait for the storage does neither.
    fn close(self) {
        if self.entry.opens.fetch_sub(1, Ordering::AcqRel) != 1 {
            return self.let_go();
        }
        match may_close_here(&self.entry.mount) {
            true => self.close_here(),
            // The store keeps it: nothing is freed.
            false if self.had_a_name() => self.let_go(),
            false => self.close_on_worker(),
        }
    }

    /// Returns whether the file had a name a moment ago, as far as this is known without a
    /// look at it. Other hosts may have removed it since.
    fn had_a_name(&self) -> bool {
        let known = || self.entry.recent_attr(Instant::now());
        !self.entry.mount.is_remote() && known().is_some_and(|attr| attr.nlink > 0)
    }

    /// Closes the file on this thread, unless that frees its space.
    fn close_here(self) {
        if !is_gone(&self.entry) {
            return;
        }
        let Self { entry, tree, reader, writer, .. } = self;
        let engine = entry.mount.engine.clone();
        let freeing = tree.begin_freeing();
        tree.orphan(&entry);
        engine.detach(move || {
            drop((entry, reader, writer));
            drop(freeing);
        });
    }

    /// Has a worker look at the file and close it: nothing of it stays with this thread.
    fn close_on_worker(self) {
        let Self { entry, tree, reader, writer, .. } = self;
        let engine = entry.mount.engine.clone();
        // Until then the file system is in use.
        let freeing = tree.begin_freeing();
        engine.detach(move || {
            if is_gone(&entry) {
                tree.orphan(&entry);
            }
            drop((reader, writer, entry, tree));
            drop(freeing);
        });
    }

    /// Gives back what others have as well, the cache of the store or other users of the file.
    /// A worker closes the parts that nobody else has.
    fn let_go(self) {
        let Self { entry, tree, reader, writer, .. } = self;
        let engine = entry.mount.engine.clone();
        let freeing = tree.begin_freeing();
        // Each is the last user's to close, who alone gets it.
        let entry = Arc::into_inner(entry);
        let reader = reader.and_then(Arc::into_inner);
        let writer = writer.and_then(|writer| Arc::into_inner(writer.fd));
        let tree = Arc::into_inner(tree);
        if entry.is_some() || reader.is_some() || writer.is_some() || tree.is_some() {
            engine.detach(move || {
                drop((entry, reader, writer, tree));
                drop(freeing);
            });
        }
    }
}

/// Returns whether the object has lost its last name.
pub(crate) fn is_gone(entry: &Entry) -> bool {
    syscall::stat(&entry.fd).is_ok_and(|stat| stat.stx_nlink == 0)
}

/// Returns whether this thread may look at a file of the mount and close it. In a job it may
/// wait: whoever closes a tree there waits for its files.
fn may_close_here(mount: &Mount) -> bool {
    mount.answers_here() || (on_a_worker() && !mount.is_remote())
}

impl Tree {
    /// Opens a regular file. Runs under `who`'s identity if identities are
    /// switched.
    pub(crate) fn open(
        self: &Arc<Self>,
        who: &Caller,
        node: &NodeHandle,
        access: OpenAccess,
    ) -> StoreResult<OpenFile> {
        let entry = self.entry(node)?;
        self.may_open(who, &entry, access)?;
        self.opened(who, entry, access)
    }

    /// Opens a regular file for `who`, to whom the access was granted before.
    /// Runs under the process's own identity.
    pub(crate) fn open_granted(
        self: &Arc<Self>,
        who: &Caller,
        node: &NodeHandle,
        access: OpenAccess,
    ) -> StoreResult<OpenFile> {
        let entry = self.entry(node)?;
        if entry.kind != FileKind::Regular {
            return Err(StoreError::WrongType);
        }
        self.live_attr(&entry)?;
        self.opened(who, entry, access)
    }

    /// Returns the open file of `who`, with descriptors for this access.
    fn opened(
        self: &Arc<Self>,
        who: &Caller,
        entry: Arc<Entry>,
        access: OpenAccess,
    ) -> StoreResult<OpenFile> {
        let writer = if access.write { Some(entry.writer()?) } else { None };
        let reader = if access.read { Some(entry.reader()?) } else { None };
        Ok(PosixFile::new(self, entry, reader, writer, who).into_open())
    }

    /// Opens a file that is in memory without waiting, unless its file system does; `None`
    /// if that is not possible: a descriptor for writing is opened on a worker.
    pub(crate) fn open_in_memory(
        self: &Arc<Self>,
        who: &Caller,
        entry: Arc<Entry>,
        access: OpenAccess,
    ) -> Option<StoreResult<OpenFile>> {
        if entry.kind != FileKind::Regular || (access.write && entry.cached_writer().is_none()) {
            return None;
        }
        let opened = self.inline_as(who, || -> StoreResult<Option<OpenFile>> {
            self.may_open(who, &entry, access)?;
            let writer = entry.cached_writer().filter(|_| access.write);
            let reader = if access.read { entry.reader_at_once()? } else { None };
            if (reader.is_some(), writer.is_some()) != (access.read, access.write) {
                return Ok(None);
            }
            Ok(Some(PosixFile::new(self, entry, reader, writer, who).into_open()))
        });
        opened?.transpose()
    }

    fn may_open(&self, who: &Caller, entry: &Entry, access: OpenAccess) -> StoreResult<()> {
        match entry.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(StoreError::IsDirectory),
            FileKind::Symlink => return Err(StoreError::IsSymlink),
            _ => return Err(StoreError::WrongType),
        }
        let attr = self.live_attr(entry)?;
        if access.stateless && who.uid == attr.uid {
            return Ok(());
        }
        if access.write {
            self.require(who, entry, Rights::WRITE)?;
        }
        if access.read {
            let readable = self.require(who, entry, Rights::READ);
            let may_execute = access.stateless || access.read_by_execute;
            if readable == Err(StoreError::AccessDenied) && may_execute {
                self.require(who, entry, Rights::EXECUTE)?;
            } else {
                readable?;
            }
        }
        Ok(())
    }
}
