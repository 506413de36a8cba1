//! A store over a scratch directory, with short methods for tests.

use std::future::Future;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use zgate_io::{EngineChoice, IoEngine};
use zgate_posix::{HandleMode, PosixOptions, PosixStore};
use zgate_store::file_store::{
    CreateMode, CreatedFile, NewNode, Node, OpenAccess, OpenFile, ReadHow, Stability,
};
use zgate_store::{
    BufferPool, Caller, FileStore, NodeHandle, Payload, SetAttr, StoreError, StoreResult,
};

pub(crate) struct Fixture {
    pub(crate) dir: TempDir,
    pub(crate) store: Arc<PosixStore>,
    pub(crate) mode: HandleMode,
}

pub(crate) const READ_WRITE: OpenAccess =
    OpenAccess { read: true, write: true, stateless: false, read_by_execute: false };
pub(crate) const READ: OpenAccess =
    OpenAccess { read: true, write: false, stateless: false, read_by_execute: false };

pub(crate) fn root() -> Caller {
    Caller::root()
}

pub(crate) fn user(uid: u32, gid: u32) -> Caller {
    Caller { uid, gid, groups: Arc::from([]) }
}

/// Returns whether callers' identities can be taken on.
pub(crate) fn is_root() -> bool {
    let can_switch = zgate_io::credentials::can_switch();
    assert!(can_switch || !is_everything_required(), "this process takes on no identities");
    can_switch
}

/// Returns whether a test that cannot run is a failure, as in CI.
fn is_everything_required() -> bool {
    std::env::var("ZGATE_TEST_LOOP").is_ok_and(|value| value == "require")
}

/// Says that a test does not run here, past the harness that captures the output of passing
/// tests. Where everything is required it fails.
pub(crate) fn not_run(why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    assert!(!is_everything_required(), "{test} does not run: {why}");
    // A note that cannot be written has no effect.
    let _ = writeln!(std::io::stderr(), "note: {test} not run: {why}");
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

pub(crate) fn options(mode: HandleMode) -> PosixOptions {
    let engine = IoEngine::new(EngineChoice::Auto, 4).unwrap();
    PosixOptions { handle_mode: mode, ..PosixOptions::new(engine, BufferPool::new(16 << 20)) }
}

pub(crate) fn open_store(path: &Path, mode: HandleMode) -> Arc<PosixStore> {
    PosixStore::open(path, options(mode)).unwrap()
}

pub(crate) fn fixture(mode: HandleMode) -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let store = open_store(dir.path(), mode);
    Fixture { dir, store, mode }
}

/// Runs a test once per handle mode.
pub(crate) fn in_both_modes<F: Future<Output = ()>>(test: impl Fn(Arc<Fixture>) -> F) {
    for mode in [HandleMode::Auto, HandleMode::InTree] {
        block_on(test(Arc::new(fixture(mode))));
    }
}

pub(crate) fn mode(bits: u32) -> SetAttr {
    SetAttr { mode: Some(bits), ..SetAttr::default() }
}

impl Fixture {
    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn root(&self) -> NodeHandle {
        self.store.root()
    }

    pub(crate) async fn create_as(
        &self,
        who: &Caller,
        dir: &NodeHandle,
        name: &str,
        bits: u32,
    ) -> StoreResult<CreatedFile> {
        let attrs = mode(bits);
        self.store.create_file(who, dir, name.as_bytes(), CreateMode::Guarded, &attrs).await
    }

    pub(crate) async fn file(&self, name: &str) -> (Node, OpenFile) {
        let made = self.create_as(&root(), &self.root(), name, 0o644).await.unwrap();
        (made.node, made.open.unwrap())
    }

    pub(crate) async fn mkdir(&self, dir: &NodeHandle, name: &str) -> Node {
        let (node, _) = self
            .store
            .create_node(&root(), dir, name.as_bytes(), &NewNode::Directory, &mode(0o755))
            .await
            .unwrap();
        node
    }

    pub(crate) async fn lookup(&self, dir: &NodeHandle, name: &str) -> StoreResult<Node> {
        self.store.lookup(&root(), dir, name.as_bytes()).await
    }

    pub(crate) async fn read(&self, file: &OpenFile, offset: u64, len: usize) -> (Vec<u8>, bool) {
        let how = ReadHow { span_allowed: false, tells_holes: false };
        let read = self.store.read(file, offset, len, how).await.unwrap();
        let Payload::Bytes(bytes) = read.data else { panic!("no span was allowed") };
        (bytes.to_vec(), read.eof)
    }

    pub(crate) async fn write(&self, file: &OpenFile, offset: u64, data: &[u8]) {
        let data = bytes::Bytes::copy_from_slice(data);
        let len = data.len();
        let (count, _) = self.store.write(file, offset, data, Stability::Unstable).await.unwrap();
        assert_eq!(count, len);
    }
}

pub(crate) fn error_of<T>(result: StoreResult<T>) -> StoreError {
    match result {
        Ok(_) => panic!("it should have failed"),
        Err(error) => error,
    }
}
