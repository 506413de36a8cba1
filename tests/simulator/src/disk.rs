//! The disk: a model of a file system whose calls take time, hang, fail, and
//! lose with the power what was not synced.

mod file_store;

use crate::dice::Dice;
use crate::executor::{Domain, Executor, MILLISECOND, lock};
use crate::history::{BLOCK_BYTES, History};
use crate::mutant::Mutant;
use crate::plan::{BLOCKS_PER_WORKER, WORKERS};
use crate::trace::Trace;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use zgate_memory::{FileOp, MemoryStore, SimDisk, Snapshot};
use zgate_store::attr::FsId;
use zgate_store::file_store::{NewNode, OpenAccess, OpenFile, ReadData, ReadHow, Stability};
use zgate_store::{Caller, FileStore, NodeHandle, Payload, SetAttr, StoreError, StoreResult};

/// Bytes that reach the disk together.
const SECTOR_BYTES: usize = BLOCK_BYTES / 2;
/// Size of the logical unit.
const UNIT_BYTES: u64 = 64 << 10;
/// Most bytes of a client's file.
const MAX_FILE_BYTES: usize = BLOCK_BYTES * (WORKERS * BLOCKS_PER_WORKER) as usize;
/// Longest time of a call on a healthy disk.
const USUAL_NANOS: u64 = 5 * MILLISECOND;
/// Longest time until a waiting call sees that the disk is healed.
const STEP_NANOS: u64 = 500 * MILLISECOND;

#[derive(Default)]
struct Faults {
    hung_until: u64,
    slow: (u64, u64),
    full_until: u64,
    fails_next: bool,
    loses_next: bool,
    /// Time that the next write takes, while others pass it.
    next_write_takes: u64,
    healed: bool,
    /// Servers before this one are fenced: another machine has taken over.
    fenced_below: u32,
    /// Calls of servers up to this one are late, until this time.
    late_upto: u32,
    late_until: u64,
}

/// The way back from a change of names that was not synced.
enum NameUndo {
    Remove(NodeHandle, Vec<u8>),
    Make(NodeHandle, Vec<u8>),
    /// The last value: the new name was in use before.
    Rename(NodeHandle, Vec<u8>, Vec<u8>, bool),
}

/// The result of a call of a store that does not wait.
///
/// # Panics
/// If it does.
pub fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a store in memory does not wait"),
    }
}

/// A disk; it outlives the servers that use it.
pub struct Disk {
    /// The file system.
    pub store: MemoryStore,
    /// The disk of the logical unit.
    pub blocks: SimDisk,
    executor: Arc<Executor>,
    history: Arc<History>,
    trace: Arc<Trace>,
    dice: Mutex<Dice>,
    faults: Mutex<Faults>,
    /// Changes of names since the last sync.
    unsynced_names: Mutex<Vec<NameUndo>>,
    /// The file system, as it was when the snapshot was taken.
    snapshot: Mutex<Option<Snapshot>>,
    rollbacks: AtomicU64,
    mutant: Option<Mutant>,
    /// Blocks before their latest write, for a planted fault.
    old_copies: Arc<Mutex<BTreeMap<u64, Bytes>>>,
}

impl Disk {
    /// An empty file system on a healthy disk.
    #[must_use]
    pub fn new(
        executor: &Arc<Executor>,
        history: &Arc<History>,
        trace: &Arc<Trace>,
        seed: u64,
        mutant: Option<Mutant>,
    ) -> Arc<Self> {
        let fsid = FsId { major: 7, minor: 1 };
        Arc::new(Self {
            store: MemoryStore::builder().fsid(fsid).root_mode(0o777).build(),
            blocks: SimDisk::builder(UNIT_BYTES)
                .physical_block_bytes(512)
                .discard(true)
                .write_cache(true)
                .build(),
            executor: Arc::clone(executor),
            history: Arc::clone(history),
            trace: Arc::clone(trace),
            dice: Mutex::new(Dice::new(seed, "disk")),
            faults: Mutex::default(),
            unsynced_names: Mutex::default(),
            snapshot: Mutex::default(),
            rollbacks: AtomicU64::new(0),
            mutant,
            old_copies: Arc::default(),
        })
    }

