//! One object the store has at hand.

use crate::attributes::{attr_of, kind_of, timestamp};
use crate::change::ChangeTracker;
use crate::dir_stream::DirStream;
use crate::errno::OrStoreError;
use crate::mounts::Mount;
use crate::syscall;
use rustix::fs::{OFlags, Statx};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zgate_io::credentials;
use zgate_store::{Attr, FileKind, NodeHandle, StoreResult};

/// An object, kept open as `O_PATH`, with the descriptors for reading and
/// writing once somebody needed them.
pub(crate) struct Entry {
    /// Its name in the store.
    pub(crate) handle: NodeHandle,
    /// Opened with `O_PATH | O_NOFOLLOW`.
    pub(crate) fd: OwnedFd,
    /// The file system it lies in.
    pub(crate) mount: Arc<Mount>,
    /// What it is; never changes.
    pub(crate) kind: FileKind,
    /// Files opened by clients.
    pub(crate) opens: AtomicUsize,
    /// Counts modifications of a directory's entries.
    pub(crate) generation: AtomicU64,
    change: Mutex<ChangeTracker>,
    modified: AtomicBool,
    /// Held around modifications of a directory's entries.
    modify: Mutex<()>,
    reader: Mutex<Option<Arc<OwnedFd>>>,
    writer: Mutex<Option<Writer>>,
    /// Where the last listing of this directory stopped.
    pub(crate) listing: Mutex<Option<DirStream>>,
}

/// A descriptor for writing.
#[derive(Clone)]
pub(crate) struct Writer {
    /// The descriptor.
    pub(crate) fd: Arc<OwnedFd>,
    /// It can read as well.
    pub(crate) reads: bool,
}

impl Entry {
    pub(crate) fn new(handle: NodeHandle, fd: OwnedFd, mount: Arc<Mount>, stat: &Statx) -> Self {
        Self {
            handle,
            fd,
            mount,
            kind: kind_of(stat),
            opens: AtomicUsize::new(0),
            generation: AtomicU64::new(0),
            change: Mutex::default(),
            modified: AtomicBool::new(false),
            modify: Mutex::default(),
            reader: Mutex::default(),
            writer: Mutex::default(),
            listing: Mutex::default(),
        }
    }

    /// Attributes now.
    pub(crate) fn attr(&self) -> StoreResult<Attr> {
        self.stat_and_attr().map(|(_, attr)| attr)
    }

    /// Attributes now, raw as well.
    pub(crate) fn stat_and_attr(&self) -> StoreResult<(Statx, Attr)> {
        // The lock and the order matter: the mark is taken before the look, so
        // that a modification finished before this call is in both or, if it
        // comes between, still marked for the next call.
        let mut tracker = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        let modified = self.modified.swap(false, Ordering::AcqRel);
        let stat = syscall::stat(&self.fd)?;
        let change = tracker.observe(timestamp(stat.stx_ctime), modified);
        Ok((stat, attr_of(&stat, &self.mount, change)))
    }

    /// Says that a modification has been made.
    pub(crate) fn mark_modified(&self) {
        self.modified.store(true, Ordering::Release);
    }

    /// Says that the directory's entries have been modified.
    pub(crate) fn mark_entries_modified(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.mark_modified();
    }

    /// Serializes modifications of the directory's entries.
    pub(crate) fn lock_entries(&self) -> MutexGuard<'_, ()> {
        self.modify.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A descriptor for reading, opened by the process itself.
    pub(crate) fn reader(&self) -> StoreResult<Arc<OwnedFd>> {
        if let Some(fd) = self.cached_reader() {
            return Ok(fd);
        }
        let opened = credentials::as_process(|| syscall::reopen(&self.fd, OFlags::RDONLY));
        let fd = Arc::new(opened.or_store()?);
        *self.reader.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&fd));
        Ok(fd)
    }

    /// A descriptor for reading if there is one.
    pub(crate) fn cached_reader(&self) -> Option<Arc<OwnedFd>> {
        if let Some(writer) = self.cached_writer().filter(|writer| writer.reads) {
            return Some(writer.fd);
        }
        self.reader.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A descriptor for writing, and reading where possible, opened by the
    /// process itself.
    pub(crate) fn writer(&self) -> StoreResult<Writer> {
        if let Some(writer) = self.cached_writer() {
            return Ok(writer);
        }
        type Opened = rustix::io::Result<(OwnedFd, bool)>;
        let opened: Opened =
            credentials::as_process(|| match syscall::reopen(&self.fd, OFlags::RDWR) {
                Err(Errno::ACCESS) => Ok((syscall::reopen(&self.fd, OFlags::WRONLY)?, false)),
                opened => Ok((opened?, true)),
            });
        let (fd, reads) = opened.or_store()?;
        let writer = Writer { fd: Arc::new(fd), reads };
        self.keep_writer(writer.clone());
        Ok(writer)
    }

    /// A descriptor for writing if there is one.
    pub(crate) fn cached_writer(&self) -> Option<Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps a descriptor for writing for later.
    pub(crate) fn keep_writer(&self, writer: Writer) {
        *self.writer.lock().unwrap_or_else(PoisonError::into_inner) = Some(writer);
    }

    /// Closes the descriptors kept for later; open files keep their own.
    pub(crate) fn drop_descriptors(&self) {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.listing.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}
