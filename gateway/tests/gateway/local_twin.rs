//! Random operations through the gateway and, at the same time, on a local
//! directory; after every step both trees must be equal: names, types, modes,
//! link counts, sizes, content, link targets, extended attributes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use zgate_loader::ClientError;
use zgate_loader::compound::Ops;
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::op::{create, open, readdir, rename, setattr};
use zgate_nfs_wire::v4::{Bitmap, ChangeInfo, Fattr, OpNum, Stateid, Status};
use zgate_store::file_store::NewNode;
use zgate_test_harness::{Client, Gateway, Random, mode_attr};
use zgate_xdr::{Decode, Decoder, Opaque};

/// Number of steps in CI; `ZGATE_MODEL_STEPS` sets more.
const STEPS: u64 = 400;
const NAMES: [&str; 5] = ["a", "b", "c", "größe", "x y"];
const DIRS: [&str; 3] = ["", "d", "d/e"];
const MAX_BYTES: u64 = 40_000;
/// Requested attributes: type, change, size, fileid, mode, numlinks.
const ASKED: [u32; 6] = [1, 3, 4, 20, 33, 35];

/// State of one object on either side.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    kind: u32,
    size: u64,
    mode: u32,
    nlink: u32,
    content: Vec<u8>,
}

/// Both sides.
struct Pair {
    gateway: Gateway,
    client: Client,
    mirror: tempfile::TempDir,
    changes: BTreeMap<u64, u64>,
}

type Local<T> = io::Result<T>;

/// Returns the NFS status that corresponds to a local error.
fn status_of(error: &io::Error) -> Status {
    use rustix::io::Errno;
    match Errno::from_io_error(error) {
        Some(Errno::NOENT) => Status::Noent,
        Some(Errno::EXIST) => Status::Exist,
        Some(Errno::NOTDIR) => Status::Notdir,
        Some(Errno::ISDIR) => Status::Isdir,
        Some(Errno::NOTEMPTY) => Status::Notempty,
        Some(Errno::INVAL) => Status::Inval,
        Some(Errno::LOOP) => Status::Symlink,
        Some(Errno::PERM) => Status::Perm,
        other => panic!("no NFS status for {other:?}"),
    }
}

impl Pair {
    fn start() -> Self {
        let gateway = Gateway::start(60);
        let client = Client::ready(&gateway, "model");
        let mirror = tempfile::tempdir().unwrap();
        let mut pair = Self { gateway, client, mirror, changes: BTreeMap::new() };
        for dir in &DIRS[1..] {
            fs::create_dir(pair.mirror.path().join(dir)).unwrap();
            fs::set_permissions(pair.mirror.path().join(dir), fs::Permissions::from_mode(0o755))
                .unwrap();
            let (parent, name) = dir.rsplit_once('/').unwrap_or(("", dir));
            let at = pair.dir(parent).unwrap();
            pair.make(&at, name, NewNode::Directory, 0o755).unwrap();
        }
        pair
    }