    /// All calls wait for so long.
    pub fn hang(&self, nanos: u64) {
        lock(&self.faults).hung_until = self.executor.nanos() + nanos;
    }

    /// Calls take up to `delay` more, for so long.
    pub fn slow_down(&self, nanos: u64, delay: u64) {
        lock(&self.faults).slow = (self.executor.nanos() + nanos, delay);
    }

    /// There is no space, for so long.
    pub fn fill(&self, nanos: u64) {
        lock(&self.faults).full_until = self.executor.nanos() + nanos;
    }

    /// The next change fails.
    pub fn fail_next(&self) {
        lock(&self.faults).fails_next = true;
    }

    /// The next sync fails and loses what it should have synced.
    pub fn lose_next(&self) {
        lock(&self.faults).loses_next = true;
    }

    /// The next write takes so long; others pass it.
    pub fn hold_next_write(&self, nanos: u64) {
        lock(&self.faults).next_write_takes = nanos;
    }

    /// The disk is healthy again.
    pub fn heal(&self) {
        let mut faults = lock(&self.faults);
        let Faults { fenced_below, .. } = *faults;
        *faults = Faults { healed: true, fenced_below, ..Faults::default() };
    }

    /// Calls of this server are stuck on their way to the disk, for so long.
    pub fn delay_server(&self, server: u32, nanos: u64) {
        let mut faults = lock(&self.faults);
        (faults.late_upto, faults.late_until) = (server, self.executor.nanos() + nanos);
    }

    /// Waits until the server that runs has its way to the disk.
    pub async fn way_is_open(&self) {
        loop {
            let until = {
                let faults = lock(&self.faults);
                if self.is_late(&faults) { faults.late_until } else { 0 }
            };
            let now = self.executor.nanos();
            if now >= until {
                return;
            }
            // It may open earlier: the faults end.
            self.executor.sleep_until(until.min(now + STEP_NANOS)).await;
        }
    }

    /// Another machine takes the disk over: calls of servers before this one
    /// fail from now on, those under way included.
    pub fn fence(&self, server: u32) {
        lock(&self.faults).fenced_below = server;
    }

    fn is_late(&self, faults: &Faults) -> bool {
        matches!(self.executor.current(), Domain::Server(number) if number <= faults.late_upto)
    }

    fn is_fenced(&self, faults: &Faults) -> bool {
        matches!(self.executor.current(), Domain::Server(number) if number < faults.fenced_below)
    }

    /// Returns whether the task that runs belongs to a server that another
    /// machine has replaced.
    #[must_use]
    pub fn refuses_current(&self) -> bool {
        self.is_fenced(&lock(&self.faults))
    }

    /// The power fails: of what was not synced, any sectors of a file and the
    /// first changes of names may have reached the disk.
    pub fn lose_power(&self) {
        let written = self.contents();
        let files = self.lose_unsynced();
        let seed = lock(&self.dice).u64();
        self.blocks.power_loss(seed);
        let names = self.lose_names();
        let sectors = self.keep_some_sectors(&written);
        self.trace.note(
            "disk",
            format_args!(
                "power loss: {files} files lose data, {sectors} sectors of it are kept; \
                 {names} changes of names are lost"
            ),
        );
    }

    /// Takes a snapshot of the file system.
    pub fn take_snapshot(&self) {
        *lock(&self.snapshot) = Some(self.store.snapshot());
        self.history.snapshot_taken();
    }

