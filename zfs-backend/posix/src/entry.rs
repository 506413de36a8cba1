//! One object the store has at hand.

use crate::attributes::{attr_of, kind_of, timestamp};
use crate::change::ChangeTracker;
use crate::descriptors::Claim;
use crate::direct::{DirectIo, Read, Reads, is_candidate};
use crate::errno::OrStoreError;
use crate::group_sync::GroupSync;
use crate::listing::{LISTING_LIFE, Listing};
use crate::mounts::Mount;
use crate::syscall;
use rustix::fs::{OFlags, Statx};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;
use zgate_io::{WriteWay, credentials};
use zgate_store::file_store::Advice;
use zgate_store::{Attr, FileKind, NodeHandle, StoreResult};

/// An object, kept open as `O_PATH`, with the descriptors for reading and
/// writing once somebody needed them.
pub(crate) struct Entry {
    /// Its name in the store.
    pub(crate) handle: NodeHandle,
    /// Opened with `O_PATH | O_NOFOLLOW`; of a file created here, the
    /// descriptor that created it.
    pub(crate) fd: Arc<OwnedFd>,
    /// The file system it lies in.
    pub(crate) mount: Arc<Mount>,
    /// What it is; never changes.
    pub(crate) kind: FileKind,
    /// Files opened by clients.
    pub(crate) opens: AtomicUsize,
    /// Counts modifications of a directory's entries.
    pub(crate) generation: AtomicU64,
    seen: Mutex<Seen>,
    modified: AtomicBool,
    /// Counts modifications of anything in the store.
    modifications: Arc<AtomicU64>,
    /// Held around modifications of a directory's entries.
    modify: Mutex<()>,
    reader: Mutex<Option<Arc<OwnedFd>>>,
    writer: Mutex<Option<Writer>>,
    past_cache: Mutex<PastCache>,
    /// Its syncs; made when there is one.
    syncs: OnceLock<Box<GroupSync<()>>>,
    /// The place of `fd` in the budget, then those of the others.
    claim: Claim,
    claims: Mutex<Claims>,
    /// How it is read; not kept of files that nothing has to be known of.
    reads: OnceLock<Box<Mutex<Reads>>>,
    /// What is remembered of this directory's names.
    pub(crate) listing: Listing,
}

/// What the last look at an object saw.
#[derive(Default)]
struct Seen {
    change: ChangeTracker,
    /// The attributes and the time before that look.
    recent: Option<(Attr, Instant)>,
}

/// Places in the budget of descriptors that were opened for later.
#[derive(Debug, Default)]
struct Claims {
    reader: Option<Claim>,
    writer: Option<Claim>,
    past_cache: Option<Claim>,
}

/// The descriptor for reads that go past the cache. Few objects have one, so it
/// is not reckoned with in how many are kept at hand.
#[derive(Clone, Default)]
enum PastCache {
    /// Not asked for yet.
    #[default]
    Unopened,
    /// Opened with O_DIRECT.
    Open(Arc<OwnedFd>),
    /// The file system has no such thing.
    Refused,
}

/// A descriptor for writing.
#[derive(Clone)]
pub(crate) struct Writer {
    /// The descriptor.
    pub(crate) fd: Arc<OwnedFd>,
    /// Where its writes go.
    pub(crate) way: WriteWay,
    /// It can read as well.
    pub(crate) reads: bool,
}

impl Writer {
    pub(crate) fn new(fd: OwnedFd, reads: bool) -> Self {
        Self { way: WriteWay::of(&fd), fd: Arc::new(fd), reads }
    }
}

impl Entry {
    /// An object with nothing known of its past but `stat`, which was taken
    /// after `looked_at`.
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
        seen.recent = Some((attr_of(stat, &mount, change), looked_at));
        Self {
            handle,
            fd: fd.into(),
            mount,
            kind: kind_of(stat),
            opens: AtomicUsize::new(0),
            generation: AtomicU64::new(0),
            seen: Mutex::new(seen),
            modified: AtomicBool::new(false),
            modifications: Arc::clone(modifications),
            modify: Mutex::default(),
            reader: Mutex::default(),
            writer: Mutex::default(),
            past_cache: Mutex::default(),
            syncs: OnceLock::new(),
            claim,
            claims: Mutex::default(),
            reads: OnceLock::new(),
            listing: Listing::default(),
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
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.recent = None;
        let now = Instant::now();
        let modified = self.modified.swap(false, Ordering::AcqRel);
        let stat = match syscall::stat(&self.fd) {
            Ok(stat) => stat,
            Err(error) => {
                self.modified.fetch_or(modified, Ordering::AcqRel);
                return Err(error);
            }
        };
        let change = seen.change.observe(timestamp(stat.stx_ctime), modified);
        let attr = attr_of(&stat, &self.mount, change);
        seen.recent = Some((attr, now));
        Ok((stat, attr))
    }

    /// What the last look saw, unless that is long ago or a modification has
    /// been made since. One made by another program may be missing.
    pub(crate) fn recent_attr(&self, now: Instant) -> Option<Attr> {
        self.recent_attr_and_time(now).map(|(attr, _)| attr)
    }