    fn dir(&mut self, path: &str) -> Result<Fh, ClientError> {
        let mut fh = self.client.root.clone();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            fh = self.client.lookup(&fh, name)?;
        }
        Ok(fh)
    }

    fn local(&self, dir: &str, name: &str) -> PathBuf {
        self.mirror.path().join(dir).join(name)
    }

    fn make(&mut self, at: &Fh, name: &str, what: NewNode, mode: u32) -> Result<(), ClientError> {
        let args = create::Args {
            kind: create::Kind::Node(what),
            name: Opaque(name.as_bytes().to_vec()),
            attrs: mode_attr(mode),
        };
        let mut results = self.client.call(Ops::new().putfh(at).op(OpNum::Create, &args))?;
        results.skip(OpNum::Putfh)?;
        results.next::<create::Res>(OpNum::Create).map(|_| ())
    }

    /// Performs one random operation on both sides; the results must agree.
    fn step(&mut self, random: &mut Random) {
        let dir = DIRS[random.below(3) as usize];
        let name = NAMES[random.below(5) as usize];
        let other_dir = DIRS[random.below(3) as usize];
        let other = NAMES[random.below(5) as usize];
        let (what, (remote, local)) = match random.below(11) {
            0 | 1 => ("write", self.write(dir, name, random)),
            2 => ("truncate", self.truncate(dir, name, random)),
            3 => ("mkdir", self.mkdir(dir, name)),
            4 => ("symlink", self.symlink(dir, name, other)),
            5 => ("link", self.link(dir, name, other_dir, other)),
            6 | 7 => ("rename", self.rename(dir, name, other_dir, other)),
            8 => ("remove", self.remove(dir, name)),
            9 => ("chmod", self.chmod(dir, name, random)),
            _ => ("guarded create", self.guarded(dir, name)),
        };
        assert_eq!(remote, local, "{what} of {dir}/{name} ({other_dir}/{other})");
    }

    fn write(&mut self, dir: &str, name: &str, random: &mut Random) -> Both {
        let offset = random.below(MAX_BYTES);
        let data = vec![random.u64() as u8; random.below(5000) as usize + 1];
        let local = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o644)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
            .open(self.local(dir, name))
            .and_then(|file| file.write_all_at(&data, offset));
        let remote = self.dir(dir).and_then(|at| {
            let file = self.client.create(&at, name)?;
            let stable = random.below(3) as u32;
            let mut at = 0;
            while at < data.len() {
                let rest = &data[at..];
                at += self.client.write(&file, offset + at as u64, stable, rest)?.count as usize;
            }
            self.client.close(&file)
        });
        both(remote, local)
    }

    fn truncate(&mut self, dir: &str, name: &str, random: &mut Random) -> Both {
        let size = random.below(MAX_BYTES);
        let local = File::options()
            .write(true)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
            .open(self.local(dir, name))
            .and_then(|file| file.set_len(size));
        let attrs = Fattr { mask: Bitmap::of(&[4]), values: Opaque(size.to_be_bytes().to_vec()) };
        let remote = self.set(dir, name, attrs);
        let (remote, local) = both(remote, local);
        // A link has no length to set (RFC 8881 §18.30.3).
        (remote, local.map_err(|s| if s == Status::Symlink { Status::Inval } else { s }))
    }

    fn set(&mut self, dir: &str, name: &str, attrs: Fattr) -> Result<(), ClientError> {
        let at = self.dir(dir)?;
        let fh = self.client.lookup(&at, name)?;
        let args = setattr::Args { stateid: Stateid::ANONYMOUS, attrs };
        let mut results = self.client.call(Ops::new().putfh(&fh).op(OpNum::Setattr, &args))?;
        results.skip(OpNum::Putfh)?;
        results.next::<Bitmap>(OpNum::Setattr).map(|_| ())
    }

    fn mkdir(&mut self, dir: &str, name: &str) -> Both {
        let path = self.local(dir, name);
        let local = fs::create_dir(&path)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o750)));
        let remote = self.dir(dir).and_then(|at| self.make(&at, name, NewNode::Directory, 0o750));
        both(remote, local)
    }

    fn symlink(&mut self, dir: &str, name: &str, target: &str) -> Both {
        let local = std::os::unix::fs::symlink(target, self.local(dir, name));
        let node = NewNode::Symlink(target.as_bytes().to_vec());
        let remote = self.dir(dir).and_then(|at| self.make(&at, name, node, 0o777));
        both(remote, local)
    }

    fn link(&mut self, dir: &str, name: &str, to_dir: &str, to: &str) -> Both {
        let from = self.local(dir, name);
        // A directory cannot be linked: NFS checks that first and returns ISDIR
        // (RFC 8881 §18.9.4), Linux EPERM or EEXIST.
        let local = match fs::symlink_metadata(&from) {
            Ok(meta) if meta.is_dir() => Err(io::Error::from(rustix::io::Errno::ISDIR)),
            _ => fs::hard_link(from, self.local(to_dir, to)),
        };
        let remote = (|| {
            let from = self.dir(dir)?;
            let fh = self.client.lookup(&from, name)?;
            let into = self.dir(to_dir)?;
            let name = Opaque::<1024>(to.as_bytes().to_vec());
            let ops =
                Ops::new().putfh(&fh).op(OpNum::Savefh, &()).putfh(&into).op(OpNum::Link, &name);
            let mut results = self.client.call(ops)?;
            results.skip(OpNum::Putfh)?;
            results.skip(OpNum::Savefh)?;
            results.skip(OpNum::Putfh)?;
            results.next::<ChangeInfo>(OpNum::Link).map(|_| ())
        })();
        both(remote, local)
    }

    fn rename(&mut self, dir: &str, name: &str, to_dir: &str, to: &str) -> Both {
        let local = fs::rename(self.local(dir, name), self.local(to_dir, to));
        let remote = (|| {
            let (from, into) = (self.dir(dir)?, self.dir(to_dir)?);
            let args = rename::Args {
                old: Opaque(name.as_bytes().to_vec()),
                new: Opaque(to.as_bytes().to_vec()),
            };
            let ops = Ops::new()
                .putfh(&from)
                .op(OpNum::Savefh, &())
                .putfh(&into)
                .op(OpNum::Rename, &args);
            let mut results = self.client.call(ops)?;
            results.skip(OpNum::Putfh)?;
            results.skip(OpNum::Savefh)?;
            results.skip(OpNum::Putfh)?;
            results.next::<rename::Res>(OpNum::Rename).map(|_| ())
        })();
        let (remote, local) = both(remote, local);
        // For NFS, an object that cannot replace the other is EXIST, whatever
        // Linux returns (RFC 8881 §18.26.3).
        let exist = |status| match status {
            Status::Notempty | Status::Isdir | Status::Notdir | Status::Exist => Status::Exist,
            other => other,
        };
        (remote.map_err(exist), local.map_err(exist))
    }

    fn remove(&mut self, dir: &str, name: &str) -> Both {
        let path = self.local(dir, name);
        let local = match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_dir() => fs::remove_dir(&path),
            _ => fs::remove_file(&path),
        };
        let remote = self.dir(dir).and_then(|at| {
            let ops = Ops::new().putfh(&at).remove(name.as_bytes());
            let mut results = self.client.call(ops)?;
            results.skip(OpNum::Putfh)?;
            results.next::<ChangeInfo>(OpNum::Remove).map(|_| ())
        });
        both(remote, local)
    }

    fn chmod(&mut self, dir: &str, name: &str, random: &mut Random) -> Both {
        // Always readable and writable by its owner: an ordinary user runs this
        // test, too.
        let mode = 0o700 | (random.below(0o100) as u32);
        let path = self.local(dir, name);
        let local = match fs::symlink_metadata(&path) {
            Err(error) => Err(error),
            // The mode of a link cannot be set, and NFS ignores the attempt.
            Ok(meta) if meta.is_symlink() => Ok(()),
            Ok(_) => fs::set_permissions(&path, fs::Permissions::from_mode(mode)),
        };
        let remote = self.set(dir, name, mode_attr(mode));
        both(remote, local)
    }

    fn guarded(&mut self, dir: &str, name: &str) -> Both {
        let local = File::options()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(self.local(dir, name))
            .map(|_| ());
        let remote = self.dir(dir).and_then(|at| {
            let claim = open::Claim::Null(Opaque(name.as_bytes().to_vec()));
            let file = self.client.open(&at, 3, open::How::Guarded(mode_attr(0o644)), claim)?;
            self.client.close(&file)
        });
        both(remote, local)
    }

    /// Reads the whole tree through the gateway.
    fn remote_tree(&mut self) -> BTreeMap<PathBuf, Seen> {
        let mut tree = BTreeMap::new();
        let root = self.client.root.clone();
        self.walk(&root, Path::new(""), &mut tree);
        tree
    }

    fn walk(&mut self, dir: &Fh, path: &Path, into: &mut BTreeMap<PathBuf, Seen>) {
        let args = readdir::Args {
            cookie: 0,
            verifier: [0; 8],
            dircount: 4096,
            maxcount: 32 << 10,
            want: Bitmap::of(&[1]),
        };
        let ops = Ops::new().putfh(dir).op(OpNum::Readdir, &args);
        let mut results =
            self.client.session.call_uncached(&mut self.client.connection, ops).unwrap();
        results.skip(OpNum::Putfh).unwrap();
        let page: readdir::Res = results.next(OpNum::Readdir).unwrap();
        assert!(page.eof, "a small directory fits into one page");
        for entry in page.entries {
            let name = String::from_utf8(entry.name.0).unwrap();
            let fh = self.client.lookup(dir, &name).unwrap();
            let path = path.join(&name);
            let seen = self.look(&fh);
            if seen.kind == 2 {
                self.walk(&fh, &path, into);
            }
            assert!(into.insert(path, seen).is_none(), "{name} is listed twice");
        }
    }

    fn look(&mut self, fh: &Fh) -> Seen {
        let attrs = self.client.getattr(fh, &ASKED).unwrap();
        let mut d = Decoder::new(&attrs.values.0);
        let kind = d.u32().unwrap();
        let (change, size, fileid) = (d.u64().unwrap(), d.u64().unwrap(), d.u64().unwrap());
        let (mode, nlink) = (d.u32().unwrap(), d.u32().unwrap());
        let before = self.changes.insert(fileid, change);
        // Inode numbers of removed files are reused; the clock has advanced by
        // then.
        assert!(before.is_none_or(|before| before <= change), "change went backwards");
        let content = match kind {
            1 => self.content(fh, size),
            5 => self.target(fh),
            _ => Vec::new(),
        };
        let size = if kind == 2 { 0 } else { size };
        Seen { kind, size, mode, nlink, content }
    }

    fn content(&mut self, fh: &Fh, size: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        loop {
            let at = bytes.len() as u64;
            let (eof, data) = self.client.read(fh, Stateid::ANONYMOUS, at, 16 << 10).unwrap();
            bytes.extend(data);
            if eof {
                assert_eq!(bytes.len() as u64, size);
                return bytes;
            }
        }
    }

    fn target(&mut self, fh: &Fh) -> Vec<u8> {
        let mut results = self.client.call(Ops::new().putfh(fh).op(OpNum::Readlink, &())).unwrap();
        results.skip(OpNum::Putfh).unwrap();
        results.next::<Target>(OpNum::Readlink).unwrap().0
    }
}

