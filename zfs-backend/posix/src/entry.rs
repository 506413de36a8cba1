//! A cached object of the store.

use crate::attributes::{attr_of, kind_of, timestamp};
use crate::change::ChangeTracker;
use crate::descriptors::Claim;
use crate::direct::{DirectIo, Read, Reads, is_candidate};
use crate::errno::OrStoreError;
use crate::group_sync::GroupSync;
use crate::listing::{LISTING_LIFE, Listable, Listing};
use crate::mounts::Mount;
use crate::reports::Reports;
use crate::syscall;
use crate::unsynced::Writes;
use crate::zero_search::ZeroSearch;
use rustix::fs::{OFlags, Statx};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::Instant;
use zgate_io::{WriteMethod, credentials};
use zgate_store::file_store::Advice;
use zgate_store::{Attr, FileKind, NodeHandle, StoreResult};

/// An object, kept open as `O_PATH`, with descriptors for reading and writing
/// once they were needed.
pub(crate) struct Entry {
    /// Handle of the object.
    pub(crate) handle: NodeHandle,
    /// Descriptor opened with `O_PATH | O_NOFOLLOW`; for a file created here,
    /// the descriptor that created it.
    pub(crate) fd: Arc<OwnedFd>,
    /// File system the object lies in.
    pub(crate) mount: Arc<Mount>,
    /// Kind of the object; never changes.
    pub(crate) kind: FileKind,
    /// Number of files opened by clients.
    pub(crate) opens: AtomicUsize,
    /// Number of modifications of a directory's entries.
    pub(crate) generation: AtomicU64,
    seen: Mutex<Seen>,
    /// Time at which the directory was last known to lie below the root of the store.
    place_seen_at: Mutex<Option<Instant>>,
    /// Set if it took less space than its size at the last stat.
    lacks_blocks: AtomicBool,
    modified: AtomicBool,
    /// Number of modifications in the whole store.
    modifications: Arc<AtomicU64>,
    /// Lock held during modifications of a directory's entries.
    modify: Mutex<()>,
    reader: Mutex<Option<Arc<OwnedFd>>>,
    writer: Mutex<Option<Writer>>,
    past_cache: Mutex<PastCache>,
    /// Unstable writes of the file.
    pub(crate) writes: Writes,
    /// Syncs of the file; created on first use.
    syncs: OnceLock<Box<Syncs>>,
    /// Claim on `fd`, then the claims on the other descriptors.
    claim: Claim,
    claims: Mutex<Claims>,
    /// Record of its reads; absent for files that need none.
    reads: OnceLock<Box<Mutex<Reads>>>,
    /// Search for zeros at its large reads.
    pub(crate) zero_search: ZeroSearch,
    /// Cached listing of this directory.
    pub(crate) listing: Listing,
    /// User for whom the file was created here, if it was.
    creator: OnceLock<u32>,
    /// Stands for an inode that its file system has given up.
    #[cfg(test)]
    pub(crate) is_given_up: AtomicBool,
}

/// Attributes at the last stat of an object.
#[derive(Default)]
struct Seen {
    change: ChangeTracker,
    /// Attributes, and the time before that stat.
    recent: Option<(Attr, Instant)>,
}

/// Claims on descriptors kept for later use.
#[derive(Debug, Default)]
struct Claims {
    reader: Option<Claim>,
    writer: Option<Claim>,
    past_cache: Option<Claim>,
}

/// Descriptor for reads that bypass the cache. Few objects have one, so it is
/// not counted in the size of the cache.
#[derive(Clone, Default)]
enum PastCache {
    /// Not opened yet.
    #[default]
    Unopened,
    /// Opened with O_DIRECT.
    Open(Arc<OwnedFd>),
    /// Not supported by the file system.
    Refused,
}

/// Syncs of a file.
#[derive(Debug)]
pub(crate) struct Syncs {
    /// Those that clients ask for (COMMIT).
    pub(crate) group: GroupSync<()>,
    /// Losses that they, and the syncs of writes, were told of.
    pub(crate) reports: Reports,
}

/// A descriptor for writing.
#[derive(Clone)]
pub(crate) struct Writer {
    /// The descriptor.
    pub(crate) fd: Arc<OwnedFd>,
    /// Method of writing.
    pub(crate) method: WriteMethod,
    /// Set if it can read as well.
    pub(crate) reads: bool,
}

impl Writer {
    pub(crate) fn new(fd: OwnedFd, reads: bool) -> Self {
        Self { method: WriteMethod::of(&fd), fd: Arc::new(fd), reads }
    }

