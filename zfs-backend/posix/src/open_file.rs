//! Files opened by clients.

use crate::entry::{Entry, Writer};
use crate::losses::Losses;
use crate::syscall;
use crate::tree::Tree;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zgate_io::access_check::Rights;
use zgate_io::{SetIdBits, WriteMode};
use zgate_store::file_store::{OpenAccess, OpenFile};
use zgate_store::{Caller, FileKind, NodeHandle, StoreError, StoreResult};

/// What the store's [`OpenFile`] is: exactly the rights `open` granted.
pub(crate) struct PosixFile {
    /// Keeps the object alive and findable.
    pub(crate) entry: Arc<Entry>,
    tree: Arc<Tree>,
    reader: Option<Arc<OwnedFd>>,
    writer: Option<Writer>,
    /// What changes under this open do to set-id bits: the opener's right.
    pub(crate) set_id: SetIdBits,
}

impl PosixFile {
    /// A file opened by `who`.
    pub(crate) fn new(
        tree: &Arc<Tree>,
        entry: Arc<Entry>,
        reader: Option<Arc<OwnedFd>>,
        writer: Option<Writer>,
        who: &Caller,
    ) -> Self {
        entry.opens.fetch_add(1, Ordering::AcqRel);
        let set_id = SetIdBits::after_change_by(who);
        Self { entry, tree: Arc::clone(tree), reader, writer, set_id }
    }

    /// A file that `who` created just now: it may be read as well as written,
    /// whatever its mode says.
    pub(crate) fn created(
        tree: &Arc<Tree>,
        entry: Arc<Entry>,
        writer: Writer,
        who: &Caller,
    ) -> Self {
        Self::new(tree, entry, Some(Arc::clone(&writer.fd)), Some(writer), who)
    }

    /// The store's file behind an open file; `None` when it is another store's.
    pub(crate) fn of(file: &OpenFile) -> StoreResult<&Self> {
        file.downcast_ref().ok_or(StoreError::BadHandle)
    }

    /// For reading, if that was granted.
    pub(crate) fn reader(&self) -> Option<Arc<OwnedFd>> {
        self.reader.clone()
    }

    /// For writing, if that was granted.
    pub(crate) fn writer(&self) -> Option<Arc<OwnedFd>> {
        self.writer.as_ref().map(|writer| Arc::clone(&writer.fd))
    }

    /// The same, with how its writes are done.
    pub(crate) fn writer_and_mode(&self) -> Option<(Arc<OwnedFd>, WriteMode)> {
        let set_id = self.set_id;
        let mode = |writer: &Writer| WriteMode { way: writer.way, set_id };
        self.writer.as_ref().map(|writer| (Arc::clone(&writer.fd), mode(writer)))
    }

    /// Counts data of its store that could not be kept.
    pub(crate) fn losses(&self) -> &Losses {
        &self.tree.losses
    }

    /// Whether what is asked of it needs no network: attributes and pages in
    /// memory may be asked for on a core's thread.
    pub(crate) fn answers_at_once(&self) -> bool {
        self.tree.inline_metadata
    }

    /// Whichever there is.
    pub(crate) fn any(&self) -> StoreResult<Arc<OwnedFd>> {
        self.writer().or_else(|| self.reader()).ok_or(StoreError::AccessDenied)
    }
}

impl Drop for PosixFile {
    fn drop(&mut self) {
        let opens = self.entry.opens.fetch_sub(1, Ordering::AcqRel);
        if opens != 1 {
            return;
        }
        // Closing the last descriptor frees the file's space, and even a look at
        // the file may take long where that is not in memory: not on this
        // thread.
        let gone = |entry: &Entry| syscall::stat(&entry.fd).is_ok_and(|stat| stat.stx_nlink == 0);
        let (tree, entry) = (Arc::clone(&self.tree), Arc::clone(&self.entry));
        let engine = entry.mount.engine.clone();
        if !tree.inline_metadata {
            let files = (self.reader.take(), self.writer.take());
            engine.detach(move || {
                if gone(&entry) {
                    tree.orphan(&entry.handle);
                }
                drop(files);
            });
        } else if gone(&entry) {
            let closing = (self.reader.take(), self.writer.take());
            tree.orphan(&entry.handle);
            engine.detach(move || drop((entry, closing)));
        }
    }
}

impl Tree {
    /// Opens a regular file. Runs under `who`'s identity where they are worn.
    pub(crate) fn open(
        self: &Arc<Self>,
        who: &Caller,
        node: &NodeHandle,
        access: OpenAccess,
    ) -> StoreResult<OpenFile> {
        let entry = self.entry(node)?;
        self.may_open(who, &entry, access)?;
        let writer = if access.write { Some(entry.writer()?) } else { None };
        let reader = if access.read { Some(entry.reader()?) } else { None };
        Ok(Arc::new(PosixFile::new(self, entry, reader, writer, who)))
    }

    /// Opens a file that is in memory without waiting; `None` when that takes
    /// more: a descriptor for writing is opened on a worker.
    pub(crate) fn open_in_memory(
        self: &Arc<Self>,
        who: &Caller,
        node: &NodeHandle,
        access: OpenAccess,
    ) -> Option<StoreResult<OpenFile>> {
        let entry = self.cached(node).filter(|entry| entry.kind == FileKind::Regular)?;
        if access.write && entry.cached_writer().is_none() {
            return None;
        }
        let opened = self.inline_as(who, || -> StoreResult<Option<OpenFile>> {
            self.may_open(who, &entry, access)?;
            let writer = entry.cached_writer().filter(|_| access.write);
            let reader = if access.read { entry.reader_at_once()? } else { None };
            if (reader.is_some(), writer.is_some()) != (access.read, access.write) {
                return Ok(None);
            }
            Ok(Some(Arc::new(PosixFile::new(self, entry, reader, writer, who))))
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
            if readable == Err(StoreError::AccessDenied) && access.stateless {
                self.require(who, entry, Rights::EXECUTE)?;
            } else {
                readable?;
            }
        }
        Ok(())
    }
}
