//! Tests of the table of files with unstable writes.

use super::*;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use zgate_store::StoreError;

type Job = Box<dyn FnOnce() + Send>;

/// A disk that does nothing until it is told to.
#[derive(Default)]
struct Disk {
    jobs: Mutex<VecDeque<Job>>,
}

impl Disk {
    fn waiting(&self) -> usize {
        self.jobs.lock().unwrap().len()
    }

    fn do_one(&self) {
        let job = self.jobs.lock().unwrap().pop_front();
        job.unwrap()();
    }
}

struct File {
    handle: NodeHandle,
    writes: Writes,
    disk: Arc<Disk>,
    result: Mutex<StoreResult<()>>,
    syncs: AtomicUsize,
    losses: Losses,
    /// Number of losses when those who wait for its sync go on.
    told: AtomicU64,
}

impl Syncable for File {
    fn handle(&self) -> &NodeHandle {
        &self.handle
    }

    fn writes(&self) -> &Writes {
        &self.writes
    }

    fn disk(&self) -> usize {
        usize::from(self.handle.as_bytes()[0] >= 200)
    }

    fn detach(self: Arc<Self>, work: impl FnOnce(Arc<Self>) + Send + 'static) {
        let disk = Arc::clone(&self.disk);
        disk.jobs.lock().unwrap().push_back(Box::new(move || work(self)));
    }

    fn sync(&self, told: impl FnOnce(StoreResult<()>)) {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        told(*self.result.lock().unwrap());
        self.told.store(self.losses.generation(), Ordering::Relaxed);
    }
}

impl File {
    fn syncs(&self) -> usize {
        self.syncs.load(Ordering::Relaxed)
    }

    fn fails_with(&self, error: StoreError) {
        *self.result.lock().unwrap() = Err(error);
    }
}

/// Room for this many files.
const ROOM: usize = 8;

struct Rig {
    disk: Arc<Disk>,
    losses: Losses,
    unsynced: Arc<Unsynced<File>>,
}

impl Rig {
    fn new() -> Self {
        let losses = Losses::default();
        let unsynced = Unsynced::new(ROOM * UNSYNCED_PART, losses.clone());
        Self { disk: Arc::default(), losses, unsynced }
    }

    fn file(&self, number: u8) -> Arc<File> {
        Arc::new(File {
            handle: NodeHandle::new(&[number]).unwrap(),
            writes: Writes::default(),
            disk: Arc::clone(&self.disk),
            result: Mutex::new(Ok(())),
            syncs: AtomicUsize::new(0),
            losses: self.losses.clone(),
            told: AtomicU64::new(0),
        })
    }

    /// Writes to a file; false if the write had to sync itself.
    fn write(&self, file: &Arc<File>) -> bool {
        self.unsynced.begin(file).is_some()
    }

    fn keeps(&self, file: &Arc<File>) -> bool {
        self.unsynced.all().iter().any(|kept| Arc::ptr_eq(kept, file))
    }

    /// Writes to new files until all room is taken.
    fn fill(&self) -> Vec<Arc<File>> {
        let files: Vec<_> = (0..ROOM as u8).map(|number| self.file(number)).collect();
        assert!(files.iter().all(|file| self.write(file)));
        files
    }
}

#[test]
fn a_file_is_kept_until_its_writes_are_synced() {
    let rig = Rig::new();
    let file = rig.file(1);
    assert!(rig.write(&file));
    assert!(rig.keeps(&file));
    let before = file.writes.ended();
    // A refusal syncs nothing.
    rig.unsynced.synced(&file, before, Err(StoreError::OutOfResources));
    assert!(rig.keeps(&file));
    rig.unsynced.synced(&file, before, Ok(()));
    assert!(!rig.keeps(&file));
    assert_eq!(Arc::strong_count(&file), 1);
    // A loss was told: nothing is left to sync.
    assert!(rig.write(&file));
    rig.unsynced.synced(&file, file.writes.ended(), Err(StoreError::Io));
    assert!(!rig.keeps(&file));
    assert_eq!(rig.disk.waiting(), 0, "there was room enough");
}

#[test]
fn a_sync_does_not_cover_what_is_written_meanwhile() {
    let rig = Rig::new();
    let file = rig.file(1);
    assert!(rig.write(&file));
    let before = file.writes.ended();
    let running = rig.unsynced.begin(&file);
    rig.unsynced.synced(&file, before, Ok(()));
    assert!(rig.keeps(&file), "a write runs");
    drop(running);
    rig.unsynced.synced(&file, before, Ok(()));
    assert!(rig.keeps(&file), "it has ended since");
    rig.unsynced.synced(&file, file.writes.ended(), Ok(()));
    assert!(!rig.keeps(&file));
}

