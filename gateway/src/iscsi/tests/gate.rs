//! A gate in front of a LUN's file: one write to a range, or every read, is held by a
//! separate thread until the gate opens, as a slow disk would hold it. Dropping the
//! future of a held write does not cancel it.

use bytes::Bytes;
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use zgate_store::block_store::{BlockGeometry, Extent};
use zgate_store::{BlockStore, Payload, StoreError, StoreFuture};

/// Time limit for expected events.
const PATIENCE: Duration = Duration::from_secs(30);

static GATES: LazyLock<Mutex<HashMap<PathBuf, Arc<Gate>>>> = LazyLock::new(Mutex::default);

static REPLACED: LazyLock<Mutex<HashMap<PathBuf, Arc<dyn BlockStore>>>> =
    LazyLock::new(Mutex::default);

/// Work to be held, by path: who is told, and the end of the wait.
type Held = Mutex<HashMap<PathBuf, (Sender<()>, Receiver<()>)>>;

static OPENS: LazyLock<Held> = LazyLock::new(Mutex::default);
static RESIZES: LazyLock<Held> = LazyLock::new(Mutex::default);

fn hold(work: &Held, path: &Path) -> (Sender<()>, Receiver<()>) {
    let ((told, begun), (ends, waits)) = (channel(), channel());
    work.lock().unwrap().insert(path.to_owned(), (told, waits));
    (ends, begun)
}

fn wait(work: &Held, path: &Path) {
    let held = work.lock().unwrap().remove(path);
    if let Some((told, waits)) = held {
        // The test may have ended.
        let _ = told.send(());
        let _ = waits.recv();
    }
}

/// Holds the next opening of the LUN at `path` until the sender is dropped. The
/// receiver is told that it has begun.
pub(crate) fn hold_open(path: &Path) -> (Sender<()>, Receiver<()>) {
    hold(&OPENS, path)
}

/// Waits if a test holds the opening of this path.
pub(crate) fn wait_open(path: &Path) {
    wait(&OPENS, path);
}

/// Holds the next change of the size of the file at `path`, in the same way.
pub(crate) fn hold_resize(path: &Path) -> (Sender<()>, Receiver<()>) {
    hold(&RESIZES, path)
}

/// Waits if a test holds the change of this file's size.
pub(crate) fn wait_resize(path: &Path) {
    wait(&RESIZES, path);
}

#[derive(Debug, Default)]
struct State {
    /// Bytes of the disk whose next write is held.
    range: Option<Range<u64>>,
    is_closed: bool,
    held: usize,
    /// Set if reads are held.
    holds_reads: bool,
    held_reads: usize,
    /// Offset at which the next write panics.
    panics_at: Option<u64>,
}