    /// The file system, with the files of so many clients, goes back to the snapshot. Calls under
    /// way have their effect behind that. `is_served`: a server runs.
    pub fn roll_back(&self, clients: usize, is_served: bool) {
        let Some(snapshot) = lock(&self.snapshot).take() else { return };
        let changed = self.store.roll_back(&snapshot);
        // The snapshot is on stable storage.
        lock(&self.unsynced_names).clear();
        self.rollbacks.fetch_add(1, Ordering::AcqRel);
        self.history.rolled_back(clients, is_served);
        self.trace.note("disk", format_args!("rollback: {changed} objects change"));
    }

    /// Rollbacks that the write verifier tells of.
    fn told_rollbacks(&self) -> u64 {
        let hidden = self.mutant == Some(Mutant::RollbackKeepsVerifier);
        if hidden { 0 } else { self.rollbacks.load(Ordering::Acquire) }
    }

    fn lose_unsynced(&self) -> usize {
        let files = self.store.crash();
        self.history.unstable_lost();
        files
    }

    /// The clients' files and their contents.
    fn contents(&self) -> Vec<(OpenFile, Bytes)> {
        let (who, root, rights) = (
            Caller::root(),
            self.store.root(),
            OpenAccess { read: true, write: true, stateless: false, read_by_execute: false },
        );
        let read = |number: usize| {
            let node = at_once(self.store.lookup(&who, &root, format!("f{number}").as_bytes()));
            let file = at_once(self.store.open(&who, &node.ok()?.handle, rights)).ok()?;
            let how = ReadHow { span_allowed: false, tells_holes: false };
            match at_once(self.store.read(&file, 0, MAX_FILE_BYTES, how)).ok()?.data {
                Payload::Bytes(data) => Some((file, data)),
                Payload::Span(_) => None,
            }
        };
        (0..).map_while(read).collect()
    }

    /// Puts some of the sectors back that a power loss has taken.
    fn keep_some_sectors(&self, written: &[(OpenFile, Bytes)]) -> usize {
        let mut kept = 0;
        for ((file, new), (_, old)) in written.iter().zip(self.contents()) {
            for at in (0..new.len()).step_by(SECTOR_BYTES) {
                let sector = new.slice(at..new.len().min(at + SECTOR_BYTES));
                let same = old.get(at..at + sector.len()) == Some(&sector[..]);
                if same || lock(&self.dice).once_in(2) {
                    continue;
                }
                kept += 1;
                let put = self.store.write(file, at as u64, sector, Stability::FileSync);
                at_once(put).unwrap_or_else(|error| panic!("a sector: {error}"));
            }
        }
        kept
    }

    /// Takes back the last changes of names that were not synced.
    fn lose_names(&self) -> usize {
        let mut unsynced = std::mem::take(&mut *lock(&self.unsynced_names));
        let lost = lock(&self.dice).below(unsynced.len() as u64 + 1) as usize;
        let (who, store) = (Caller::root(), &self.store);
        let attrs = SetAttr { mode: Some(0o755), ..SetAttr::default() };
        let make = |dir: &NodeHandle, name: &[u8]| {
            at_once(store.create_node(&who, dir, name, &NewNode::Directory, &attrs)).map(|_| ())
        };
        for undo in unsynced.drain(unsynced.len() - lost..).rev() {
            let undone = match &undo {
                NameUndo::Remove(dir, name) => {
                    at_once(store.remove(&who, dir, name, None)).map(|_| ())
                }
                NameUndo::Make(dir, name) => make(dir, name),
                NameUndo::Rename(dir, from, to, replaced) => {
                    at_once(store.rename(&who, dir, to, dir, from))
                        .and_then(|_| if *replaced { make(dir, to) } else { Ok(()) })
                }
            };
            undone.unwrap_or_else(|error| panic!("a name that was lost: {error}"));
        }
        lost
    }

    /// Runs a change of names, which is lost with the power until it is synced.
    async fn change_names<T>(
        &self,
        op: FileOp,
        call: impl Future<Output = StoreResult<T>>,
        undo: impl FnOnce() -> NameUndo,
    ) -> StoreResult<T> {
        self.run(op, async {
            // Before the change: it may replace a name.
            let undo = undo();
            let result = call.await;
            if result.is_ok() {
                lock(&self.unsynced_names).push(undo);
            }
            result
        })
        .await
    }

