//! A disk that does not answer, as a frozen loop-mounted file system: calls
//! that change it do not return until it is thawed. Needs root, loop devices
//! and ext4's tools, and passes silently where these are missing.

use crate::bad_disk::{Disk, EXT4, let_anyone_in, run};
use crate::fixture::*;
use bytes::Bytes;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;
use zgate_io::{EngineChoice, IoEngine};
use zgate_posix::{PosixOptions, PosixStore};
use zgate_store::file_store::{CreateMode, NewNode, Stability};
use zgate_store::{BufferPool, FileStore, SetAttr};

/// Workers per store in these tests.
const WORKERS: usize = 2;
/// Time limit far above the response time of a store that does not hang.
const PATIENCE: Duration = Duration::from_secs(20);

/// Thaws the file system when dropped, so that it can be unmounted.
struct Frozen(PathBuf);

impl Frozen {
    fn new(disk: &Disk) -> Option<Self> {
        let at = disk.at.clone();
        run("fsfreeze", &["-f", at.to_str()?]).then_some(Self(at))
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