    /// Returns the writer of a regular file that was created in a mount, without O_DIRECT.
    pub(crate) fn of_created(fd: OwnedFd, mount: &Mount) -> Self {
        Self { method: mount.write_method(&fd), fd: Arc::new(fd), reads: true }
    }
}

impl Listable for Entry {
    fn listing(&self) -> &Listing {
        &self.listing
    }
}

impl Entry {
    /// Creates an entry with nothing known of its past but `stat`, which was
    /// taken after `looked_at`.
    pub(crate) fn new(
        handle: NodeHandle,
        fd: impl Into<Arc<OwnedFd>>,
        mount: Arc<Mount>,
        (stat, looked_at): (&Statx, Instant),
        modifications: &Arc<AtomicU64>,
        claim: Claim,
    ) -> Self {
        let mut seen = Seen::default();
        let change = seen.change.observe(timestamp(stat.stx_ctime), false);
        let attr = attr_of(stat, &mount, change);
        seen.recent = Some((attr, looked_at));
        Self {
            handle,
            fd: fd.into(),
            mount,
            kind: kind_of(stat),
            opens: AtomicUsize::new(0),
            generation: AtomicU64::new(0),
            seen: Mutex::new(seen),
            place_seen_at: Mutex::default(),
            lacks_blocks: AtomicBool::new(attr.used_bytes < attr.size),
            modified: AtomicBool::new(false),
            modifications: Arc::clone(modifications),
            modify: Mutex::default(),
            reader: Mutex::default(),
            writer: Mutex::default(),
            past_cache: Mutex::default(),
            writes: Writes::default(),
            syncs: OnceLock::new(),
            claim,
            claims: Mutex::default(),
            reads: OnceLock::new(),
            zero_search: ZeroSearch::default(),
            listing: Listing::default(),
            creator: OnceLock::new(),
            #[cfg(test)]
            is_given_up: AtomicBool::new(false),
        }
    }

    /// Records the user for whom the file was created.
    pub(crate) fn note_creator(&self, uid: u32) {
        let _ = self.creator.set(uid);
    }

    /// Returns whether the file was created for this user, as far as this is still known.
    pub(crate) fn is_created_by(&self, uid: u32) -> bool {
        self.creator.get() == Some(&uid)
    }

    /// Returns the time at which the directory was last known to lie below the root of the store.
    pub(crate) fn place_seen_at(&self) -> Option<Instant> {
        *self.place_seen_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the directory lay below the root of the store at this time, if it did.
    pub(crate) fn note_place(&self, seen_at: Option<Instant>) {
        *self.place_seen_at.lock().unwrap_or_else(PoisonError::into_inner) = seen_at;
    }

    /// Reads the current attributes.
    pub(crate) fn attr(&self) -> StoreResult<Attr> {
        self.stat_and_attr().map(|(_, attr)| attr)
    }

    /// Reads the current attributes, also in raw form.
    pub(crate) fn stat_and_attr(&self) -> StoreResult<(Statx, Attr)> {
        // The lock and the order matter: the mark is cleared before the stat,
        // so that a modification finished before this call is in both or, if it
        // falls between, still marked for the next call.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.recent = None;
        let now = Instant::now();
        let modified = self.modified.swap(false, Ordering::AcqRel);
        let stat = match self.stat() {
            Ok(stat) => stat,
            Err(error) => {
                self.modified.fetch_or(modified, Ordering::AcqRel);
                return Err(error);
            }
        };
        let change = seen.change.observe(timestamp(stat.stx_ctime), modified);
        let attr = attr_of(&stat, &self.mount, change);
        seen.recent = Some((attr, now));
        let lacks_blocks = attr.used_bytes < attr.size;
        // Reads on other cores look at it: it is written only when it changes.
        if self.lacks_blocks() != lacks_blocks {
            self.lacks_blocks.store(lacks_blocks, Ordering::Relaxed);
        }
        Ok((stat, attr))
    }

    fn stat(&self) -> StoreResult<Statx> {
        #[cfg(test)]
        if self.is_given_up.load(Ordering::Relaxed) {
            return Err(zgate_store::StoreError::Io);
        }
        syscall::stat(&self.fd)
    }

    /// Returns whether the file took less space than its size at the last stat: it has holes,
    /// or is compressed, or ZFS had not written it yet. Asks no storage.
    pub(crate) fn lacks_blocks(&self) -> bool {
        self.lacks_blocks.load(Ordering::Relaxed)
    }

    /// Returns the attributes of the last stat, unless that is too old, a
    /// modification has been made since, or another stat is under way. A modification
    /// by another program may be missing.
    pub(crate) fn recent_attr(&self, now: Instant) -> Option<Attr> {
        self.recent_attr_and_time(now).map(|(attr, _)| attr)
    }

    /// Returns the same, with the time of that stat.
    pub(crate) fn recent_attr_and_time(&self, now: Instant) -> Option<(Attr, Instant)> {
        // A stat clears the mark and replaces the attributes while it holds the
        // lock: without the mark, the attributes are from after the last
        // finished modification. A stat may take long, and a core's thread does not
        // wait for it.
        let seen = match self.seen.try_lock() {
            Ok(seen) => seen,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let (attr, at) = seen.recent?;
        let young = now.saturating_duration_since(at) < LISTING_LIFE;
        (young && !self.modified.load(Ordering::Acquire)).then_some((attr, at))
    }

    /// Returns the attributes at the time the object was cached, for the caller
    /// that cached it.
    pub(crate) fn first_attr(&self) -> StoreResult<Attr> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner).recent;
        seen.map_or_else(|| self.attr(), |(attr, _)| Ok(attr))
    }

