//! The io_uring engine: one ring per thread. A task on the thread's runtime
//! watches the ring's descriptor for completions.
//!
//! The table of requests in flight owns a request's file and buffer until the
//! kernel has completed it, so that dropping the future frees nothing that the
//! kernel still uses.

use crate::continuation::is_worker;
use crate::hang_detector::{HangDetector, LOOK_INTERVAL};
use crate::queue::StoreSlot;
use crate::set_id::{self, SetIdBits};
use bytes::Bytes;
use io_uring::{IoUring, opcode, squeue, types};
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use zgate_store::AlignedBuf;

/// Submission queue entries per ring; a few suffice, because each request is
/// submitted at once.
const RING_ENTRIES: u32 = 64;
/// Most requests in flight per ring; more go to the worker pool.
const MAX_IN_FLIGHT: usize = 1024;
/// Most requests in flight of a slow store. More go to the worker pool, which
/// refuses them when the store hangs.
const MAX_IN_FLIGHT_SLOW: usize = 16;
/// Attempts in a row at a submission that the kernel refuses: some follow completions, which
/// make room for it.
const SUBMIT_ATTEMPTS: u32 = 16;
/// Time for which a ring that ends waits for requests in flight.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// Memory that a request lends to the kernel.
pub(crate) enum Lent {
    /// Buffer filled by a read.
    Read(AlignedBuf),
    /// Bytes written by a write.
    Write(Bytes),
    /// No memory.
    None,
}

/// Identity number of the thread that owns the ring, the default of requests.
const OWN_IDENTITY: u16 = 0;

/// Operation of a request.
pub(crate) enum Request {
    /// Reads into `buffer[filled..]`.
    Read { offset: u64, buffer: AlignedBuf, filled: usize },
    /// Writes `data[done..]` with RWF_ flags.
    Write { offset: u64, data: Bytes, done: usize, flags: i32, set_id: SetIdBits },
    /// fsync or fdatasync.
    Sync { data_only: bool },
}

impl Request {
    fn clears_set_id(&self) -> bool {
        matches!(self, Self::Write { set_id: SetIdBits::Cleared, .. })
    }
}

/// Result from the kernel (`-errno` or a count), and the memory lent to it.
pub(crate) type Answer = (i32, Lent);

struct InFlight {
    store: StoreSlot,
    /// Keeps the descriptor open while the kernel may use it.
    _file: Arc<OwnedFd>,
    lent: Lent,
    done: oneshot::Sender<Answer>,
}

struct Ring {
    ring: IoUring,
    in_flight: Vec<Option<InFlight>>,
    free: Vec<usize>,
    /// Requests in flight, by store.
    hang_detectors: Vec<HangDetector>,
    /// Number of kernel threads that wait for disks on behalf of this thread:
    /// the kernel's default, and more while some wait for stores that hang. 0:
    /// the kernel has no such limit.
    kernel_workers: u32,
    kernel_workers_more: u32,
    /// Set while the kernel does not take what is queued, for want of memory.
    is_refused: bool,
    /// Number of submissions that fail.
    #[cfg(test)]
    failing_submits: usize,
}

/// A thread's ring.
struct CoreRing {
    ring: Mutex<Ring>,
    driven: AtomicBool,
    /// Registered identity without CAP_FSETID (io_uring_register(2)), for
    /// writes that clear set-id bits; without one such writes go to the
    /// workers.
    ordinary: Option<u16>,
}

thread_local! {
    /// Ring of this thread: not yet tried, failed, or present.
    static RING: RefCell<Option<Option<Arc<CoreRing>>>> = const { RefCell::new(None) };
}

/// Tests io_uring: sets up a ring and completes a no-op on it.
pub(crate) fn probe() -> io::Result<()> {
    let mut ring = build()?;
    push(&mut ring, &opcode::Nop::new().build().user_data(1))?;
    ring.submit_and_wait(1)?;
    match ring.completion().next() {
        Some(entry) if entry.result() == 0 => Ok(()),
        _ => Err(io::Error::other("io_uring did not complete a no-op")),
    }
}