    fn exists(&self, dir: &NodeHandle, name: &[u8]) -> bool {
        at_once(self.store.lookup(&Caller::root(), dir, name)).is_ok()
    }

    fn delay(&self) -> u64 {
        let mut dice = lock(&self.dice);
        let (until, most) = lock(&self.faults).slow;
        let usual = dice.spread(1000, USUAL_NANOS);
        if self.executor.nanos() < until { usual + dice.below(most) } else { usual }
    }

    /// Time of a call before its effect. It ends when the disk is healed.
    async fn seek_time(&self, op: FileOp) {
        let mut ready = self.executor.nanos() + self.delay();
        if op == FileOp::Write {
            ready += std::mem::take(&mut lock(&self.faults).next_write_takes);
        }
        loop {
            let (until, healed) = {
                let faults = lock(&self.faults);
                let late = if self.is_late(&faults) { faults.late_until } else { 0 };
                (ready.max(faults.hung_until).max(late), faults.healed && late == 0)
            };
            let now = self.executor.nanos();
            if now >= until || (healed && now + USUAL_NANOS < until) {
                return;
            }
            self.executor.sleep_until(until.min(now + STEP_NANOS)).await;
            ready = ready.max(lock(&self.faults).hung_until);
        }
    }

    /// The fault that a call of this kind meets now.
    fn verdict(&self, op: FileOp) -> StoreResult<()> {
        let mut faults = lock(&self.faults);
        if self.is_fenced(&faults) && self.mutant != Some(Mutant::FenceIgnored) {
            return Err(StoreError::Io);
        }
        let changes = matches!(
            op,
            FileOp::Write | FileOp::Commit | FileOp::CreateNode | FileOp::Remove | FileOp::Rename
        );
        if changes && std::mem::take(&mut faults.fails_next) {
            return Err(StoreError::Io);
        }
        let grows = matches!(op, FileOp::Write | FileOp::CreateNode);
        if grows && self.executor.nanos() < faults.full_until {
            return Err(StoreError::NoSpace);
        }
        Ok(())
    }

    /// A call of the logical unit's disk: time and fault before its effect.
    ///
    /// # Errors
    /// The fault.
    pub async fn reach(&self, op: FileOp) -> StoreResult<()> {
        self.seek_time(op).await;
        self.verdict(op).inspect_err(|error| {
            self.trace.note("disk", format_args!("{op:?} of blocks fails: {error}"));
        })
    }

    /// The executor of the run.
    #[must_use]
    pub fn executor(&self) -> &Arc<Executor> {
        &self.executor
    }

    /// Virtual time.
    pub fn nanos(&self) -> u64 {
        self.executor.nanos()
    }

    /// Time after the effect of a call.
    pub async fn leave(&self) {
        self.executor.sleep(self.delay() / 8).await;
    }

    /// Runs a call: time, fault, effect at one moment, time.
    async fn run<T>(
        &self,
        op: FileOp,
        call: impl Future<Output = StoreResult<T>>,
    ) -> StoreResult<T> {
        self.seek_time(op).await;
        if let Err(error) = self.verdict(op) {
            self.trace.note("disk", format_args!("{op:?} fails: {error}"));
            // As the file system does: it counts failed syncs.
            self.store.faults().fail_next(op, error);
        }
        let result = call.await;
        self.executor.sleep(self.delay() / 8).await;
        result
    }

    async fn sync(&self, file: &OpenFile) -> StoreResult<()> {
        self.seek_time(FileOp::Commit).await;
        if std::mem::take(&mut lock(&self.faults).loses_next) {
            self.store.faults().fail_next(FileOp::Commit, StoreError::Io);
            let failed = self.store.commit(file).await;
            self.trace.note("disk", format_args!("a sync fails and loses data"));
            self.lose_unsynced();
            return failed;
        }
        self.run(FileOp::Commit, self.store.commit(file)).await
    }

