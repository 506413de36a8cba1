//! The engine through which all file and block I/O goes.

mod in_place;
mod long_calls;

use crate::blocking::{read_blocking, sync_blocking, write_blocking};
use crate::cached::{CachedReads, is_resident};
use crate::continuation::is_worker;
use crate::pipes::{FilledPipe, Pipes};
use crate::queue::{Demand, Limits, StoreSlot};
use crate::store_name::StoreName;
use crate::stores::{OWN, Stores};
use crate::uring::{self, Lent, Request};
use crate::workers::{MAX_QUEUED, MAX_WORKERS, RunAs, WorkerKind, Workers};
use crate::write_method::{WriteMethod, WriteMode, WriteSync, writes_by_ring};
use bytes::Bytes;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use zgate_store::buffer::BUFFER_ALIGNMENT_BYTES;
use zgate_store::{AlignedBuf, Caller};

/// Engine requested by the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// io_uring where the kernel allows it, else threads.
    #[default]
    Auto,
    /// io_uring; an error if the kernel does not allow it.
    Uring,
    /// A pool of threads.
    Threads,
}

/// Engine in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    /// io_uring; plain writes to the page cache go to the threads.
    Uring,
    /// A pool of threads with preadv2/pwritev2.
    Threads,
}

/// Number of engines of the process so far.
static ENGINES: AtomicUsize = AtomicUsize::new(0);

struct Inner {
    kind: EngineKind,
    reason: String,
    /// Short calls on names and attributes, under callers' identities.
    metadata: Workers,
    /// Reads, writes, syncs and other calls that may wait for a disk.
    data: Workers,
    stores: Arc<Stores>,
    pipes: Arc<Pipes>,
}

/// An io engine. Cloning shares it; any thread with a tokio runtime may use it.
///
/// Each store ([`StoreName`]) has its own workers, so that one that hangs does
/// not stop the others. Requests to a store whose workers have all been stuck
/// for some seconds fail with `ENOBUFS`: the client may retry later.
#[derive(Clone)]
pub struct IoEngine {
    inner: Arc<Inner>,
    store: StoreSlot,
    demand: Demand,
    /// Learned by the engine of one file system; `None` for files of several.
    cached_reads: Option<Arc<CachedReads>>,
}

impl std::fmt::Debug for IoEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let store = self.inner.stores.name(self.store);
        write!(f, "IoEngine({:?}: {}; {store})", self.inner.kind, self.inner.reason)
    }
}

impl IoEngine {
    /// Starts an engine with `worker_threads` threads for metadata and as many
    /// for data. One store uses at most that many of each, and another one for
    /// metadata while one syncs what it has changed; more are started while
    /// several stores need them.
    ///
    /// # Errors
    /// If threads cannot be started, or io_uring was required and the kernel
    /// refuses it.
    pub fn new(choice: EngineChoice, worker_threads: usize) -> io::Result<Self> {
        let (kind, reason) = match choice {
            EngineChoice::Threads => (EngineKind::Threads, "configured".to_owned()),
            EngineChoice::Uring => {
                uring::probe()?;
                (EngineKind::Uring, "configured".to_owned())
            }
            EngineChoice::Auto => match uring::probe() {
                Ok(()) => (EngineKind::Uring, "auto: the kernel completed a trial".to_owned()),
                Err(error) => (EngineKind::Threads, format!("auto: io_uring refused: {error}")),
            },
        };
        let stores = Arc::new(Stores::default());
        let limits = Limits { per_store: worker_threads, total: MAX_WORKERS, queued: MAX_QUEUED };
        let engine = ENGINES.fetch_add(1, Ordering::Relaxed);
        let short = WorkerKind { engine, takes_long_calls: false };
        let long = WorkerKind { engine, takes_long_calls: true };
        Ok(Self {
            inner: Arc::new(Inner {
                kind,
                reason,
                metadata: Workers::start("meta", short, limits, &stores)?,
                data: Workers::start("data", long, limits, &stores)?,
                stores,
                pipes: Arc::new(Pipes::new()),
            }),
            store: OWN,
            demand: Demand::Refusable,
            cached_reads: None,
        })
    }