    /// Records that a modification has been made.
    pub(crate) fn mark_modified(&self) {
        // A stat clears the mark and reads the store's counter before it. So
        // its attributes are recognized as outdated by the mark, and by the
        // counter, which advances when the mark is set: it need not advance
        // again for further modifications before the next stat.
        if !self.modified.swap(true, Ordering::AcqRel) {
            self.modifications.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Records that the directory's entries have been modified.
    pub(crate) fn mark_entries_modified(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.mark_modified();
    }

    /// Serializes modifications of the directory's entries.
    pub(crate) fn lock_entries(&self) -> MutexGuard<'_, ()> {
        self.modify.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a descriptor for reading, opened under the process's own
    /// identity.
    pub(crate) fn reader(&self) -> StoreResult<Arc<OwnedFd>> {
        if let Some(fd) = self.cached_reader() {
            return Ok(fd);
        }
        let claim = self.claim()?;
        let opened = credentials::as_process(|| syscall::reopen(&self.fd, OFlags::RDONLY));
        Ok(self.keep_reader(opened.or_store()?, claim))
    }

    /// Returns a descriptor for reading without waiting; `None` if waiting
    /// would be needed because a process on this machine holds a lease on the
    /// file, or because others must be closed for it. The object is in memory, so
    /// that opening it needs no disk.
    pub(crate) fn reader_at_once(&self) -> StoreResult<Option<Arc<OwnedFd>>> {
        if let Some(fd) = self.cached_reader() {
            return Ok(Some(fd));
        }
        let Some(claim) = self.claim.another_free() else { return Ok(None) };
        let opened = credentials::as_process(|| {
            let fd = syscall::reopen(&self.fd, OFlags::RDONLY | OFlags::NONBLOCK)?;
            // The I/O engines would take O_NONBLOCK for "never wait".
            rustix::fs::fcntl_setfl(&fd, OFlags::empty())?;
            Ok(fd)
        });
        if matches!(opened, Err(Errno::WOULDBLOCK)) {
            return Ok(None);
        }
        Ok(Some(self.keep_reader(opened.or_store()?, claim)))
    }

    /// Claims one more descriptor from the budget.
    pub(crate) fn claim(&self) -> StoreResult<Claim> {
        self.claim.another()
    }

    fn claims(&self) -> MutexGuard<'_, Claims> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep_reader(&self, fd: OwnedFd, claim: Claim) -> Arc<OwnedFd> {
        let fd = Arc::new(fd);
        self.claims().reader = Some(claim);
        let mut kept = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let before = kept.replace(Arc::clone(&fd));
        // Another caller was faster. To close its descriptor may take long, and serving threads
        // take the lock.
        drop(kept);
        drop(before);
        fd
    }

    /// Returns the descriptor for reading, if one is open.
    pub(crate) fn cached_reader(&self) -> Option<Arc<OwnedFd>> {
        if let Some(writer) = self.cached_writer().filter(|writer| writer.reads) {
            return Some(writer.fd);
        }
        self.reader.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns a descriptor for writing, and for reading if possible, opened
    /// under the process's own identity.
    pub(crate) fn writer(&self) -> StoreResult<Writer> {
        if let Some(writer) = self.cached_writer() {
            return Ok(writer);
        }
        let claim = self.claim()?;
        type Opened = rustix::io::Result<(OwnedFd, bool)>;
        let opened: Opened =
            credentials::as_process(|| match syscall::reopen(&self.fd, OFlags::RDWR) {
                Err(Errno::ACCESS) => Ok((syscall::reopen(&self.fd, OFlags::WRONLY)?, false)),
                opened => Ok((opened?, true)),
            });
        let (fd, reads) = opened.or_store()?;
        Ok(self.keep_first_writer(Writer::new(fd, reads), claim))
    }

    /// Keeps a descriptor for writing that has just been opened, unless another caller was
    /// faster; returns the one that is kept. The one that wrote first must sync: another may
    /// not be told of a loss.
    pub(crate) fn keep_first_writer(&self, writer: Writer, claim: Claim) -> Writer {
        {
            let mut kept = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(first) = &*kept {
                return first.clone();
            }
            *kept = Some(writer.clone());
        }
        self.claims().writer = Some(claim);
        writer
    }

    /// Returns the descriptor for writing, if one is open.
    pub(crate) fn cached_writer(&self) -> Option<Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps the descriptor that created the file for later writes.
    pub(crate) fn keep_writer(&self, writer: Writer) {
        let mut kept = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let before = kept.replace(writer);
        // Closed without the lock.
        drop(kept);
        drop(before);
    }

    /// Returns whether the kernel tells the loss of earlier writes to one sync alone, so that
    /// the others must hear of it from here.
    pub(crate) fn reports_losses_once(&self) -> bool {
        self.mount.names.how.reports_losses_once()
    }

    /// Returns the syncs of this file.
    pub(crate) fn syncs(&self) -> &Syncs {
        self.syncs.get_or_init(|| {
            let reports = Reports::new(self.reports_losses_once());
            Box::new(Syncs { group: GroupSync::default(), reports })
        })
    }

    /// Returns whether a read should bypass the cache, and records the read.
    pub(crate) fn reads_past_cache(&self, policy: DirectIo, read: Read) -> bool {
        if !is_candidate(policy, read) || matches!(*self.past_cache(), PastCache::Refused) {
            return false;
        }
        policy == DirectIo::Always || self.reads().goes_direct(read)
    }

    /// Records a hint about future reads.
    pub(crate) fn note_advice(&self, policy: DirectIo, advice: Advice) {
        if policy == DirectIo::Auto {
            self.reads().advise(advice);
        }
    }

    fn reads(&self) -> MutexGuard<'_, Reads> {
        self.reads.get_or_init(Box::default).lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn past_cache(&self) -> MutexGuard<'_, PastCache> {
        self.past_cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the descriptor for reads that bypass the cache, if one is open.
    pub(crate) fn cached_past_cache(&self) -> Option<Arc<OwnedFd>> {
        match &*self.past_cache() {
            PastCache::Open(fd) => Some(Arc::clone(fd)),
            PastCache::Unopened | PastCache::Refused => None,
        }
    }

    /// Opens the descriptor for reads that bypass the cache; `None` if the file
    /// system does not support it.
    pub(crate) fn open_past_cache(&self) -> Option<Arc<OwnedFd>> {
        // Without a claim this read goes through the cache, and the next one
        // tries again.
        let claim = self.claim().ok()?;
        let flags = OFlags::RDONLY | OFlags::DIRECT;
        let opened = credentials::as_process(|| syscall::reopen(&self.fd, flags));
        let fd = opened.ok().map(Arc::new);
        self.claims().past_cache = fd.is_some().then_some(claim);
        let state = fd.clone().map_or(PastCache::Refused, PastCache::Open);
        let before = std::mem::replace(&mut *self.past_cache(), state);
        // Closed without the lock, which serving threads take.
        drop(before);
        fd
    }

    /// Records that the file system does not support reads that bypass its cache after all. A
    /// worker closes the descriptor for them, that of the caller.
    pub(crate) fn refuse_past_cache(&self, fd: Arc<OwnedFd>) {
        let before = std::mem::replace(&mut *self.past_cache(), PastCache::Refused);
        self.mount.engine.detach(move || drop((before, fd)));
    }

    /// Closes the descriptors kept for later; open files keep their own, with
    /// their claims, until they are closed.
    pub(crate) fn drop_descriptors(&self) {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner).take();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let past_cache = std::mem::take(&mut *self.past_cache());
        // Closing them may take long, and serving threads take the locks.
        drop((reader, writer, past_cache));
        if self.opens.load(Ordering::Acquire) == 0 {
            *self.claims() = Claims::default();
        }
        // A listing that is being read is freed with the entry.
        let _ = self.listing.forget();
    }
}
