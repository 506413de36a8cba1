//! A disk that does not answer, as a frozen loop-mounted file system: calls
//! that change it do not return until it is thawed. Needs root, loop devices
//! and ext4's tools, as `bad_disk` does. Where only the workers matter, a call that does
//! not return stands for the disk.

use crate::bad_disk::{Disk, EXT4, let_anyone_in, run};
use crate::fixture::*;
use crate::mounts::Small;
use bytes::Bytes;
use rustix::mount::{UnmountFlags, unmount};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use zgate_io::{EngineChoice, IoEngine};
use zgate_posix::{HandleMode, PosixOptions, PosixStore};
use zgate_store::file_store::{CreateMode, DirPage, NewNode, Stability};
use zgate_store::{BufferPool, FileKind, FileStore, SetAttr, StoreError};

/// Workers per store in these tests.
const WORKERS: usize = 2;
/// Time limit far above the response time of a store that does not hang.
const PATIENCE: Duration = Duration::from_secs(20);

/// Thaws the file system when dropped, so that it can be unmounted.
struct Frozen(PathBuf);

impl Frozen {
    fn new(disk: &Disk) -> Option<Self> {
        let at = disk.at.clone();
        let is_frozen = run("fsfreeze", &["-f", at.to_str()?]);
        if !is_frozen {
            not_run("the right to freeze a file system is needed");
        }
        is_frozen.then_some(Self(at))
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        run("fsfreeze", &["-u", self.0.to_str().unwrap_or_default()]);
    }
}

type Request<'a> = Pin<Box<dyn Future<Output = bool> + 'a>>;

/// Begins requests, none of which can end.
fn begin(requests: &mut [Request<'_>]) {
    let mut task = Context::from_waker(Waker::noop());
    for request in requests {
        assert!(request.as_mut().poll(&mut task).is_pending());
    }
}

#[test]
fn a_file_system_that_hangs_stops_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let make = [&EXT4[..], &["-N", "128"]].concat();
    let Some(disk) = Disk::new(dir.path(), 16 << 20, &make, "loop") else { return };
    let_anyone_in(&disk);
    let sound_dir = tempfile::tempdir().unwrap();
    let engine = IoEngine::new(EngineChoice::Threads, WORKERS).unwrap();
    let options = || PosixOptions::new(engine.clone(), BufferPool::new(16 << 20));
    let hung = PosixStore::open(&disk.at, options()).unwrap();
    let sound = PosixStore::open(sound_dir.path(), options()).unwrap();
    // The directory is on another file system, and so is its child mount.
    let above = PosixStore::open(dir.path(), options()).unwrap();
    block_on(async {
        let mode = SetAttr { mode: Some(0o644), ..SetAttr::default() };
        let (who, top) = (root(), hung.root());
        let made = hung.create_file(&who, &top, b"f", CreateMode::Guarded, &mode).await.unwrap();
        let file = made.open.unwrap();
        let mounted = above.lookup(&who, &above.root(), b"mounted").await.unwrap().handle;
        let Some(frozen) = Frozen::new(&disk) else { return };
        let data = Bytes::from_static(b"x");
        let mut requests: Vec<Request<'_>> = Vec::new();
        for _ in 0..WORKERS + 3 {
            let made = hung.create_node(&who, &top, b"d", &NewNode::Directory, &mode);
            requests.push(Box::pin(async { made.await.is_ok() }));
            let made = above.create_node(&who, &mounted, b"e", &NewNode::Directory, &mode);
            requests.push(Box::pin(async { made.await.is_ok() }));
            let written = hung.write(&file, 0, data.clone(), Stability::Unstable);
            requests.push(Box::pin(async { written.await.is_ok() }));
        }
        begin(&mut requests);
        for (store, name) in [(&sound, "a"), (&above, "b")] {
            let used = tokio::time::timeout(PATIENCE, use_it(store, name)).await;
            used.expect("it waits for the other");
        }
        drop(frozen);
        let mut done = 0;
        for request in requests {
            done += usize::from(request.await);
        }
        assert!(done >= WORKERS + 2, "{done}: what was begun ends when the disk answers");
        use_it(&hung, "after").await;
    });
}