/// Registers an identity that equals this thread's except for CAP_FSETID. A
/// scratch thread drops the capability, and the ring keeps its identity.
fn ordinary_identity(ring: &IoUring) -> Option<u16> {
    let register = || -> io::Result<u16> {
        set_id::put_off()?;
        ring.submitter().register_personality()
    };
    let registered = std::thread::scope(|scope| {
        let scratch = std::thread::Builder::new().spawn_scoped(scope, register)?;
        scratch.join().unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
    });
    if let Err(error) = &registered {
        tracing::warn!(%error, "cannot register a second identity for io_uring; clients' \
            synchronous writes use the worker pool");
    }
    registered.ok()
}

fn build() -> io::Result<IoUring> {
    let mut wanted: io_uring::Builder = IoUring::builder();
    wanted.setup_cqsize(2 * MAX_IN_FLIGHT as u32);
    let coop = wanted.clone().setup_coop_taskrun().build(RING_ENTRIES);
    // Kernels before 5.19 refuse the flag, but have room for all completions.
    coop.or_else(|_| wanted.build(RING_ENTRIES)).or_else(|_| IoUring::new(RING_ENTRIES))
}

/// Submits a request to this thread's ring. `Err` returns the request if there
/// is no ring, no runtime to poll it, or too much in flight.
pub(crate) fn submit(
    store: StoreSlot,
    file: &Arc<OwnedFd>,
    request: Request,
) -> Result<oneshot::Receiver<Answer>, Request> {
    // Workers have no ring: nothing would poll it.
    if is_worker() {
        return Err(request);
    }
    let Some(ring) = RING.with_borrow_mut(|slot| slot.get_or_insert_with(open).clone()) else {
        return Err(request);
    };
    if !ring.is_driven() {
        return Err(request);
    }
    ring.submit(store, file, request)
}

fn open() -> Option<Arc<CoreRing>> {
    let opened = CoreRing::open();
    if let Err(error) = &opened {
        tracing::warn!(%error, "cannot set up io_uring on this thread; it uses the worker pool");
    }
    opened.ok().map(Arc::new)
}

impl CoreRing {
    fn open() -> io::Result<Self> {
        let ring = build()?;
        let ordinary = ordinary_identity(&ring);
        let ring = Mutex::new(Ring::over(ring));
        Ok(Self { ring, driven: AtomicBool::new(false), ordinary })
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ensures that a task of the current runtime reaps completions.
    fn is_driven(self: &Arc<Self>) -> bool {
        if self.driven.load(Ordering::Acquire) {
            return true;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return false;
        };
        let Ok(completions) = watch(&self.lock().ring) else {
            return false;
        };
        self.driven.store(true, Ordering::Release);
        runtime.spawn(drive(Driver(Arc::clone(self)), completions));
        true
    }

    fn submit(
        &self,
        store: StoreSlot,
        file: &Arc<OwnedFd>,
        request: Request,
    ) -> Result<oneshot::Receiver<Answer>, Request> {
        let identity = match (request.clears_set_id(), self.ordinary) {
            (false, _) => OWN_IDENTITY,
            (true, Some(ordinary)) => ordinary,
            (true, None) => return Err(request),
        };
        let mut ring = self.lock();
        ring.offer_again();
        if !ring.has_room(store) {
            return Err(request);
        }
        let (done, answer) = oneshot::channel();
        ring.start(store, file, (request, identity), done);
        ring.reap();
        Ok(answer)
    }
}

/// Records that nothing polls the ring any more when its task ends.
struct Driver(Arc<CoreRing>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.driven.store(false, Ordering::Release);
    }
}

async fn drive(driver: Driver, completions: AsyncFd<OwnedFd>) {
    let mut look = tokio::time::interval(LOOK_INTERVAL);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            ready = completions.readable() => {
                let Ok(mut ready) = ready else { return };
                // Clear the readiness first: a later completion makes the ring
                // ready again.
                ready.clear_ready();
                let mut ring = driver.0.lock();
                ring.reap();
                ring.offer_again();
            }
            _ = look.tick() => driver.0.lock().look(),
        }
    }
}

