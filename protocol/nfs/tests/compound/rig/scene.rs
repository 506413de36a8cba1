//! A tree with one object of each kind, and a client of each minor version.

use super::{Client, Opened, Ops, Rig, Wish};
use std::rc::Rc;
use zgate_nfs::namespace::Fh;
use zgate_nfs::v4::wire::Status;
use zgate_store::file_store::NewNode;

/// The tree: `/export` with `file` ("content"), `dir` with `inner`, `link`
/// and `fifo`.
pub(crate) struct Scene {
    pub(crate) rig: Rc<Rig>,
    pub(crate) c: Client,
    pub(crate) root: Fh,
    pub(crate) file: Fh,
    pub(crate) dir: Fh,
    pub(crate) inner: Fh,
    pub(crate) link: Fh,
    pub(crate) fifo: Fh,
    /// The handle of a file that is gone.
    pub(crate) stale: Fh,
}

impl Scene {
    pub(crate) fn new(minor: u8) -> Self {
        Self::in_rig(Rig::new(), minor)
    }

    pub(crate) fn in_rig(rig: Rc<Rig>, minor: u8) -> Self {
        let c = rig.client("scene", minor);
        let root = c.export();
        let file = c.file(&root, "file", b"content");
        let dir = c.mkdir(&root, "dir");
        let inner = c.file(&dir, "inner", b"inner");
        let link = c.make(&root, "link", NewNode::Symlink(b"file".to_vec())).unwrap();
        let fifo = c.make(&root, "fifo", NewNode::Fifo).unwrap();
        let stale = c.file(&root, "gone", b"");
        c.remove(&root, "gone").unwrap();
        Self { rig, c, root, file, dir, inner, link, fifo, stale }
    }

    /// `file`, open for reading and writing.
    pub(crate) fn open(&self) -> Opened {
        self.c.open(&Wish::name(&self.root, "file")).unwrap()
    }

    /// The kinds of objects that are no regular file, and what an operation
    /// for regular files answers to each: (minor 0, later).
    pub(crate) fn no_files(&self) -> [(&Fh, [Status; 2]); 3] {
        [
            (&self.dir, [Status::Isdir, Status::Isdir]),
            (&self.link, [Status::Inval, Status::Symlink]),
            (&self.fifo, [Status::Inval, Status::WrongType]),
        ]
    }

    /// Checks an operation for regular files against everything else, a stale
    /// handle, and no handle.
    pub(crate) fn check_regular_only(&self, what: &str, op: impl Fn(Ops) -> Ops) {
        self.c.check(what, op(Ops::new()), Status::Nofilehandle);
        self.c.check(what, op(Ops::new().at(&self.stale)), Status::Stale);
        for (fh, expected) in self.no_files() {
            let expected = expected[usize::from(self.c.minor > 0)];
            self.c.check_last(what, op(Ops::new().at(fh)), expected);
        }
    }
}

/// Runs a test in each of these minor versions.
pub(crate) fn each(minors: impl IntoIterator<Item = u8>, test: impl Fn(&Scene)) {
    for minor in minors {
        test(&Scene::new(minor));
    }
}

/// Runs a test in every minor version.
pub(crate) fn every_minor(test: impl Fn(&Scene)) {
    each(0..=2, test);
}

/// Runs a test in the minor versions with sessions.
pub(crate) fn sessions(test: impl Fn(&Scene)) {
    each(1..=2, test);
}