    async fn put(
        &self,
        file: &OpenFile,
        offset: u64,
        data: Bytes,
        how: Stability,
    ) -> StoreResult<(usize, Stability)> {
        let len = data.len();
        match self.mutant {
            Some(Mutant::StableWriteUnstable) => {
                let write = self.store.write(file, offset, data, Stability::Unstable);
                self.run(FileOp::Write, write).await.map(|(count, _)| (count, how))
            }
            Some(Mutant::UnstableToldStable) => {
                let write = self.store.write(file, offset, data, how);
                let written = self.run(FileOp::Write, write).await;
                written.map(|(count, _)| (count, Stability::FileSync))
            }
            Some(Mutant::ShortWriteHidden) if lock(&self.dice).once_in(10) => {
                let write = self.store.write(file, offset, data.slice(..len / 2), how);
                self.run(FileOp::Write, write).await.map(|(_, how)| (len, how))
            }
            Some(hidden @ (Mutant::FullDiskHidden | Mutant::WriteErrorHidden)) => {
                let write = self.store.write(file, offset, data, how);
                match (self.run(FileOp::Write, write).await, hidden) {
                    (Err(StoreError::NoSpace), Mutant::FullDiskHidden)
                    | (Err(StoreError::Io), Mutant::WriteErrorHidden) => Ok((len, how)),
                    (written, _) => written,
                }
            }
            Some(Mutant::ReadFromOldCopy) => {
                let how_read = ReadHow { span_allowed: false, tells_holes: false };
                let old = self.store.read(file, offset, len, how_read).await;
                if let Ok(ReadData { data: Payload::Bytes(old), .. }) = old {
                    lock(&self.old_copies).insert(offset, old);
                }
                self.run(FileOp::Write, self.store.write(file, offset, data, how)).await
            }
            Some(Mutant::WriteBehindAnswer | Mutant::DeadServerWrites) => {
                let late = self.put_later(file, offset, data, how);
                if self.mutant == Some(Mutant::WriteBehindAnswer) {
                    return Ok((len, how));
                }
                late.await.unwrap_or(Err(StoreError::Io))
            }
            _ => self.run(FileOp::Write, self.store.write(file, offset, data, how)).await,
        }
    }

    /// Begins a write that no server's end stops.
    fn put_later(
        &self,
        file: &OpenFile,
        offset: u64,
        data: Bytes,
        how: Stability,
    ) -> tokio::sync::oneshot::Receiver<StoreResult<(usize, Stability)>> {
        let (tell, told) = tokio::sync::oneshot::channel();
        let (store, file, delay) = (self.store.clone(), file.clone(), self.delay());
        let (executor, until, held) = {
            let mut faults = lock(&self.faults);
            let held = std::mem::take(&mut faults.next_write_takes);
            (Arc::clone(&self.executor), faults.hung_until, held)
        };
        self.executor.spawn(Domain::Outside, async move {
            executor.sleep(delay + held).await;
            executor.sleep_until(until).await;
            let _ = tell.send(store.write(&file, offset, data, how).await);
        });
        told
    }

    async fn get(
        &self,
        file: &OpenFile,
        offset: u64,
        len: usize,
        how: ReadHow,
    ) -> StoreResult<ReadData> {
        let mut read = self.run(FileOp::Read, self.store.read(file, offset, len, how)).await?;
        if self.mutant == Some(Mutant::ReadFromOldCopy)
            && lock(&self.dice).once_in(4)
            && let Some(old) = lock(&self.old_copies).get(&offset)
            && let Payload::Bytes(new) = &read.data
            && new.len() == old.len()
            && new.first_chunk::<4>() == old.first_chunk::<4>()
        {
            read.data = Payload::Bytes(old.clone());
        }
        Ok(read)
    }
}
