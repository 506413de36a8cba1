//! A store with short methods for tests.

use crate::MemoryStore;
use bytes::Bytes;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use zgate_store::file_store::{
    CreateMode, CreatedFile, NewNode, Node, OpenAccess, OpenFile, ReadHow, Stability,
};
use zgate_store::{Caller, FileStore, NodeHandle, Payload, SetAttr, StoreResult};

pub(crate) const READ: OpenAccess =
    OpenAccess { read: true, write: false, stateless: false, read_by_execute: false };
pub(crate) const READ_WRITE: OpenAccess =
    OpenAccess { read: true, write: true, stateless: false, read_by_execute: false };

/// Polls a future once.
pub(crate) fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Runs a future that is ready at once.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    match poll_once(pin!(future)) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a call waits although nothing holds it"),
    }
}

pub(crate) fn root() -> Caller {
    Caller::root()
}

pub(crate) fn user(uid: u32, gid: u32) -> Caller {
    Caller { uid, gid, groups: Arc::from([]) }
}

pub(crate) fn mode(bits: u32) -> SetAttr {
    SetAttr { mode: Some(bits), ..SetAttr::default() }
}

pub(crate) fn size(bytes: u64) -> SetAttr {
    SetAttr { size: Some(bytes), ..SetAttr::default() }
}

/// A store whose root directory is open to all; calls run without waiting.
pub(crate) struct Fixture {
    pub(crate) store: MemoryStore,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self { store: MemoryStore::builder().root_mode(0o777).build() }
    }

    pub(crate) fn root(&self) -> NodeHandle {
        self.store.root()
    }

    pub(crate) fn create_as(
        &self,
        who: &Caller,
        dir: &NodeHandle,
        name: &str,
        bits: u32,
    ) -> StoreResult<CreatedFile> {
        let attrs = mode(bits);
        block_on(self.store.create_file(who, dir, name.as_bytes(), CreateMode::Guarded, &attrs))
    }

    pub(crate) fn file(&self, name: &str) -> (Node, OpenFile) {
        let made = self.create_as(&root(), &self.root(), name, 0o644).unwrap();
        (made.node, made.open.unwrap())
    }

    pub(crate) fn make_as(
        &self,
        who: &Caller,
        dir: &NodeHandle,
        name: &str,
        what: &NewNode,
        bits: u32,
    ) -> StoreResult<Node> {
        let attrs = mode(bits);
        let made = self.store.create_node(who, dir, name.as_bytes(), what, &attrs);
        block_on(made).map(|(node, _)| node)
    }

    pub(crate) fn mkdir(&self, dir: &NodeHandle, name: &str) -> Node {
        self.make_as(&root(), dir, name, &NewNode::Directory, 0o755).unwrap()
    }

    pub(crate) fn lookup(&self, dir: &NodeHandle, name: &str) -> StoreResult<Node> {
        block_on(self.store.lookup(&root(), dir, name.as_bytes()))
    }

    pub(crate) fn rename(
        &self,
        from_dir: &NodeHandle,
        from: &str,
        to_dir: &NodeHandle,
        to: &str,
    ) -> StoreResult<()> {
        let who = root();
        let (from, to) = (from.as_bytes(), to.as_bytes());
        block_on(self.store.rename(&who, from_dir, from, to_dir, to)).map(|_| ())
    }

    pub(crate) fn remove(&self, dir: &NodeHandle, name: &str) -> StoreResult<()> {
        block_on(self.store.remove(&root(), dir, name.as_bytes(), None)).map(|_| ())
    }

    pub(crate) fn write(&self, file: &OpenFile, offset: u64, data: &[u8]) -> StoreResult<usize> {
        self.write_so(file, offset, data, Stability::Unstable)
    }

    pub(crate) fn write_so(
        &self,
        file: &OpenFile,
        offset: u64,
        data: &[u8],
        stability: Stability,
    ) -> StoreResult<usize> {
        let data = Bytes::copy_from_slice(data);
        block_on(self.store.write(file, offset, data, stability)).map(|(count, _)| count)
    }

    pub(crate) fn read(&self, file: &OpenFile, offset: u64, len: usize) -> (Vec<u8>, bool) {
        let how = ReadHow { span_allowed: true, tells_holes: false };
        let read = block_on(self.store.read(file, offset, len, how)).unwrap();
        let Payload::Bytes(bytes) = read.data else { panic!("memory has no spans") };
        (bytes.to_vec(), read.eof)
    }
}

/// Returns the error of a call that must fail.
pub(crate) fn error_of<T>(result: StoreResult<T>) -> zgate_store::StoreError {
    match result {
        Ok(_) => panic!("it succeeded"),
        Err(error) => error,
    }
}