    /// Returns the same engine for work on one file system or device of this store.
    #[must_use]
    pub fn for_store(&self, store: &StoreName) -> Self {
        let store = self.inner.stores.slot(store);
        let cached_reads = Some(Arc::default());
        Self { inner: Arc::clone(&self.inner), store, demand: Demand::Refusable, cached_reads }
    }

    /// Returns the same engine for calls that may wait for this store and for that
    /// of `other`. A pair of stores has workers of its own: the one that hangs keeps
    /// none of the other's.
    #[must_use]
    pub fn between(&self, other: &Self) -> Self {
        let name = |engine: &Self| engine.inner.stores.name(engine.store);
        let (one, two) = (name(self), name(other));
        if one == two { self.clone() } else { self.for_store(&StoreName::of_pair(&one, &two)) }
    }

    /// Returns whether calls on `other` have the same workers as calls on this one.
    #[must_use]
    pub fn shares_workers_with(&self, other: &Self) -> bool {
        self.store == other.store
    }

    /// Returns a number that engines have in common if their calls have the same workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.store.0
    }

    /// Returns the same engine for requests that wait as long as the store
    /// takes: requests of a disk, because initiators treat a refusal as a
    /// failed disk and have time limits of their own, and operations that
    /// cannot be undone. The caller must bound their number.
    #[must_use]
    pub fn patient(&self) -> Self {
        Self { demand: Demand::Certain, ..self.clone() }
    }

    /// Returns the engine in use.
    #[must_use]
    pub fn kind(&self) -> EngineKind {
        self.inner.kind
    }

    /// Returns the reason for its choice.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.inner.reason
    }

    /// Reads until the buffer is full or the file ends; returns the count and
    /// the buffer. Data in the page cache is read at once on this thread.
    pub async fn read(
        &self,
        fd: &Arc<OwnedFd>,
        offset: u64,
        mut buf: AlignedBuf,
    ) -> (io::Result<usize>, AlignedBuf) {
        let mut filled = 0;
        let unknown = CachedReads::default();
        let cached = self.cached_reads.as_deref().unwrap_or(&unknown);
        while filled < buf.len() {
            match cached.try_read(fd, offset.saturating_add(filled as u64), &mut buf[filled..]) {
                Some(Ok(0)) => return (Ok(filled), buf),
                Some(Ok(count)) => filled += count,
                Some(Err(error)) if filled == 0 => return (Err(error), buf),
                Some(Err(_)) | None => return self.read_rest(fd, offset, buf, filled, 1).await,
            }
        }
        (Ok(filled), buf)
    }

    /// Reads until the buffer is full or the file ends, through the engine.
    pub async fn read_into(
        &self,
        fd: &Arc<OwnedFd>,
        offset: u64,
        buf: AlignedBuf,
    ) -> (io::Result<usize>, AlignedBuf) {
        self.read_rest(fd, offset, buf, 0, 1).await
    }

    /// Reads exactly `len` bytes into a pipe, from which they go to a socket
    /// without another copy; worth it where the page cache has no pages to send.
    /// `None`: not supported, or not now, or the file ends before; read into
    /// memory.
    ///
    /// # Errors
    /// The error of splice(2).
    pub async fn read_to_pipe(
        &self,
        fd: &Arc<OwnedFd>,
        offset: u64,
        len: usize,
    ) -> io::Result<Option<FilledPipe>> {
        let has_pages = !self.cached_reads.as_ref().is_some_and(|reads| reads.may_wait_at(fd));
        if has_pages {
            return Ok(None);
        }
        self.fill_pipe(fd, offset, len).await
    }

    /// Does the same with a descriptor with O_DIRECT of a device that io_uring
    /// would leave to a worker of the kernel (a zvol); `None` also while no
    /// worker of ours is free. Offset and length are aligned.
    ///
    /// # Errors
    /// The error of splice(2).
    pub async fn read_direct_to_pipe(
        &self,
        fd: &Arc<OwnedFd>,
        offset: u64,
        len: usize,
    ) -> io::Result<Option<FilledPipe>> {
        if !self.inner.data.has_room(self.store) {
            return Ok(None);
        }
        self.fill_pipe(fd, offset, len).await
    }

    async fn fill_pipe(
        &self,
        fd: &Arc<OwnedFd>,
        offset: u64,
        len: usize,
    ) -> io::Result<Option<FilledPipe>> {
        let (file, pipes) = (Arc::clone(fd), Arc::clone(&self.inner.pipes));
        let read = move || pipes.read(&file, offset, len);
        self.inner.data.run((self.store, self.demand), RunAs::Process, read).await?
    }

    /// Reads from a descriptor with O_DIRECT: a count that is not a multiple of
    /// whole pages marks the end of the file, behind which such a descriptor
    /// returns nothing.
    pub async fn read_direct(
        &self,
        fd: &Arc<OwnedFd>,
        offset: u64,
        buf: AlignedBuf,
    ) -> (io::Result<usize>, AlignedBuf) {
        self.read_rest(fd, offset, buf, 0, BUFFER_ALIGNMENT_BYTES).await
    }

    async fn read_rest(
        &self,
        fd: &Arc<OwnedFd>,
        offset: u64,
        mut buffer: AlignedBuf,
        mut filled: usize,
        whole_bytes: usize,
    ) -> (io::Result<usize>, AlignedBuf) {
        let by_ring = self.goes_to_ring(fd).await;
        while by_ring && filled < buffer.len() {
            let answer =
                match uring::submit(self.store, fd, Request::Read { offset, buffer, filled }) {
                    Ok(answer) => answer.await,
                    Err(Request::Read { buffer: back, .. }) => {
                        buffer = back;
                        break;
                    }
                    Err(_) => return (Err(lost()), AlignedBuf::zeroed(0)),
                };
            let Ok((result, Lent::Read(back))) = answer else {
                return (Err(lost()), AlignedBuf::zeroed(0));
            };
            buffer = back;
            match result {
                0 => return (Ok(filled), buffer),
                count if count > 0 => {
                    filled += count as usize;
                    if !filled.is_multiple_of(whole_bytes) {
                        return (Ok(filled), buffer);
                    }
                }
                error if -error == libc::EINTR => {}
                error if -error == libc::EAGAIN => break,
                error => return (Err(io::Error::from_raw_os_error(-error)), buffer),
            }
        }
        if filled == buffer.len() {
            return (Ok(filled), buffer);
        }
        let file = Arc::clone(fd);
        let outcome = self
            .inner
            .data
            .run((self.store, self.demand), RunAs::Process, move || {
                let result = read_blocking(&file, offset, &mut buffer, (filled, whole_bytes));
                (result, buffer)
            })
            .await;
        outcome.unwrap_or_else(|error| (Err(error), AlignedBuf::zeroed(0)))
    }

    /// Writes all of `data`, by the method of the descriptor. `Ok(n)` with a
    /// smaller `n` means that the rest failed, usually for lack of space; the
    /// data written has the requested stability.
    ///
    /// # Errors
    /// The error of pwritev2(2), if nothing was written.
    pub async fn write_from(
        &self,
        (fd, mode): (&Arc<OwnedFd>, impl Into<WriteMode>),
        offset: u64,
        mut data: Bytes,
        sync: WriteSync,
    ) -> io::Result<usize> {
        let WriteMode { method, set_id } = mode.into();
        // A thread of a core keeps its credentials, because RDMA devices require
        // that; a worker may have those of another caller.
        if method == WriteMethod::Memory && !is_worker() {
            set_id.clear(fd)?;
            return write_blocking(fd, offset, &data, 0, sync);
        }
        let mut done = 0;
        let flags = sync.flags().bits() as i32;
        let by_ring = writes_by_ring(method, sync) && self.goes_to_ring(fd).await;
        while by_ring && done < data.len() {
            let write = Request::Write { offset, data, done, flags, set_id };
            let answer = match uring::submit(self.store, fd, write) {
                Ok(answer) => answer.await,
                Err(Request::Write { data: back, .. }) => {
                    data = back;
                    break;
                }
                Err(_) => return Err(lost()),
            };
            let Ok((result, Lent::Write(back))) = answer else {
                return Err(lost());
            };
            data = back;
            match result {
                0 => {
                    return if done > 0 { Ok(done) } else { Err(io::ErrorKind::WriteZero.into()) };
                }
                count if count > 0 => done += count as usize,
                error if -error == libc::EINTR => {}
                error if matches!(-error, libc::EAGAIN | libc::EOPNOTSUPP | libc::EINVAL) => break,
                _ if done > 0 => return Ok(done),
                error => return Err(io::Error::from_raw_os_error(-error)),
            }
        }
        if done == data.len() {
            return Ok(done);
        }
        let file = Arc::clone(fd);
        let write =
            move || set_id.during(&file, || write_blocking(&file, offset, &data, done, sync))?;
        self.inner.data.run((self.store, self.demand), RunAs::Process, write).await?
    }

    /// Returns whether every page of the range is in the page cache now. Costs no system
    /// call on a file system that has a cache of its own.
    #[must_use]
    pub fn is_resident(&self, fd: &OwnedFd, offset: u64, len: u64) -> bool {
        !self.may_wait() && is_resident(fd, offset, len)
    }

    /// Returns whether every read of the file system may wait for a disk.
    fn may_wait(&self) -> bool {
        self.cached_reads.as_ref().is_some_and(|reads| reads.may_wait())
    }

    /// Brings written data to stable storage; with `data_only`, without
    /// metadata that reading does not need.
    ///
    /// # Errors
    /// The error of fsync(2).
    pub async fn sync(&self, fd: &Arc<OwnedFd>, data_only: bool) -> io::Result<()> {
        if self.goes_to_ring(fd).await
            && let Ok(answer) = uring::submit(self.store, fd, Request::Sync { data_only })
        {
            match answer.await {
                Ok((0, _)) => return Ok(()),
                Ok((error, _)) if matches!(-error, libc::EAGAIN | libc::EINTR) => {}
                Ok((error, _)) => return Err(io::Error::from_raw_os_error(-error)),
                Err(_) => return Err(lost()),
            }
        }
        let file = Arc::clone(fd);
        self.inner
            .data
            .run((self.store, self.demand), RunAs::Process, move || sync_blocking(&file, data_only))
            .await?
    }

    /// Runs a short blocking call on a metadata worker, under the process's own
    /// identity. A panic propagates to the caller.
    ///
    /// # Errors
    /// If the pool has ended.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        self.inner.metadata.run((self.store, self.demand), RunAs::Process, work).await
    }

    /// Runs a short blocking call on a metadata worker as `who`.
    ///
    /// # Errors
    /// `EPERM` if the identity cannot be taken on, `ENOBUFS` if the store does
    /// not answer; the work has not run.
    pub async fn run_as<T: Send + 'static>(
        &self,
        who: Caller,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        self.inner.metadata.run((self.store, self.demand), RunAs::Caller(who), work).await
    }

    /// Runs a short blocking call that makes no system call which depends on the identity of
    /// its thread, on a metadata worker under whichever identity that has.
    ///
    /// # Errors
    /// If the pool has ended.
    pub async fn run_as_anyone<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        self.inner.metadata.run((self.store, self.demand), RunAs::Anyone, work).await
    }

    /// Runs a short blocking call on a metadata worker without waiting for it:
    /// closing files, for example, which may free their space.
    pub fn detach(&self, work: impl FnOnce() + Send + 'static) {
        self.inner.metadata.detach(self.store, work);
    }
}