/// Makes calls that use every kind of worker.
async fn use_it(store: &Arc<PosixStore>, name: &str) {
    let mode = SetAttr { mode: Some(0o644), ..SetAttr::default() };
    let (who, top) = (root(), store.root());
    let made = store.create_file(&who, &top, name.as_bytes(), CreateMode::Guarded, &mode).await;
    let made = made.unwrap();
    let file = made.open.unwrap();
    let data = Bytes::from_static(b"data");
    store.write(&file, 0, data, Stability::FileSync).await.unwrap();
    store.commit(&file).await.unwrap();
    store.statfs(&top).await.unwrap();
    store.sync_objects(&[top, made.node.handle]).await.unwrap();
    drop(file);
    store.remove(&who, &top, name.as_bytes(), None).await.unwrap();
}

/// Returns the result of a request that waits for nothing.
fn at_once<T>(request: impl Future<Output = T>) -> Option<T> {
    let mut task = Context::from_waker(Waker::noop());
    match std::pin::pin!(request).poll(&mut task) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

/// Opens a tree whose file systems have one worker of each kind.
fn with_one_worker(root: &std::path::Path, handle_mode: HandleMode) -> Arc<PosixStore> {
    let engine = IoEngine::new(EngineChoice::Threads, 1).unwrap();
    let options = PosixOptions::new(engine, BufferPool::new(16 << 20));
    PosixStore::open(root, PosixOptions { handle_mode, ..options }).unwrap()
}

#[test]
fn names_that_would_cross_file_systems_are_refused_without_a_worker() {
    for handle_mode in [HandleMode::Auto, HandleMode::InTree] {
        let dir = tempfile::tempdir().unwrap();
        let Some(_child) = Small::mount(dir.path().join("child"), c"size=1m") else { return };
        std::fs::write(dir.path().join("f"), b"above").unwrap();
        let store = with_one_worker(dir.path(), handle_mode);
        block_on(async {
            let (who, top) = (root(), store.root());
            let child = store.lookup(&who, &top, b"child").await.unwrap().handle;
            let file = store.lookup(&who, &top, b"f").await.unwrap().handle;
            let (stuck, gate) = std::sync::mpsc::channel::<()>();
            store.engine().detach(move || {
                let _ = gate.recv();
            });
            let refused = Some(StoreError::CrossDevice);
            let renamed = at_once(store.rename(&who, &top, b"f", &child, b"f"));
            assert_eq!(renamed.map(error_of), refused);
            assert_eq!(at_once(store.link(&who, &file, &child, b"f")).map(error_of), refused);
            if store.traits().persistent_handles {
                // The handles tell it, too.
                store.release();
                let renamed = at_once(store.rename(&who, &child, b"f", &top, b"g"));
                assert_eq!(renamed.map(error_of), refused);
                assert_eq!(at_once(store.link(&who, &file, &child, b"f")).map(error_of), refused);
            }
            drop(stuck);
        });
    }
}

#[test]
fn a_copy_between_file_systems_takes_no_worker_of_its_target() {
    let dir = tempfile::tempdir().unwrap();
    let Some(small) = Small::mount(dir.path().join("child"), c"size=1m") else { return };
    std::fs::write(small.0.join("f"), b"inside").unwrap();
    let store = with_one_worker(dir.path(), HandleMode::Auto);
    block_on(async {
        let (who, top) = (root(), store.root());
        let child = store.lookup(&who, &top, b"child").await.unwrap().handle;
        let source = store.lookup(&who, &child, b"f").await.unwrap().handle;
        let from = store.open(&who, &source, READ).await.unwrap();
        let made = store.create_file(&who, &top, b"to", CreateMode::Guarded, &mode(0o600)).await;
        let to = made.unwrap().open.unwrap();
        let (stuck, gate) = std::sync::mpsc::channel::<()>();
        let mut waits = Box::pin(store.engine().run_long(move || gate.recv().is_err()));
        assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let copied = tokio::time::timeout(PATIENCE, store.copy_range(&from, 0, &to, 0, 6)).await;
        assert_eq!(copied.expect("it waits for the target's worker"), Ok(6));
        drop(stuck);
        assert!(waits.await.unwrap());
        assert_eq!(std::fs::read(dir.path().join("to")).unwrap(), b"inside");
    });
}

/// Begins a request that waits for a worker of the root, and returns whether it still
/// waits once that worker has done its part.
async fn waits_elsewhere(
    store: &PosixStore,
    mut request: Pin<&mut (impl Future + ?Sized)>,
) -> bool {
    let mut task = Context::from_waker(Waker::noop());
    let is_begun = request.as_mut().poll(&mut task).is_pending();
    // The one worker takes its jobs in turn.
    store.engine().run(|| ()).await.unwrap();
    is_begun && request.as_mut().poll(&mut task).is_pending()
}

/// Lists the root, and returns whether it is listed again while the worker of `pair`
/// hangs. Tries several times: a listing is valid for a second, and this thread may have
/// to wait longer than that for a processor.
async fn lists_from_memory(store: &PosixStore, pair: &IoEngine) -> bool {
    let (who, top) = (root(), store.root());
    for _ in 0..10 {
        let healthy = store.readdir(&who, &top, 0, 10, true).await.unwrap();
        let (stuck, gate) = std::sync::mpsc::channel::<()>();
        pair.detach(move || {
            let _ = gate.recv();
        });
        let again = at_once(store.readdir(&who, &top, 0, 10, true));
        drop(stuck);
        if let Some(Ok(page)) = again {
            let handles = |page: &DirPage| -> Vec<_> {
                page.entries.iter().map(|entry| entry.node.unwrap().handle).collect()
            };
            return handles(&page) == handles(&healthy);
        }
    }
    false
}

/// A tree in which another file system is mounted as "child". Both have one worker of
/// each kind.
struct Above {
    store: Arc<PosixStore>,
    /// The child alone.
    inside: Arc<PosixStore>,
    _child: Small,
    _dir: tempfile::TempDir,
}

impl Above {
    fn new(handle_mode: HandleMode) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let child = Small::mount(dir.path().join("child"), c"size=1m")?;
        std::fs::write(dir.path().join("f"), b"above").unwrap();
        let engine = IoEngine::new(EngineChoice::Threads, 1).unwrap();
        let options = || PosixOptions {
            handle_mode,
            ..PosixOptions::new(engine.clone(), BufferPool::new(16 << 20))
        };
        let store = PosixStore::open(dir.path(), options()).unwrap();
        let inside = PosixStore::open(&child.0, options()).unwrap();
        Some(Self { store, inside, _child: child, _dir: dir })
    }
}