impl Ring {
    fn over(ring: IoUring) -> Self {
        // A call with 0 changes nothing and returns the present values.
        let mut kernel_workers = [0; 2];
        let asked = ring.submitter().register_iowq_max_workers(&mut kernel_workers);
        Self {
            ring,
            in_flight: Vec::new(),
            free: Vec::new(),
            hang_detectors: Vec::new(),
            kernel_workers: asked.map_or(0, |()| kernel_workers[0]),
            kernel_workers_more: 0,
            is_refused: false,
            #[cfg(test)]
            failing_submits: 0,
        }
    }

    /// Returns whether another request of the store may be in flight.
    fn has_room(&self, store: StoreSlot) -> bool {
        if self.is_refused {
            return false;
        }
        let of_it = self.hang_detectors.get(store.0).copied().unwrap_or_default();
        let most = if of_it.is_slow() { MAX_IN_FLIGHT_SLOW } else { MAX_IN_FLIGHT };
        of_it.count() < most && self.in_flight.len() - self.free.len() < MAX_IN_FLIGHT
    }

    fn hang_detector(&mut self, store: StoreSlot) -> &mut HangDetector {
        if self.hang_detectors.len() <= store.0 {
            self.hang_detectors.resize(store.0 + 1, HangDetector::default());
        }
        &mut self.hang_detectors[store.0]
    }

    /// Answers what no event told, and adjusts the number of kernel workers for stores that
    /// hang. Files that do
    /// not support non-blocking reads (ZFS's) each occupy a kernel thread, of
    /// which this thread has few: stuck ones are replaced, so that requests for
    /// other stores do not wait behind them. Call it on the ring's thread.
    fn look(&mut self) {
        self.reap();
        self.offer_again();
        for store in &mut self.hang_detectors {
            let _ = store.look();
        }
        let slow = self.hang_detectors.iter().filter(|store| store.is_slow());
        let more = slow.map(|store| store.count() as u32).sum::<u32>();
        if more == self.kernel_workers_more || self.kernel_workers == 0 {
            return;
        }
        let mut bounds = [self.kernel_workers + more, 0];
        match self.ring.submitter().register_iowq_max_workers(&mut bounds) {
            Ok(()) => self.kernel_workers_more = more,
            Err(error) => tracing::debug!(%error, "the number of kernel workers cannot be changed"),
        }
    }

    fn start(
        &mut self,
        store: StoreSlot,
        file: &Arc<OwnedFd>,
        (request, identity): (Request, u16),
        done: oneshot::Sender<Answer>,
    ) {
        self.hang_detector(store).begin();
        let fd = file.as_raw_fd();
        let (entry, lent) = prepare(fd, request);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.in_flight.push(None);
            self.in_flight.len() - 1
        });
        self.in_flight[slot] = Some(InFlight { store, _file: Arc::clone(file), lent, done });
        let entry = entry.user_data(slot as u64).personality(identity);
        let pushed = push(&mut self.ring, &entry);
        if pushed.is_err() {
            // The kernel never received it.
            self.finish(slot, -libc::EAGAIN);
            return;
        }
        self.submit_queued(SUBMIT_ATTEMPTS);
    }

    /// Has the kernel take what is queued. What it refuses stays queued, and is offered again
    /// with the next request or completion, or by [`Ring::look`]: meanwhile the thread serves
    /// others, and further requests go to the workers.
    fn submit_queued(&mut self, attempts: u32) {
        let mut refusal = None;
        for _ in 0..attempts {
            match self.submit_once() {
                Ok(_) if self.ring.submission().is_empty() => {
                    self.is_refused = false;
                    return;
                }
                Ok(_) => {}
                Err(error) => refusal = Some(error),
            }
            self.reap();
            std::thread::yield_now();
        }
        if !std::mem::replace(&mut self.is_refused, true) {
            let error = refusal.map_or_else(|| "it takes a part".to_owned(), |e| e.to_string());
            tracing::warn!(%error, "the kernel refuses requests to io_uring; workers do them");
        }
    }

    fn submit_once(&mut self) -> io::Result<usize> {
        #[cfg(test)]
        if let Some(left) = self.failing_submits.checked_sub(1) {
            self.failing_submits = left;
            return Err(io::Error::from_raw_os_error(libc::EAGAIN));
        }
        self.ring.submit()
    }

    /// Offers the kernel what it has refused.
    fn offer_again(&mut self) {
        if self.is_refused {
            self.submit_queued(1);
        }
    }

    /// Answers what the kernel has completed, also what found no room in the completion
    /// queue: the kernel keeps that until it is called.
    fn reap(&mut self) {
        let mut asked = false;
        loop {
            let next =
                self.ring.completion().next().map(|entry| (entry.user_data(), entry.result()));
            if let Some((slot, result)) = next {
                asked = false;
                self.finish(slot as usize, result);
                continue;
            }
            if asked || !self.ring.submission().cq_overflow() || self.ring.submit().is_err() {
                return;
            }
            asked = true;
        }
    }

    fn finish(&mut self, slot: usize, result: i32) {
        let Some(request) = self.in_flight.get_mut(slot).and_then(Option::take) else {
            debug_assert!(false, "a completion without a request");
            return;
        };
        self.free.push(slot);
        self.hang_detector(request.store).end();
        // If the request was dropped, nothing receives the result; its memory
        // is freed here.
        let _ = request.done.send((result, request.lent));
    }
}