#[test]
fn a_disk_that_hangs_gets_few_syncs_and_new_files_sync_themselves() {
    let rig = Rig::new();
    let files = rig.fill();
    assert_eq!(rig.disk.waiting(), MAX_FILES_BEING_SYNCED);
    let late = rig.file(100);
    assert!(!rig.write(&late), "there is no room for it");
    assert!(!rig.keeps(&late));
    assert!(files.iter().all(|file| rig.write(file)), "they have their places");
    assert_eq!(rig.disk.waiting(), MAX_FILES_BEING_SYNCED);
    assert!(files.iter().all(|file| rig.keeps(file)), "also those that are being synced");
    // The disk answers again.
    rig.disk.do_one();
    assert!(!rig.keeps(&files[0]), "the oldest makes room");
    assert!(rig.write(&late));
}

#[test]
fn a_failed_sync_counts_before_those_who_wait_for_it_go_on() {
    // Each error: nobody else would be told.
    for error in [StoreError::Io, StoreError::NoSpace, StoreError::ReadOnly] {
        let rig = Rig::new();
        let files = rig.fill();
        let before = rig.losses.generation();
        files[0].fails_with(error);
        rig.disk.do_one();
        assert_eq!(files[0].syncs(), 1);
        assert_ne!(rig.losses.generation(), before, "{error:?}");
        assert_eq!(files[0].told.load(Ordering::Relaxed), rig.losses.generation());
        assert!(!rig.keeps(&files[0]));
    }
}

#[test]
fn a_file_that_is_written_all_the_time_does_not_hold_up_the_others() {
    let rig = Rig::new();
    let files = rig.fill();
    let _running = rig.unsynced.begin(&files[0]);
    rig.disk.do_one();
    assert!(rig.keeps(&files[0]));
    for _ in 0..ROOM {
        rig.unsynced.make_idle(ROOM);
        if rig.disk.waiting() > 0 {
            rig.disk.do_one();
        }
    }
    assert!(files[1..].iter().all(|file| file.syncs() == 1 && !rig.keeps(file)));
    assert!(rig.keeps(&files[0]));
}

#[test]
fn short_descriptors_begin_syncs() {
    let rig = Rig::new();
    let file = rig.file(1);
    assert!(rig.write(&file));
    assert_eq!(rig.disk.waiting(), 0);
    rig.unsynced.make_idle(32);
    assert_eq!(rig.disk.waiting(), 1);
    rig.disk.do_one();
    assert!(!rig.keeps(&file));
}

#[test]
fn a_removed_file_is_let_go_of() {
    let rig = Rig::new();
    let file = rig.file(1);
    assert!(rig.unsynced.forget(&file.handle).is_none());
    assert!(rig.write(&file));
    drop(rig.unsynced.forget(&file.handle).unwrap());
    assert_eq!(Arc::strong_count(&file), 1);
    // A client that still has it open goes on.
    assert!(rig.write(&file));
    assert!(rig.keeps(&file));
    assert_eq!(file.syncs(), 0);
}

#[test]
fn all_are_synced_in_turn_and_a_disk_that_hangs_holds_up_no_other() {
    let rig = Rig::new();
    let files = [1, 2, 3, 200].map(|number| rig.file(number));
    assert!(files.iter().all(|file| rig.write(file)));
    let before = rig.losses.generation();
    files[1].fails_with(StoreError::Io);
    for _ in 0..3 {
        assert!(rig.unsynced.sync_all(|file| file.handle.as_bytes()[0] != 3));
        assert_eq!(rig.disk.waiting(), 2, "one for each disk, however often it is asked for");
    }
    while rig.disk.waiting() > 0 {
        rig.disk.do_one();
    }
    assert_ne!(rig.losses.generation(), before);
    assert_eq!(files.each_ref().map(|file| rig.keeps(file)), [false, false, true, false]);
    assert!(files.iter().all(|file| file.syncs() <= 1));
}

#[test]
fn a_disk_that_hangs_keeps_no_sync_from_another() {
    let rig = Rig::new();
    let hanging = [1, 2, 3, 4, 5, 6].map(|number| rig.file(number));
    assert!(hanging.iter().all(|file| rig.write(file)));
    assert_eq!(rig.disk.waiting(), MAX_FILES_BEING_SYNCED);
    let other = rig.file(200);
    assert!(rig.write(&other));
    assert_eq!(rig.disk.waiting(), MAX_FILES_BEING_SYNCED + 1);
}

#[test]
fn a_file_that_is_written_during_its_commit_comes_last() {
    let rig = Rig::new();
    let files = [1, 2].map(|number| rig.file(number));
    assert!(files.iter().all(|file| rig.write(file)));
    let before = files[0].writes.ended();
    assert!(rig.write(&files[0]));
    rig.unsynced.synced(&files[0], before, Ok(()));
    rig.unsynced.make_idle(1);
    rig.disk.do_one();
    assert_eq!(files.each_ref().map(|file| rig.keeps(file)), [true, false]);
}

#[test]
fn clients_write_again_what_is_given_up() {
    let rig = Rig::new();
    let before = rig.losses.generation();
    rig.unsynced.abandon();
    assert_eq!(rig.losses.generation(), before, "nothing was unsynced");
    let file = rig.file(1);
    assert!(rig.write(&file));
    rig.unsynced.abandon();
    assert_ne!(rig.losses.generation(), before);
    assert!(rig.unsynced.all().is_empty());
    assert_eq!(file.syncs(), 0);
}
