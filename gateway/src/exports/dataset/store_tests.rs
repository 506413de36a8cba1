//! Closing and reopening, on a directory of this machine.

use super::file::opened;
use super::forward::DatasetStore;
use super::store::DatasetTree;
use bytes::Bytes;
use std::fs::Permissions;
use std::future::Future;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use zgate_io::continuation::Home;
use zgate_posix::PosixOptions;
use zgate_store::file_store::{CreateMode, NamedObject, OpenAccess, OpenFile, ReadHow, Stability};
use zgate_store::{BufferPool, Caller, FileStore, NodeHandle, Payload, SetAttr, StoreError};

/// Workers of the storage for short calls.
const WORKERS: usize = 2;

struct Fixture {
    dir: TempDir,
    home: Arc<DatasetTree>,
    files: DatasetStore,
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

impl Fixture {
    /// None if the file system has no kernel handles, or this process may not
    /// use them: then objects cannot be found again.
    fn new() -> Option<Self> {
        Self::below(&std::env::temp_dir())
    }

    fn below(place: &Path) -> Option<Self> {
        let dir = tempfile::tempdir_in(place).unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        let engine = zgate_io::IoEngine::new(zgate_io::EngineChoice::Threads, WORKERS).unwrap();
        let mut options = PosixOptions::new(engine, BufferPool::new(1 << 20));
        options.handle_secret = Some([7; 16]);
        let home = DatasetTree::open(&dir.path().join("a"), options).unwrap();
        let files = DatasetStore(Arc::clone(&home));
        files.traits().persistent_handles.then_some(Self { dir, home, files })
    }

    fn create(&self, name: &str) -> (NodeHandle, OpenFile) {
        self.create_as(&Caller::root(), name)
    }

    fn create_as(&self, who: &Caller, name: &str) -> (NodeHandle, OpenFile) {
        let root = self.files.root();
        let attrs = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        let made =
            run(self.files.create_file(who, &root, name.as_bytes(), CreateMode::Guarded, &attrs));
        let made = made.unwrap();
        (made.node.handle, made.open.unwrap())
    }

    fn write(&self, file: &OpenFile, text: &'static str) -> Result<(), StoreError> {
        let data = Bytes::from_static(text.as_bytes());
        run(self.files.write(file, 0, data, Stability::FileSync)).map(|_| ())
    }

    fn read(&self, file: &OpenFile) -> Result<Vec<u8>, StoreError> {
        let how = ReadHow { span_allowed: false, tells_holes: false };
        let read = run(self.files.read(file, 0, 100, how))?;
        let Payload::Bytes(data) = read.data else { panic!("bytes were asked for") };
        Ok(data.to_vec())
    }

    /// Returns the number of paths below the directory that this process has
    /// open.
    fn kept(&self) -> usize {
        let here = std::fs::canonicalize(self.dir.path()).unwrap();
        let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let paths = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        paths.filter(|path: &std::path::PathBuf| path.starts_with(&here)).count()
    }

    /// Has all workers of the storage wait until what this returns is dropped. What they had
    /// to do before is done.
    fn hang(&self) -> Vec<mpsc::Sender<()>> {
        let (ends, waits): (Vec<_>, Vec<_>) = (0..WORKERS).map(|_| mpsc::channel::<()>()).unzip();
        let (begun, begins) = mpsc::channel();
        for wait in waits {
            let begun = begun.clone();
            self.home.engine().detach(move || {
                let _ = begun.send(());
                // Nothing is sent: the other end is dropped.
                let _ = wait.recv();
            });
        }
        (0..WORKERS).for_each(|_| begins.recv().unwrap());
        ends
    }