/// Error for a request whose ring has gone; happens only when a runtime ends.
fn lost() -> io::Error {
    io::Error::other("the io engine lost the request")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engines() -> Vec<IoEngine> {
        let mut engines = vec![IoEngine::new(EngineChoice::Threads, 2).unwrap()];
        if let Ok(uring) = IoEngine::new(EngineChoice::Uring, 2) {
            engines.push(uring);
        }
        engines
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    fn to(fd: &Arc<OwnedFd>) -> (&Arc<OwnedFd>, WriteMethod) {
        (fd, WriteMethod::of(fd))
    }

    fn scratch() -> Arc<OwnedFd> {
        Arc::new(OwnedFd::from(tempfile::tempfile().unwrap()))
    }

    #[test]
    fn what_is_written_is_read_back() {
        for engine in engines() {
            runtime().block_on(async {
                let fd = scratch();
                let data = Bytes::from((0..300_000u32).map(|n| n as u8).collect::<Vec<_>>());
                for sync in [WriteSync::None, WriteSync::Data, WriteSync::Full] {
                    let count = engine.write_from(to(&fd), 5, data.clone(), sync).await.unwrap();
                    assert_eq!(count, data.len());
                }
                engine.sync(&fd, true).await.unwrap();
                engine.sync(&fd, false).await.unwrap();
                let (count, buf) = engine.read_into(&fd, 5, AlignedBuf::zeroed(400_000)).await;
                assert_eq!(count.unwrap(), 300_000);
                assert_eq!(buf[..300_000], data[..]);
                let (count, buf) = engine.read(&fd, 1005, AlignedBuf::zeroed(1000)).await;
                assert_eq!(count.unwrap(), 1000);
                assert_eq!(buf[..], data[1000..2000]);
                let (count, _) = engine.read(&fd, 1 << 40, AlignedBuf::zeroed(10)).await;
                assert_eq!(count.unwrap(), 0);
            });
        }
    }

    #[test]
    fn a_pair_of_stores_has_workers_of_its_own() {
        let engine = IoEngine::new(EngineChoice::Threads, 1).unwrap();
        let [one, two, near] = [&b"one"[..], b"two", b"one/below"]
            .map(|name| engine.for_store(&StoreName::of_dataset(name)));
        let pair = one.between(&two);
        assert!(![one.store, two.store, OWN].contains(&pair.store));
        assert_eq!(pair.store, two.between(&one).store);
        assert_eq!(one.between(&near).store, one.store);
        assert!(one.shares_workers_with(&near) && !one.shares_workers_with(&pair));
    }

    #[test]
    fn calls_in_the_background_keep_no_worker_from_requests() {
        let engine = IoEngine::new(EngineChoice::Threads, 1).unwrap();
        let engine = engine.for_store(&StoreName::of_dataset(b"one"));
        let (gate, closed) = std::sync::mpsc::channel::<()>();
        let (begun, begins) = std::sync::mpsc::channel();
        engine.detach_long(move || {
            let _ = begun.send(());
            let _ = closed.recv();
        });
        begins.recv().unwrap();
        assert_eq!(runtime().block_on(engine.run_long(|| 7)).unwrap(), 7);
        drop(gate);
    }

    #[test]
    fn errors_come_through() {
        for engine in engines() {
            runtime().block_on(async {
                let dir = tempfile::NamedTempFile::new().unwrap();
                let fd = Arc::new(OwnedFd::from(std::fs::File::open(dir.path()).unwrap()));
                let data = Bytes::from_static(b"x");
                let error = engine.write_from(to(&fd), 0, data, WriteSync::None).await;
                assert_eq!(error.unwrap_err().raw_os_error(), Some(libc::EBADF));
            });
        }
    }

    #[test]
    fn dropped_requests_and_new_runtimes_do_no_harm() {
        for engine in engines() {
            let fd = scratch();
            for _ in 0..20 {
                runtime().block_on(async {
                    let data = Bytes::from(vec![9; 1 << 20]);
                    let write = engine.write_from(to(&fd), 0, data, WriteSync::None);
                    let _ = tokio::time::timeout(std::time::Duration::ZERO, write).await;
                    let (count, _) = engine.read_into(&fd, 0, AlignedBuf::zeroed(4096)).await;
                    count.unwrap();
                });
            }
        }
    }

    #[test]
    fn many_requests_at_once() {
        for engine in engines() {
            let fd = scratch();
            runtime().block_on(async {
                let mut tasks = Vec::new();
                for block in 0..3000u64 {
                    let (engine, fd) = (engine.clone(), Arc::clone(&fd));
                    tasks.push(tokio::spawn(async move {
                        let data = Bytes::from(vec![block as u8; 512]);
                        let write = engine.write_from(to(&fd), block * 512, data, WriteSync::None);
                        write.await.unwrap();
                        let (count, buf) =
                            engine.read_into(&fd, block * 512, AlignedBuf::zeroed(512)).await;
                        assert_eq!(count.unwrap(), 512);
                        assert!(buf.iter().all(|&byte| byte == block as u8));
                    }));
                }
                for task in tasks {
                    task.await.unwrap();
                }
            });
        }
    }
}