impl Drop for Ring {
    /// Waits a limited time for requests in flight, because the kernel still
    /// uses their memory. Requests that have not ended by then leak their
    /// memory.
    fn drop(&mut self) {
        let deadline = Instant::now() + END_PATIENCE;
        let pause = types::Timespec::new().nsec(10_000_000);
        while self.in_flight.len() > self.free.len() {
            let wait = types::SubmitArgs::new().timespec(&pause);
            let waited = self.ring.submitter().submit_with_args(1, &wait);
            self.reap();
            let goes_on = match waited {
                Ok(_) => true,
                Err(error) => matches!(error.raw_os_error(), Some(libc::EINTR | libc::ETIME)),
            };
            if !goes_on || Instant::now() >= deadline {
                std::mem::forget(std::mem::take(&mut self.in_flight));
                return;
            }
        }
    }
}

/// Returns a descriptor of the ring that is readable when there are
/// completions.
#[allow(unsafe_code)]
fn descriptor(ring: &IoUring) -> io::Result<OwnedFd> {
    // SAFETY: the ring keeps its descriptor open for as long as it is borrowed.
    unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) }.try_clone_to_owned()
}

/// Returns the same for a task that waits for completions.
#[allow(unsafe_code)]
fn watch(ring: &IoUring) -> io::Result<AsyncFd<OwnedFd>> {
    let completions = descriptor(ring)?;
    // SAFETY: an `OwnedFd` keeps one descriptor open until it is dropped, and
    // the `AsyncFd` owns it.
    Ok(unsafe { AsyncFd::register_with_interest(completions, Interest::READABLE) }?)
}

#[allow(unsafe_code)]
fn push(ring: &mut IoUring, entry: &squeue::Entry) -> io::Result<()> {
    // SAFETY: the memory and the descriptor the entry names are kept in
    // `Ring::in_flight` until its completion arrives (a no-op names none).
    unsafe { ring.submission().push(entry) }.map_err(|_| io::Error::other("submission queue full"))
}

fn prepare(fd: RawFd, request: Request) -> (squeue::Entry, Lent) {
    let fd = types::Fd(fd);
    match request {
        Request::Read { offset, mut buffer, filled } => {
            let rest = &mut buffer[filled..];
            let len = rest.len().min(i32::MAX as usize) as u32;
            let entry = opcode::Read::new(fd, rest.as_mut_ptr(), len)
                .offset(offset + filled as u64)
                .build();
            (entry, Lent::Read(buffer))
        }
        Request::Write { offset, data, done, flags, .. } => {
            let rest = &data[done..];
            let len = rest.len().min(i32::MAX as usize) as u32;
            let entry = opcode::Write::new(fd, rest.as_ptr(), len)
                .offset(offset + done as u64)
                .rw_flags(flags)
                .build();
            (entry, Lent::Write(data))
        }
        Request::Sync { data_only } => {
            let flags =
                if data_only { types::FsyncFlags::DATASYNC } else { types::FsyncFlags::empty() };
            (opcode::Fsync::new(fd).flags(flags).build(), Lent::None)
        }
    }
}

#[cfg(test)]
mod tests;