    /// The same, with the time of that look.
    pub(crate) fn recent_attr_and_time(&self, now: Instant) -> Option<(Attr, Instant)> {
        // A look takes the mark away and replaces what was seen before while
        // it holds the lock: without the mark, what is here is from after the
        // last modification that has finished.
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (attr, at) = seen.recent?;
        let young = now.saturating_duration_since(at) < LISTING_LIFE;
        (young && !self.modified.load(Ordering::Acquire)).then_some((attr, at))
    }

    /// What was seen when the object was taken in, for whoever did that.
    pub(crate) fn first_attr(&self) -> StoreResult<Attr> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner).recent;
        seen.map_or_else(|| self.attr(), |(attr, _)| Ok(attr))
    }

    /// Says that a modification has been made.
    pub(crate) fn mark_modified(&self) {
        // Attributes are taken with the mark away and the store's count noted
        // before. So they are told from later ones by the mark, and by the
        // count, which moves when the mark is set: it need not move again for
        // what follows before the next look.
        if !self.modified.swap(true, Ordering::AcqRel) {
            self.modifications.fetch_add(1, Ordering::AcqRel);
        }
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
        let claim = self.claim()?;
        let opened = credentials::as_process(|| syscall::reopen(&self.fd, OFlags::RDONLY));
        Ok(self.keep_reader(opened.or_store()?, claim))
    }

    /// The same without waiting; `None` when that would be needed: somebody
    /// on this machine holds a lease on the file. The object is in memory, so
    /// that opening it asks no disk.
    pub(crate) fn reader_at_once(&self) -> StoreResult<Option<Arc<OwnedFd>>> {
        if let Some(fd) = self.cached_reader() {
            return Ok(Some(fd));
        }
        let claim = self.claim()?;
        let opened = credentials::as_process(|| {
            let fd = syscall::reopen(&self.fd, OFlags::RDONLY | OFlags::NONBLOCK)?;
            // The io engines take it for "never wait".
            rustix::fs::fcntl_setfl(&fd, OFlags::empty())?;
            Ok(fd)
        });
        if matches!(opened, Err(Errno::WOULDBLOCK)) {
            return Ok(None);
        }
        Ok(Some(self.keep_reader(opened.or_store()?, claim)))
    }

    /// A place in the budget for one more descriptor.
    pub(crate) fn claim(&self) -> StoreResult<Claim> {
        self.claim.another()
    }

    fn claims(&self) -> MutexGuard<'_, Claims> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep_reader(&self, fd: OwnedFd, claim: Claim) -> Arc<OwnedFd> {
        let fd = Arc::new(fd);
        self.claims().reader = Some(claim);
        *self.reader.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&fd));
        fd
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
        let claim = self.claim()?;
        type Opened = rustix::io::Result<(OwnedFd, bool)>;
        let opened: Opened =
            credentials::as_process(|| match syscall::reopen(&self.fd, OFlags::RDWR) {
                Err(Errno::ACCESS) => Ok((syscall::reopen(&self.fd, OFlags::WRONLY)?, false)),
                opened => Ok((opened?, true)),
            });
        let (fd, reads) = opened.or_store()?;
        let writer = Writer::new(fd, reads);
        self.keep_writer(writer.clone());
        self.claims().writer = Some(claim);
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

    /// The syncs of this file.
    pub(crate) fn syncs(&self) -> &GroupSync<()> {
        self.syncs.get_or_init(Box::default)
    }

    /// Whether a read is to go past the cache. Takes note of it.
    pub(crate) fn reads_past_cache(&self, policy: DirectIo, read: Read) -> bool {
        if !is_candidate(policy, read) || matches!(*self.past_cache(), PastCache::Refused) {
            return false;
        }
        policy == DirectIo::Always || self.reads().goes_direct(read)
    }

    /// Takes note of a hint about how it will be read.
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

    /// The descriptor for reads past the cache if there is one.
    pub(crate) fn cached_past_cache(&self) -> Option<Arc<OwnedFd>> {
        match &*self.past_cache() {
            PastCache::Open(fd) => Some(Arc::clone(fd)),
            PastCache::Unopened | PastCache::Refused => None,
        }
    }

    /// Opens the descriptor for reads past the cache; `None` where the file
    /// system has no such thing.
    pub(crate) fn open_past_cache(&self) -> Option<Arc<OwnedFd>> {
        // Without a place this read goes through the cache, and the next one tries
        // again.
        let claim = self.claim().ok()?;
        let flags = OFlags::RDONLY | OFlags::DIRECT;
        let opened = credentials::as_process(|| syscall::reopen(&self.fd, flags));
        let fd = opened.ok().map(Arc::new);
        self.claims().past_cache = fd.is_some().then_some(claim);
        *self.past_cache() = fd.clone().map_or(PastCache::Refused, PastCache::Open);
        fd
    }

    /// The file system does not read past its cache after all.
    pub(crate) fn refuse_past_cache(&self) {
        *self.past_cache() = PastCache::Refused;
    }

    /// Closes the descriptors kept for later; open files keep their own, and
    /// their places in the budget until they are closed.
    pub(crate) fn drop_descriptors(&self) {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let _ = std::mem::take(&mut *self.past_cache());
        if self.opens.load(Ordering::Acquire) == 0 {
            *self.claims() = Claims::default();
        }
        // One that is being read is let go of with the entry.
        let _ = self.listing.forget();
    }
}