#[test]
fn a_child_that_hangs_keeps_no_worker_of_the_file_system_above() {
    for handle_mode in [HandleMode::Auto, HandleMode::InTree] {
        let Some(above) = Above::new(handle_mode) else { return };
        let (store, inside) = (&above.store, &above.inside);
        block_on(async {
            let (who, top) = (root(), store.root());
            let (stuck, gate) = std::sync::mpsc::channel::<()>();
            store.engine().between(inside.engine()).detach(move || {
                let _ = gate.recv();
            });
            let mut found = store.lookup(&who, &top, b"child");
            assert!(waits_elsewhere(store, found.as_mut()).await, "looked up above");
            let mut listed = store.readdir(&who, &top, 0, 10, true);
            assert!(waits_elsewhere(store, listed.as_mut()).await, "listed above");
            let (unchecked, attrs) = (CreateMode::Unchecked, mode(0o600));
            let mut opened = store.create_file(&who, &top, b"child", unchecked, &attrs);
            assert!(waits_elsewhere(store, opened.as_mut()).await, "opened above");
            // Whoever does not need the child is served.
            assert!(store.lookup(&who, &top, b"f").await.is_ok());
            assert_eq!(store.readdir(&who, &top, 0, 10, false).await.unwrap().entries.len(), 2);
            drop(stuck);
            let (found, page) = (found.await.unwrap(), listed.await.unwrap());
            assert_ne!(found.attr.fsid, store.fsid());
            let opened = opened.await.unwrap();
            assert_eq!((opened.node.handle, opened.created), (found.handle, false));
            for entry in page.entries {
                let is_child = entry.name == b"child";
                assert_eq!(entry.node.unwrap().handle == found.handle, is_child);
            }
            let pair = store.engine().between(inside.engine());
            assert!(lists_from_memory(store, &pair).await, "listed from memory");
        });
    }
}