struct Target(Vec<u8>);

impl Decode for Target {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, zgate_xdr::XdrError> {
        d.opaque(4096).map(|bytes| Self(bytes.to_vec()))
    }
}

type Both = (Result<(), Status>, Result<(), Status>);

fn both(remote: Result<(), ClientError>, local: Local<()>) -> Both {
    let remote = remote.map_err(|error| error.status().unwrap_or_else(|| panic!("{error}")));
    (remote, local.map_err(|error| status_of(&error)))
}

/// Reads the whole local tree.
fn local_tree(dir: &Path, path: &Path, into: &mut BTreeMap<PathBuf, Seen>) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let meta = entry.metadata().unwrap();
        let path = path.join(entry.file_name());
        let (kind, content) = if meta.is_dir() {
            local_tree(&entry.path(), &path, into);
            (2, Vec::new())
        } else if meta.is_symlink() {
            (5, fs::read_link(entry.path()).unwrap().into_os_string().into_encoded_bytes())
        } else {
            (1, fs::read(entry.path()).unwrap())
        };
        let size = if meta.is_dir() { 0 } else { meta.len() };
        let seen =
            Seen { kind, size, mode: meta.mode() & 0o7777, nlink: meta.nlink() as u32, content };
        into.insert(path, seen);
    }
}

#[test]
fn the_gateway_and_a_local_directory_never_differ() {
    let mut random = Random::from_environment();
    let mut pair = Pair::start();
    let steps = std::env::var("ZGATE_MODEL_STEPS").ok().and_then(|text| text.parse().ok());
    for step in 0..steps.unwrap_or(STEPS) {
        pair.step(&mut random);
        let mut local = BTreeMap::new();
        local_tree(pair.mirror.path(), Path::new(""), &mut local);
        let remote = pair.remote_tree();
        assert_eq!(remote, local, "after step {step}");
        // The directory on the server's disk is also equal.
        let mut exported = BTreeMap::new();
        local_tree(&pair.gateway.export(), Path::new(""), &mut exported);
        assert_eq!(exported, local, "on disk after step {step}");
    }
}
