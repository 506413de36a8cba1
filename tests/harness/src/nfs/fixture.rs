//! A tree with one object of each type, and a client of each minor version.

use super::{Client, Harness, OpenRequest, Opened, Ops};
use std::rc::Rc;
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::Status;
use zgate_store::file_store::NewNode;

/// The tree: `/export` with `file` ("content"), `dir` with `inner`, `link`
/// and `fifo`.
pub struct Fixture {
    pub harness: Rc<Harness>,
    pub c: Client,
    pub root: Fh,
    pub file: Fh,
    pub dir: Fh,
    pub inner: Fh,
    pub link: Fh,
    pub fifo: Fh,
    /// The handle of a removed file.
    pub stale: Fh,
}

impl Fixture {
    pub fn new(minor: u8) -> Self {
        Self::in_harness(Harness::new(), minor)
    }

    pub fn in_harness(harness: Rc<Harness>, minor: u8) -> Self {
        let c = harness.client("fixture", minor);
        let root = c.export();
        let file = c.file(&root, "file", b"content");
        let dir = c.mkdir(&root, "dir");
        let inner = c.file(&dir, "inner", b"inner");
        let link = c.make(&root, "link", NewNode::Symlink(b"file".to_vec())).unwrap();
        let fifo = c.make(&root, "fifo", NewNode::Fifo).unwrap();
        let stale = c.file(&root, "gone", b"");
        c.remove(&root, "gone").unwrap();
        Self { harness, c, root, file, dir, inner, link, fifo, stale }
    }

    /// `file`, open for reading and writing.
    pub fn open(&self) -> Opened {
        self.c.open(&OpenRequest::name(&self.root, "file")).unwrap()
    }

    /// The types of objects other than regular files, each with the status of
    /// an operation for regular files: (minor 0, later).
    pub fn no_files(&self) -> [(&Fh, [Status; 2]); 3] {
        [
            (&self.dir, [Status::Isdir, Status::Isdir]),
            (&self.link, [Status::Inval, Status::Symlink]),
            (&self.fifo, [Status::Inval, Status::WrongType]),
        ]
    }

    /// Checks an operation for regular files with all other types, a stale
    /// handle, and no handle.
    pub fn check_regular_only(&self, what: &str, op: impl Fn(Ops) -> Ops) {
        self.c.check(what, op(Ops::new()), Status::Nofilehandle);
        self.c.check(what, op(Ops::new().at(&self.stale)), Status::Stale);
        for (fh, expected) in self.no_files() {
            let expected = expected[usize::from(self.c.minor > 0)];
            self.c.check_last(what, op(Ops::new().at(fh)), expected);
        }
    }
}

/// Runs a test in each of these minor versions.
pub fn each(minors: impl IntoIterator<Item = u8>, test: impl Fn(&Fixture)) {
    for minor in minors {
        test(&Fixture::new(minor));
    }
}

/// Runs a test in every minor version.
pub fn every_minor(test: impl Fn(&Fixture)) {
    each(0..=2, test);
}

/// Runs a test in the minor versions with sessions.
pub fn sessions(test: impl Fn(&Fixture)) {
    each(1..=2, test);
}