    fn grow_idle(&self) {
        (0..5).for_each(|_| self.home.look());
        assert!(self.home.settled(Duration::from_secs(10)));
    }
}

#[test]
fn idle_stores_keep_nothing_and_come_back() {
    let Some(fixture) = Fixture::new() else { return };
    let (node, file) = fixture.create("kept");
    fixture.write(&file, "one").unwrap();
    assert!(fixture.kept() > 0);
    let identity = fixture.files.identity(&node);
    fixture.grow_idle();
    assert!(identity.is_some());
    assert_eq!(fixture.files.identity(&node), identity, "known without its file system");
    assert_eq!((fixture.kept(), fixture.home.condition()), (0, "idle"));
    // The open file, a second open of the same object, and one with another
    // right.
    assert_eq!(fixture.read(&file).unwrap(), b"one");
    assert_eq!(fixture.home.condition(), "in-use");
    assert_eq!(fixture.files.identity(&node), identity);
    let only_read =
        OpenAccess { read: true, write: false, stateless: false, read_by_execute: false };
    let second = run(fixture.files.open(&Caller::root(), &node, only_read)).unwrap();
    fixture.grow_idle();
    assert_eq!(fixture.write(&second, "no"), Err(StoreError::AccessDenied));
    fixture.write(&file, "two").unwrap();
    assert_eq!(fixture.read(&second).unwrap(), b"two");
}

/// In memory and on ZFS, it is closed at once.
#[test]
fn idle_stores_sync_unstable_writes_before_they_are_closed() {
    let program = std::env::current_exe().unwrap();
    let Some(fixture) = Fixture::below(program.parent().unwrap()) else { return };
    let (_, file) = fixture.create("f");
    let data = Bytes::from_static(b"unstable");
    run(fixture.files.write(&file, 0, data, Stability::Unstable)).unwrap();
    let before = fixture.files.losses();
    let begun = Instant::now();
    while fixture.home.condition() != "idle" {
        assert!(begun.elapsed() < Duration::from_secs(10), "it is still open");
        fixture.grow_idle();
    }
    assert_eq!(fixture.files.losses(), before, "no client has to write again");
    assert_eq!(fixture.read(&file).unwrap(), b"unstable");
}

#[test]
fn what_lost_its_name_is_kept_until_it_is_closed() {
    let Some(fixture) = Fixture::new() else { return };
    let (_, file) = fixture.create("gone");
    fixture.write(&file, "still here").unwrap();
    let (who, root) = (Caller::root(), fixture.files.root());
    run(fixture.files.remove(&who, &root, b"gone", None)).unwrap();
    fixture.grow_idle();
    assert_eq!(fixture.read(&file).unwrap(), b"still here");
    drop(file);
    // Descriptors of removed files are closed on a worker.
    for _ in 0..100 {
        fixture.grow_idle();
        if fixture.kept() == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{} descriptors are kept", fixture.kept());
}

#[test]
fn a_removed_file_is_in_use_until_a_worker_has_closed_it() {
    let Some(fixture) = Fixture::new() else { return };
    drop(fixture.create("gone"));
    let (engine, files) = (fixture.home.engine().clone(), Arc::clone(&fixture.home));
    let (open, gate) = mpsc::channel::<()>();
    run(async {
        let (home, returning) = Home::new(tokio::runtime::Handle::current());
        let (waits, told) = mpsc::channel::<()>();
        let (done, ended) = tokio::sync::oneshot::channel();
        home.begin(async move {
            // A call that ends before its request waits is no reason to leave the core.
            let call = move || {
                let _ = told.recv();
                // The worker closes nothing before the gate is open.
                zgate_io::after_reply(move || {
                    let _ = gate.recv();
                });
            };
            engine.run(call).await.unwrap();
            let files = DatasetStore(files);
            let removed = files.remove(&Caller::root(), &files.root(), b"gone", None).await;
            let _ = done.send(removed.map(drop));
        });
        waits.send(()).unwrap();
        tokio::select! {
            removed = ended => assert_eq!(removed.unwrap(), Ok(())),
            () = returning.run() => panic!("the core has ended"),
        }
    });
    assert!(!fixture.home.hold(Duration::from_millis(200)), "its dataset cannot be unmounted yet");
    drop(open);
    assert!(fixture.home.is_free(Duration::from_secs(10)));
    assert_eq!(fixture.kept(), 0);
}

#[test]
fn a_tree_that_its_last_request_leaves_is_in_use_until_a_worker_has_closed_it() {
    let Some(fixture) = Fixture::new() else { return };
    fixture.create("x");
    let request = run(fixture.home.enter()).unwrap();
    assert!(!fixture.home.hold(Duration::ZERO), "a request runs");
    let hangs = fixture.hang();
    drop(request);
    assert!(!fixture.home.is_free(Duration::from_millis(200)), "no worker has closed it");
    drop(hangs);
    assert!(fixture.home.is_free(Duration::from_secs(10)));
    assert_eq!(fixture.kept(), 0);
}

#[test]
fn a_file_that_is_opened_while_its_tree_is_put_away_does_not_keep_it() {
    let Some(fixture) = Fixture::new() else { return };
    let (node, file) = fixture.create("x");
    fixture.write(&file, "here").unwrap();
    fixture.grow_idle();
    let path = fixture.dir.path().join("a");
    let put_away: [fn(&DatasetTree) -> bool; 2] =
        [|home| home.hold(Duration::ZERO), |home| home.let_go(Duration::ZERO)];
    for put_away in put_away {
        let request = run(fixture.home.enter()).unwrap();
        assert!(!put_away(&fixture.home), "a request runs");
        // It goes on, and uses a file that was closed, and opens another one.
        drop(run(opened(&file, &request.store)).unwrap());
        let (who, store) = (Caller::root(), &*request.store);
        let access =
            OpenAccess { read: true, write: false, stateless: false, read_by_execute: false };
        let made = run(store.open(&who, &node, access)).unwrap();
        let other = fixture.home.adopt(&who, node, access, (store, made));
        drop(request);
        assert!(fixture.home.settled(Duration::from_secs(10)));
        assert_eq!(fixture.kept(), 0, "its dataset cannot be unmounted");
        fixture.home.found_at(&path);
        assert_eq!(fixture.read(&file).unwrap(), b"here");
        assert_eq!(fixture.read(&other).unwrap(), b"here");
        fixture.grow_idle();
    }
}

#[test]
fn storage_that_hangs_keeps_nobody_who_looks_for_idle_stores() {
    let Some(fixture) = Fixture::new() else { return };
    let (_, file) = fixture.create("x");
    fixture.write(&file, "one").unwrap();
    let looks = || (0..10).for_each(|_| fixture.home.look());
    let hangs = fixture.hang();
    looks();
    assert_eq!(fixture.home.condition(), "in-use", "its files are still to be looked at");
    drop(hangs);
    assert!(fixture.home.settled(Duration::from_secs(10)));
    assert_eq!((fixture.kept(), fixture.home.condition()), (0, "idle"));
    assert_eq!(fixture.read(&file).unwrap(), b"one");
    // A request that comes before its files were looked at may remove one of them afterwards.
    let hangs = fixture.hang();
    looks();
    drop(run(fixture.home.enter()).unwrap());
    looks();
    drop(hangs);
    assert!(fixture.home.settled(Duration::from_secs(10)));
    assert_eq!(fixture.home.condition(), "in-use");
    fixture.grow_idle();
    assert_eq!(fixture.home.condition(), "idle");
}

#[test]
fn a_closed_file_is_opened_before_its_name_goes() {
    let Some(fixture) = Fixture::new() else { return };
    let (who, root) = (Caller::root(), fixture.files.root());
    let (_, removed) = fixture.create("removed");
    let (_, covered) = fixture.create("covered");
    fixture.create("other");
    fixture.write(&removed, "r").unwrap();
    fixture.write(&covered, "c").unwrap();
    fixture.grow_idle();
    assert_eq!(fixture.kept(), 0);
    run(fixture.files.remove(&who, &root, b"removed", None)).unwrap();
    run(fixture.files.rename(&who, &root, b"other", &root, b"covered")).unwrap();
    assert_eq!(fixture.read(&removed).unwrap(), b"r");
    assert_eq!(fixture.read(&covered).unwrap(), b"c");
}

#[test]
fn a_file_opened_again_by_a_right_from_before_keeps_no_set_id_bits() {
    let Some(fixture) = Fixture::new() else { return };
    if !zgate_io::credentials::can_switch() {
        return;
    }
    let alice = Caller { uid: 1234, gid: 2345, groups: Arc::from([]) };
    let exported = fixture.dir.path().join("a");
    chown(&exported, Some(alice.uid), Some(alice.gid)).unwrap();
    let (_, file) = fixture.create_as(&alice, "program");
    fixture.write(&file, "one").unwrap();
    fixture.grow_idle();
    // Root takes it over, and lets everybody run it as root.
    let program = exported.join("program");
    chown(&program, Some(0), Some(0)).unwrap();
    std::fs::set_permissions(&program, Permissions::from_mode(0o4755)).unwrap();
    fixture.write(&file, "two").unwrap();
    let mode = std::fs::metadata(&program).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
    assert_eq!(fixture.read(&file).unwrap(), b"two");
}

#[test]
fn held_back_it_answers_later_and_moved_it_is_the_same() {
    let Some(fixture) = Fixture::new() else { return };
    let (node, file) = fixture.create("x");
    fixture.write(&file, "here").unwrap();
    assert!(fixture.home.hold(Duration::from_secs(1)));
    assert_eq!((fixture.kept(), fixture.home.condition()), (0, "away"));
    assert!(fixture.home.is_free(Duration::ZERO));
    assert_eq!(fixture.read(&file), Err(StoreError::OutOfResources));
    let from = fixture.dir.path().join("a");
    let to = fixture.dir.path().join("b");
    std::fs::rename(&from, &to).unwrap();
    // Another file system in its place is not taken for it.
    std::fs::create_dir(&from).unwrap();
    fixture.home.found_at(&from);
    assert_eq!(fixture.read(&file), Err(StoreError::OutOfResources));
    fixture.home.found_at(&to);
    assert!(!fixture.home.is_free(Duration::from_secs(1)), "it is served again");
    assert_eq!(fixture.read(&file).unwrap(), b"here");
    assert_eq!(run(fixture.files.getattr(&node)).unwrap().size, 4);
    fixture.home.found_at(Path::new("/nowhere"));
    assert_eq!(run(fixture.files.getattr(&node)), Err(StoreError::OutOfResources));
}

#[test]
fn what_was_away_may_have_come_back_with_other_content() {
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.dir.path().join("a");
    fixture.create("x");
    let before = fixture.files.losses();
    assert!(!fixture.home.found_at(&path));
    fixture.grow_idle();
    assert!(!fixture.home.found_at(&path), "it has only been closed");
    assert_eq!(fixture.files.losses(), before);
    assert!(fixture.home.hold(Duration::from_secs(1)));
    assert_eq!(fixture.home.mounted_at(), None);
    assert!(fixture.home.found_at(&path));
    assert!(fixture.files.losses() > before, "clients write again what they have not committed");
    assert_eq!(fixture.home.mounted_at(), Some(path));
}

#[test]
fn a_change_made_before_it_went_away_is_not_to_be_made_again() {
    let Some(fixture) = Fixture::new() else { return };
    let (node, _) = fixture.create("x");
    let root = [fixture.files.root()];
    let sync = || run(fixture.files.sync_names(NamedObject::Changed(node), &root));
    assert!(fixture.home.hold(Duration::from_secs(1)));
    assert_eq!(sync(), Err(StoreError::Io));
    assert_eq!(run(fixture.files.sync_objects(&[node])), Err(StoreError::Io));
    assert_eq!(run(fixture.files.getattr(&node)).map(drop), Err(StoreError::OutOfResources));
    fixture.home.found_at(&fixture.dir.path().join("a"));
    assert_eq!(sync(), Ok(()));
}