/// Holds writes to one file.
#[derive(Debug)]
pub(crate) struct Gate {
    file: File,
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    /// Puts a gate in front of the LUN that will be opened over the file at `path`.
    pub(crate) fn before(path: &Path) -> Arc<Self> {
        let file = File::options().read(true).write(true).open(path).unwrap();
        let gate = Self { file, state: Mutex::default(), changed: Condvar::new() };
        let gate = Arc::new(gate);
        GATES.lock().unwrap().insert(path.to_owned(), Arc::clone(&gate));
        gate
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds the next write that touches this range.
    pub(crate) fn hold(&self, range: Range<u64>) {
        let mut state = self.state();
        (state.range, state.is_closed) = (Some(range), true);
    }

    /// Holds all reads.
    pub(crate) fn hold_reads(&self) {
        self.state().holds_reads = true;
    }

    /// Returns the number of reads that are held.
    pub(crate) fn held_reads(&self) -> usize {
        self.state().held_reads
    }

    /// Makes the next write at this offset panic.
    pub(crate) fn panic_at(&self, offset: u64) {
        self.state().panics_at = Some(offset);
    }

    /// Releases held writes and reads.
    pub(crate) fn open(&self) {
        let mut state = self.state();
        (state.range, state.is_closed, state.holds_reads) = (None, false, false);
        self.changed.notify_all();
    }

    /// Returns whether a write is held.
    pub(crate) fn is_held(&self) -> bool {
        self.state().held > 0
    }

    /// Waits until the held write has been done.
    pub(crate) fn wait_passed(&self) {
        let held = |state: &mut State| state.held > 0;
        let (state, waited) =
            self.changed.wait_timeout_while(self.state(), PATIENCE, held).unwrap();
        drop(state);
        assert!(!waited.timed_out(), "the held write is not done");
    }

    /// Writes `data` in a thread once the gate is open; returns nothing if it
    /// is open now.
    fn take(
        self: &Arc<Self>,
        offset: u64,
        data: &Bytes,
    ) -> Option<tokio::sync::oneshot::Receiver<()>> {
        let touched = offset..offset + data.len() as u64;
        let mut state = self.state();
        if state.panics_at.take_if(|at| *at == offset).is_some() {
            drop(state);
            panic!("expected by the test");
        }
        let overlaps = |range: &Range<u64>| range.start < touched.end && touched.start < range.end;
        if !state.range.as_ref().is_some_and(overlaps) {
            return None;
        }
        state.range = None;
        state.held += 1;
        drop(state);
        let (done, result) = tokio::sync::oneshot::channel();
        let (gate, data) = (Arc::clone(self), data.clone());
        std::thread::spawn(move || {
            drop(gate.changed.wait_while(gate.state(), |state| state.is_closed).unwrap());
            gate.file.write_all_at(&data, offset).unwrap();
            gate.state().held -= 1;
            gate.changed.notify_all();
            // The caller may have gone.
            let _ = done.send(());
        });
        Some(result)
    }

    /// Waits in a thread until reads pass; returns nothing if they pass now.
    fn take_read(self: &Arc<Self>) -> Option<tokio::sync::oneshot::Receiver<()>> {
        let mut state = self.state();
        if !state.holds_reads {
            return None;
        }
        state.held_reads += 1;
        drop(state);
        let (done, result) = tokio::sync::oneshot::channel();
        let gate = Arc::clone(self);
        std::thread::spawn(move || {
            let waits = |state: &mut State| state.holds_reads;
            gate.changed.wait_while(gate.state(), waits).unwrap().held_reads -= 1;
            // The caller may have gone.
            let _ = done.send(());
        });
        Some(result)
    }
}

/// Waits for a read that is held.
async fn passed(held: Option<tokio::sync::oneshot::Receiver<()>>) -> Result<(), StoreError> {
    match held {
        Some(held) => held.await.map_err(|_| StoreError::Io),
        None => Ok(()),
    }
}

/// A store behind a gate.
struct Gated {
    gate: Arc<Gate>,
    store: Arc<dyn BlockStore>,
}

/// Has the LUN that will be opened over the file at `path` read and write this store instead.
pub(crate) fn replace(path: &Path, store: Arc<dyn BlockStore>) {
    REPLACED.lock().unwrap().insert(path.to_owned(), store);
}

/// Wraps the store in the gate that a test has registered for its file, or returns the one that
/// a test has put in its place.
pub(crate) fn around(path: &Path, store: Arc<dyn BlockStore>) -> Arc<dyn BlockStore> {
    if let Some(other) = REPLACED.lock().unwrap().remove(path) {
        return other;
    }
    match GATES.lock().unwrap().remove(path) {
        Some(gate) => Arc::new(Gated { gate, store }),
        None => store,
    }
}

impl BlockStore for Gated {
    fn geometry(&self) -> BlockGeometry {
        self.store.geometry()
    }

    fn read<'a>(&'a self, offset: u64, len: usize) -> StoreFuture<'a, Payload> {
        let held = self.gate.take_read();
        Box::pin(async move {
            passed(held).await?;
            self.store.read(offset, len).await
        })
    }

    fn read_to_send<'a>(&'a self, offset: u64, len: usize) -> StoreFuture<'a, Payload> {
        let held = self.gate.take_read();
        Box::pin(async move {
            passed(held).await?;
            self.store.read_to_send(offset, len).await
        })
    }

    fn write<'a>(&'a self, offset: u64, data: Bytes, fua: bool) -> StoreFuture<'a, ()> {
        match self.gate.take(offset, &data) {
            Some(held) => Box::pin(async move { held.await.map_err(|_| StoreError::Io) }),
            None => self.store.write(offset, data, fua),
        }
    }

    fn sync<'a>(&'a self) -> StoreFuture<'a, ()> {
        self.store.sync()
    }

    fn admit_change<'a>(&'a self) -> StoreFuture<'a, ()> {
        self.store.admit_change()
    }

    fn discard<'a>(&'a self, offset: u64, len: u64) -> StoreFuture<'a, ()> {
        self.store.discard(offset, len)
    }

    fn write_zeroes<'a>(&'a self, offset: u64, len: u64, may_unmap: bool) -> StoreFuture<'a, ()> {
        self.store.write_zeroes(offset, len, may_unmap)
    }

    fn extents<'a>(&'a self, offset: u64, len: u64, max: usize) -> StoreFuture<'a, Vec<Extent>> {
        self.store.extents(offset, len, max)
    }

    fn prefetch<'a>(&'a self, offset: u64, len: u64) -> StoreFuture<'a, ()> {
        self.store.prefetch(offset, len)
    }

    fn refresh<'a>(&'a self) -> StoreFuture<'a, u64> {
        self.store.refresh()
    }
}
