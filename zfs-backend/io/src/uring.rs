//! The io_uring engine: one ring per thread. A task on the thread's runtime
//! watches the ring's descriptor for completions.
//!
//! A request's file and buffer belong to the ring's table of requests in
//! flight until the kernel has answered, so that dropping the future frees
//! nothing the kernel still uses.

use crate::set_id::{self, SetIdBits};
use bytes::Bytes;
use io_uring::{IoUring, opcode, squeue, types};
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use zgate_store::AlignedBuf;

/// Submission queue entries per ring; one is enough, as each request is
/// submitted at once.
const RING_ENTRIES: u32 = 64;
/// Most requests in flight per ring; more go to the worker pool.
const MAX_IN_FLIGHT: usize = 1024;

/// Memory a request lends to the kernel.
pub(crate) enum Lent {
    /// Filled by a read.
    Read(AlignedBuf),
    /// Taken by a write.
    Write(Bytes),
    /// Nothing.
    None,
}

/// A ring's requests run as the thread that owns it, unless they say otherwise.
const OWN_IDENTITY: u16 = 0;

/// What to do.
pub(crate) enum Request {
    /// Read into `buffer[filled..]`.
    Read { offset: u64, buffer: AlignedBuf, filled: usize },
    /// Write `data[done..]` with RWF_ flags.
    Write { offset: u64, data: Bytes, done: usize, flags: i32, set_id: SetIdBits },
    /// fsync or fdatasync.
    Sync { data_only: bool },
}

impl Request {
    fn clears_set_id(&self) -> bool {
        matches!(self, Self::Write { set_id: SetIdBits::Cleared, .. })
    }
}

/// The kernel's answer (`-errno` or a count) and the memory given back.
pub(crate) type Answer = (i32, Lent);

struct InFlight {
    /// Keeps the descriptor open while the kernel may use it.
    _file: Arc<OwnedFd>,
    lent: Lent,
    done: oneshot::Sender<Answer>,
}

struct Ring {
    ring: IoUring,
    in_flight: Vec<Option<InFlight>>,
    free: Vec<usize>,
}

/// A thread's ring.
struct CoreRing {
    ring: Mutex<Ring>,
    driven: AtomicBool,
    /// The ring's identity without CAP_FSETID (io_uring_register(2)), for
    /// writes that clear set-id bits; without one they go to the workers.
    ordinary: Option<u16>,
}

thread_local! {
    /// This thread's ring: not yet tried, or failed, or there.
    static RING: RefCell<Option<Option<Arc<CoreRing>>>> = const { RefCell::new(None) };
}

/// Tries io_uring out: sets a ring up and completes a no-op on it.
pub(crate) fn probe() -> io::Result<()> {
    let mut ring = build()?;
    push(&mut ring, &opcode::Nop::new().build().user_data(1))?;
    ring.submit_and_wait(1)?;
    match ring.completion().next() {
        Some(entry) if entry.result() == 0 => Ok(()),
        _ => Err(io::Error::other("io_uring did not complete a no-op")),
    }
}

/// Registers an identity that is this thread's but for CAP_FSETID. A scratch
/// thread puts the capability off, and the ring keeps what it has then.
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
        tracing::warn!(%error, "no second identity for io_uring; clients' synchronous writes use the worker pool");
    }
    registered.ok()
}

fn build() -> io::Result<IoUring> {
    IoUring::builder()
        .setup_coop_taskrun()
        .setup_cqsize(2 * MAX_IN_FLIGHT as u32)
        .build(RING_ENTRIES)
        .or_else(|_| IoUring::new(RING_ENTRIES))
}

/// Hands a request to this thread's ring. `Err` gives the request back when
/// there is no ring, no runtime to watch it, or too much in flight.
pub(crate) fn submit(
    file: &Arc<OwnedFd>,
    request: Request,
) -> Result<oneshot::Receiver<Answer>, Request> {
    let Some(ring) = RING.with_borrow_mut(|slot| slot.get_or_insert_with(open).clone()) else {
        return Err(request);
    };
    if !ring.is_driven() {
        return Err(request);
    }
    ring.submit(file, request)
}

