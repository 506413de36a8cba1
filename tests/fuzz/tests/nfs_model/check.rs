//! All there is, as a client that holds nothing sees it, compared with the model.

use super::model::{File, Kind};
use super::walk::{Recalled, Walk, expect};
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::op::{
    Getxattr, Listxattrs, ReadPlus, Readdir, listxattrs, read_plus, readdir,
};
use zgate_nfs_wire::v4::{Bitmap, Stateid, Status};
use zgate_store::Payload;
use zgate_test_harness::nfs::{Client, Ops, name};

const CHANGE: u32 = 3;
const SIZE: u32 = 4;
const LINKS: u32 = 35;
const ANY: Stateid = Stateid::ANONYMOUS;

impl Walk {
    /// Compares the whole tree with the model; `changed` must show it.
    pub(super) fn check(&mut self, changed: &[usize]) {
        for node in 0..self.model.nodes.len() {
            let fh = self.fhs[node].clone();
            let of = &self.model.nodes[node];
            assert!(of.is_sound(), "conflicting locks or opens coexist");
            let is_delegated = self.delegated.keys().any(|(_, file)| *file == node);
            if !of.exists() && is_delegated {
                continue;
            }
            if !of.exists() {
                let gone = self.checker.run(Ops::new().at(&fh).getattr(&[CHANGE])).status;
                assert_eq!(gone, Status::Stale);
                continue;
            }
            let change = self.checker.number(&fh, CHANGE);
            if let Some(before) = self.changes.insert(node, change) {
                assert!(change >= before, "the change attribute goes backwards");
                assert!(change > before || !changed.contains(&node), "a change unseen");
            }
            assert_eq!(self.checker.number(&fh, LINKS), of.nlink, "links of {node}");
            match &of.kind {
                Kind::Dir(entries) => {
                    assert!(list(&self.checker, &fh).iter().eq(entries.keys()));
                    for (name, node) in entries {
                        assert_eq!(self.checker.lookup(&fh, name).as_ref(), Ok(&self.fhs[*node]));
                    }
                }
                Kind::File(file) => {
                    assert_eq!(self.checker.number(&fh, SIZE), file.bytes.len() as u64);
                    check_xattrs(&self.checker, &fh, file);
                    // Reading would cause a recall.
                    if !is_delegated {
                        let holes = changed.contains(&node);
                        check_content(&self.checker, &fh, file, of.denies(1), holes);
                    }
                }
                Kind::Link => {}
            }
        }
    }

    /// Checks that no client uses a file in a way that a delegation of another
    /// forbids (RFC 8881 §10.4).
    pub(super) fn check_delegations(&self) {
        for ((c, file), (_, write)) in &self.delegated {
            let opens = self.model.nodes[*file].opens.iter().enumerate();
            for (other, open) in opens.filter(|(other, _)| other != c) {
                let access = open.map_or(0, |open| open.access);
                let collides = if *write { access != 0 } else { access & 2 != 0 };
                assert!(!collides, "client {other} opened what {c} was delegated");
            }
            for ((other, also), (_, writes)) in &self.delegated {
                let collides = also == file && other != c && (*write || *writes);
                assert!(!collides, "two delegations of one file, one for writing");
            }
        }
    }
}

/// The content by READ, and by READ_PLUS where holes may have come, unless an open
/// denies reading.
fn check_content(checker: &Client, fh: &Fh, file: &File, denied: bool, holes: bool) {
    match checker.read(fh, ANY, 0, 1) {
        Ok(_) => {
            assert!(!denied, "an open denies reading");
            assert!(checker.content(fh) == file.bytes, "the content differs");
            assert!(!holes || read_plus(checker, fh) == file.bytes, "READ_PLUS differs");
        }
        Err(status) => {
            let Ok(()) = expect("READ", status, &[Status::Locked]) else {
                panic!("nothing is delegated: {Recalled:?}")
            };
            assert!(denied, "nobody denies reading");
        }
    }
}

fn check_xattrs(checker: &Client, fh: &Fh, file: &File) {
    let args = listxattrs::Args { cookie: 0, maxcount: 4096 };
    let ops = Ops::new().at(fh).op::<Listxattrs>(&args);
    let listed = checker.run(ops).ok().get::<Listxattrs>();
    assert!(listed.names.iter().map(|n| &n.0[..]).eq(file.xattrs.keys().map(|k| k.as_bytes())));
    for (key, value) in &file.xattrs {
        let ops = Ops::new().at(fh).op::<Getxattr>(&name(key));
        assert_eq!(&checker.run(ops).ok().get::<Getxattr>().0, value);
    }
}

/// Reads the whole file by READ_PLUS, with holes as zeros (RFC 7862 §15.10).
fn read_plus(client: &Client, fh: &Fh) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::new();
    loop {
        let args = read_plus::Args { stateid: ANY, offset: bytes.len() as u64, count: 1 << 16 };
        let ops = Ops::new().at(fh).op::<ReadPlus>(&args);
        let res = client.run(ops).ok().get::<ReadPlus>();
        let before = bytes.len();
        for content in res.contents {
            match content {
                read_plus::Content::Data(at, Payload::Bytes(data)) => {
                    assert_eq!(at, bytes.len() as u64, "pieces are in order");
                    bytes.extend_from_slice(&data);
                }
                read_plus::Content::Data(_, Payload::Span(_)) => unreachable!("memory"),
                read_plus::Content::Hole(at, len) => {
                    assert_eq!(at, bytes.len() as u64, "pieces are in order");
                    bytes.resize(bytes.len() + len as usize, 0);
                }
            }
        }
        if res.eof {
            return bytes;
        }
        assert!(bytes.len() > before, "no progress");
    }
}

/// All names of a directory, in pages of a few entries.
fn list(client: &Client, dir: &Fh) -> Vec<String> {
    let mut names = Vec::new();
    let mut args = readdir::Args {
        cookie: 0,
        verifier: [0; 8],
        dircount: 0,
        maxcount: 200,
        want: Bitmap::default(),
    };
    loop {
        let res = client.run(Ops::new().at(dir).op::<Readdir>(&args)).ok().get::<Readdir>();
        names.extend(
            res.entries.iter().map(|entry| String::from_utf8(entry.name.0.to_vec()).unwrap()),
        );
        if res.eof {
            break;
        }
        args.cookie = res.entries.last().expect("an entry before the end").cookie;
        args.verifier = res.verifier;
    }
    names.sort();
    names
}