#[test]
fn a_file_system_that_hangs_keeps_no_worker_of_its_child() {
    for handle_mode in [HandleMode::Auto, HandleMode::InTree] {
        let Some(above) = Above::new(handle_mode) else { return };
        let (store, inside) = (&above.store, &above.inside);
        block_on(async {
            let (who, top) = (root(), store.root());
            let child = store.lookup(&who, &top, b"child").await.unwrap().handle;
            let (stuck, gate) = std::sync::mpsc::channel::<()>();
            store.engine().between(inside.engine()).detach(move || {
                let _ = gate.recv();
            });
            let mut parent = store.lookup_parent(&who, &child);
            assert!(waits_elsewhere(inside, parent.as_mut()).await, "looked up in the child");
            drop(stuck);
            assert_eq!(parent.await.unwrap().handle, top);
        });
    }
}

#[test]
fn changes_of_a_mount_points_name_leave_what_is_mounted_there_alone() {
    let modes = [HandleMode::Auto, HandleMode::InTree];
    for (handle_mode, has_other) in modes.into_iter().flat_map(|one| [(one, false), (one, true)]) {
        let dir = tempfile::tempdir().unwrap();
        let permit = |mode| {
            std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        };
        permit(0o755);
        std::fs::create_dir(dir.path().join("d")).unwrap();
        std::fs::write(dir.path().join("f"), b"above").unwrap();
        // The store knows of other storage then.
        let other = || Small::mount(dir.path().join("other"), c"size=1m");
        let _other = if has_other { other() } else { None };
        let store = with_one_worker(dir.path(), handle_mode);
        // The store opens its root if it takes it up.
        let Some(child) = Small::mount(dir.path().join("child"), c"size=1m") else { return };
        block_on(async {
            let (who, top) = (root(), store.root());
            let (busy, is_dir) = (StoreError::Busy, StoreError::IsDirectory);
            let (dirs, files) = (Some(FileKind::Directory), Some(FileKind::Regular));
            for (kind, why) in [(None, busy), (dirs, busy), (files, is_dir)] {
                let removed = store.remove(&who, &top, b"child", kind).await;
                assert_eq!(error_of(removed), why);
            }
            let renames = [("child", "x", busy), ("d", "child", busy), ("f", "child", is_dir)];
            for (from, to, why) in renames {
                let renamed = store.rename(&who, &top, from.as_bytes(), &top, to.as_bytes()).await;
                assert_eq!(error_of(renamed), why);
            }
            let (from, to) = store.rename(&who, &top, b"child", &top, b"child").await.unwrap();
            assert_eq!((from.before, to.before), (from.after, to.after), "it is the same name");
            let bits = mode(0o700);
            let made = store.create_node(&who, &top, b"child", &NewNode::Directory, &bits);
            assert_eq!(error_of(made.await), StoreError::Exists);
            let stranger = user(1000, 1000);
            let removed = store.remove(&stranger, &top, b"child", None).await;
            assert_eq!(error_of(removed), StoreError::AccessDenied);
            let renamed = store.rename(&stranger, &top, b"d", &top, b"child").await;
            assert_eq!(error_of(renamed), StoreError::AccessDenied);
            permit(0o1777);
            let removed = store.remove(&stranger, &top, b"child", None).await;
            assert_eq!(error_of(removed), StoreError::NotPermitted);
            let renamed = store.rename(&stranger, &top, b"child", &top, b"x").await;
            assert_eq!(error_of(renamed), StoreError::NotPermitted);
        });
        unmount(&child.0, UnmountFlags::empty()).expect("nothing of it is open");
    }
}