fn open() -> Option<Arc<CoreRing>> {
    let opened = CoreRing::open();
    if let Err(error) = &opened {
        tracing::warn!(%error, "no io_uring on this thread; it uses the worker pool");
    }
    opened.ok().map(Arc::new)
}

impl CoreRing {
    fn open() -> io::Result<Self> {
        let ring = build()?;
        let ordinary = ordinary_identity(&ring);
        let ring = Ring { ring, in_flight: Vec::new(), free: Vec::new() };
        Ok(Self { ring: Mutex::new(ring), driven: AtomicBool::new(false), ordinary })
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes sure a task of the current runtime reaps completions.
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
        file: &Arc<OwnedFd>,
        request: Request,
    ) -> Result<oneshot::Receiver<Answer>, Request> {
        let identity = match (request.clears_set_id(), self.ordinary) {
            (false, _) => OWN_IDENTITY,
            (true, Some(ordinary)) => ordinary,
            (true, None) => return Err(request),
        };
        let mut ring = self.lock();
        if ring.in_flight.len() - ring.free.len() >= MAX_IN_FLIGHT {
            return Err(request);
        }
        let (done, answer) = oneshot::channel();
        ring.start(file, (request, identity), done);
        ring.reap();
        Ok(answer)
    }
}

/// Says that nobody watches the ring any more when its task ends.
struct Driver(Arc<CoreRing>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.driven.store(false, Ordering::Release);
    }
}

async fn drive(driver: Driver, completions: AsyncFd<OwnedFd>) {
    while let Ok(mut ready) = completions.readable().await {
        // First: a completion that comes after the look makes it ready again.
        ready.clear_ready();
        driver.0.lock().reap();
    }
}

impl Ring {
    fn start(
        &mut self,
        file: &Arc<OwnedFd>,
        (request, identity): (Request, u16),
        done: oneshot::Sender<Answer>,
    ) {
        let fd = file.as_raw_fd();
        let (entry, lent) = prepare(fd, request);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.in_flight.push(None);
            self.in_flight.len() - 1
        });
        self.in_flight[slot] = Some(InFlight { _file: Arc::clone(file), lent, done });
        let entry = entry.user_data(slot as u64).personality(identity);
        let pushed = push(&mut self.ring, &entry);
        if pushed.is_err() {
            // The kernel never saw it.
            self.finish(slot, -libc::EAGAIN);
            return;
        }
        // A failed submit leaves the entry queued; the next one takes it along.
        while let Err(error) = self.ring.submit() {
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN | libc::EBUSY) => {
                    self.reap();
                    std::thread::yield_now();
                }
                _ => {
                    tracing::error!(%error, "io_uring refuses submissions");
                    break;
                }
            }
        }
    }

    fn reap(&mut self) {
        loop {
            let Some((slot, result)) =
                self.ring.completion().next().map(|entry| (entry.user_data(), entry.result()))
            else {
                return;
            };
            self.finish(slot as usize, result);
        }
    }

    fn finish(&mut self, slot: usize, result: i32) {
        let Some(request) = self.in_flight.get_mut(slot).and_then(Option::take) else {
            debug_assert!(false, "a completion nobody asked for");
            return;
        };
        self.free.push(slot);
        // Nobody listens when the request was dropped; its memory ends here.
        let _ = request.done.send((result, request.lent));
    }
}

impl Drop for Ring {
    /// Waits for what is in flight: the kernel still uses its memory.
    fn drop(&mut self) {
        while self.in_flight.len() > self.free.len() {
            if let Err(error) = self.ring.submit_and_wait(1)
                && error.raw_os_error() != Some(libc::EINTR)
            {
                std::mem::forget(std::mem::take(&mut self.in_flight));
                return;
            }
            self.reap();
        }
    }
}

/// A descriptor of the ring that is readable when there are completions.
#[allow(unsafe_code)]
fn watch(ring: &IoUring) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the ring keeps its descriptor open for as long as it is borrowed.
    let completions = unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) }.try_clone_to_owned()?;
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
