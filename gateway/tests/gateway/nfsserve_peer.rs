//! Compares NFSv3 answers with those of `nfsserve`, an independent server: both
//! serve one directory, and one client calls both.

use async_trait::async_trait;
use nfsserve::fs_util::metadata_to_fattr3;
use nfsserve::nfs::{fattr3, fileid3, filename3, nfspath3, nfsstat3, sattr3};
use nfsserve::tcp::{NFSTcp, NFSTcpListener};
use nfsserve::vfs::{DirEntry, NFSFileSystem, ReadDirResult, VFSCapabilities};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use zgate_nfs_wire::mount::MountResult;
use zgate_nfs_wire::v3::proc::{self, Procedure, read, readdir, readdirplus};
use zgate_nfs_wire::v3::{Attributes, DirOpArgs, Fh3, FileType, Name3, Status};
use zgate_rpc::message::{CallHeader, decode_reply};
use zgate_rpc::record::Marker;
use zgate_rpc::{AuthSys, Credential};
use zgate_store::Payload;
use zgate_test_harness::{Gateway, noise};
use zgate_xdr::{Decode, Decoder, Encode, Encoder};

/// The directory for the other server: an object is known by its inode number
/// after its first look-up.
struct Mirror {
    root: fileid3,
    paths: Mutex<HashMap<fileid3, PathBuf>>,
}

impl Mirror {
    fn of(root: &Path) -> Self {
        let number = fs::metadata(root).unwrap().ino();
        Self { root: number, paths: Mutex::new(HashMap::from([(number, root.to_owned())])) }
    }

    fn path(&self, id: fileid3) -> Result<PathBuf, nfsstat3> {
        self.paths.lock().unwrap().get(&id).cloned().ok_or(nfsstat3::NFS3ERR_STALE)
    }

    fn meet(&self, path: PathBuf) -> io::Result<(fileid3, fs::Metadata)> {
        let found = fs::symlink_metadata(&path)?;
        self.paths.lock().unwrap().insert(found.ino(), path);
        Ok((found.ino(), found))
    }
}

fn status(error: io::Error) -> nfsstat3 {
    use rustix::io::Errno;
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => nfsstat3::NFS3ERR_NOENT,
        Some(Errno::NOTDIR) => nfsstat3::NFS3ERR_NOTDIR,
        // READ has no NFS3ERR_ISDIR (RFC 1813 §3.3.6).
        Some(Errno::ISDIR | Errno::INVAL) => nfsstat3::NFS3ERR_INVAL,
        Some(Errno::NAMETOOLONG) => nfsstat3::NFS3ERR_NAMETOOLONG,
        _ => nfsstat3::NFS3ERR_IO,
    }
}

type Answer<T> = Result<T, nfsstat3>;

#[async_trait]
impl NFSFileSystem for Mirror {
    fn capabilities(&self) -> VFSCapabilities {
        VFSCapabilities::ReadOnly
    }

    fn root_dir(&self) -> fileid3 {
        self.root
    }

    async fn lookup(&self, dir: fileid3, name: &filename3) -> Answer<fileid3> {
        let name = std::str::from_utf8(name).unwrap();
        Ok(self.meet(self.path(dir)?.join(name)).map_err(status)?.0)
    }

    async fn getattr(&self, id: fileid3) -> Answer<fattr3> {
        let found = fs::symlink_metadata(self.path(id)?).map_err(status)?;
        Ok(metadata_to_fattr3(id, &found))
    }

    async fn read(&self, id: fileid3, offset: u64, count: u32) -> Answer<(Vec<u8>, bool)> {
        let file = fs::File::open(self.path(id)?).map_err(status)?;
        let mut data = vec![0; count as usize];
        let len = file.read_at(&mut data, offset).map_err(status)?;
        data.truncate(len);
        Ok((data, offset + len as u64 >= file.metadata().map_err(status)?.len()))
    }

    async fn readdir(&self, dir: fileid3, after: fileid3, most: usize) -> Answer<ReadDirResult> {
        let mut all = BTreeMap::new();
        for entry in fs::read_dir(self.path(dir)?).map_err(status)? {
            let entry = entry.map_err(status)?;
            let (fileid, found) = self.meet(entry.path()).map_err(status)?;
            let name = entry.file_name().into_encoded_bytes().as_slice().into();
            all.insert(fileid, DirEntry { fileid, name, attr: metadata_to_fattr3(fileid, &found) });
        }
        let mut rest: Vec<_> = all.into_values().filter(|entry| entry.fileid > after).collect();
        let end = rest.len() <= most;
        rest.truncate(most);
        Ok(ReadDirResult { entries: rest, end })
    }

    async fn readlink(&self, id: fileid3) -> Answer<nfspath3> {
        let target = fs::read_link(self.path(id)?).map_err(status)?;
        Ok(target.into_os_string().into_encoded_bytes().as_slice().into())
    }

    async fn setattr(&self, _: fileid3, _: sattr3) -> Answer<fattr3> {
        Err(nfsstat3::NFS3ERR_ROFS)
    }

    async fn write(&self, _: fileid3, _: u64, _: &[u8]) -> Answer<fattr3> {
        Err(nfsstat3::NFS3ERR_ROFS)
    }

    async fn create(&self, _: fileid3, _: &filename3, _: sattr3) -> Answer<(fileid3, fattr3)> {
        Err(nfsstat3::NFS3ERR_ROFS)
    }

    async fn create_exclusive(&self, _: fileid3, _: &filename3) -> Answer<fileid3> {
        Err(nfsstat3::NFS3ERR_ROFS)
    }

    async fn mkdir(&self, _: fileid3, _: &filename3) -> Answer<(fileid3, fattr3)> {
        Err(nfsstat3::NFS3ERR_ROFS)
    }

    async fn remove(&self, _: fileid3, _: &filename3) -> Answer<()> {
        Err(nfsstat3::NFS3ERR_ROFS)
    }

    async fn rename(&self, _: fileid3, _: &filename3, _: fileid3, _: &filename3) -> Answer<()> {
        Err(nfsstat3::NFS3ERR_ROFS)
    }

    async fn symlink(
        &self,
        _: fileid3,
        _: &filename3,
        _: &nfspath3,
        _: &sattr3,
    ) -> Answer<(fileid3, fattr3)> {
        Err(nfsstat3::NFS3ERR_ROFS)
    }
}

/// Serves the directory until the test program ends.
fn serve(root: &Path) -> SocketAddr {
    let (mirror, (say, said)) = (Mirror::of(root), std::sync::mpsc::channel());
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = NFSTcpListener::bind("127.0.0.1:0", mirror).await.unwrap();
            say.send(listener.get_listen_port()).unwrap();
            listener.handle_forever().await
        })
    });
    (Ipv4Addr::LOCALHOST, said.recv().unwrap()).into()
}

/// A client of NFSv3 and of the MOUNT protocol, over one connection.
struct Client {
    stream: TcpStream,
    xid: u32,
    root: Fh3,
}

impl Client {
    fn mount(address: SocketAddr, path: &[u8]) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        let mut client = Self { stream, xid: 0, root: Fh3::default() };
        let reply = client.exchange(zgate_nfs_wire::mount::PROGRAM, 1, &Name3(path.to_vec()));
        let MountResult(mounted) = MountResult::decode(&mut Decoder::new(&reply)).unwrap();
        client.root = Fh3(mounted.unwrap().fh.0);
        client
    }

    /// The result of a call of version 3 of a program.
    fn exchange(&mut self, program: u32, procedure: u32, args: &impl Encode) -> Vec<u8> {
        self.xid += 1;
        let mut e = Encoder::new();
        let credential = Credential::Sys(AuthSys::default()).to_opaque();
        let verifier = Credential::None.to_opaque();
        CallHeader { xid: self.xid, program, version: 3, procedure, credential, verifier }
            .encode(&mut e);
        args.encode(&mut e);
        let call = e.finish().flatten().unwrap();
        self.stream.write_all(&Marker::whole(call.len()).unwrap()).unwrap();
        self.stream.write_all(&call).unwrap();
        let mut reply = Vec::new();
        loop {
            let mut marker = [0; 4];
            self.stream.read_exact(&mut marker).unwrap();
            let marker = u32::from_be_bytes(marker);
            let begin = reply.len();
            reply.resize(begin + (marker & 0x7fff_ffff) as usize, 0);
            self.stream.read_exact(&mut reply[begin..]).unwrap();
            if marker >> 31 == 1 {
                break;
            }
        }
        let mut d = Decoder::new(&reply);
        assert_eq!(decode_reply(&mut d).unwrap(), self.xid);
        let result = reply.len() - d.remaining();
        reply.split_off(result)
    }

    fn call<P: Procedure>(&mut self, args: &P::Args) -> Result<P::Ok, Status> {
        let reply = self.exchange(zgate_nfs_wire::PROGRAM, P::NUMBER, args);
        let mut d = Decoder::new(&reply);
        match Status::decode(&mut d).unwrap() {
            Status::Ok => {
                let ok = P::Ok::decode(&mut d).unwrap();
                d.finish().unwrap();
                Ok(ok)
            }
            status => Err(status),
        }
    }

    fn lookup(&mut self, dir: &Fh3, name: &str) -> Result<Fh3, Status> {
        let args = DirOpArgs { dir: dir.clone(), name: name.as_bytes().into() };
        self.call::<proc::Lookup>(&args).map(|found| found.fh)
    }

    /// An object by its path from the root.
    fn walk(&mut self, path: &str) -> Fh3 {
        let root = self.root.clone();
        let parts = path.split('/').filter(|part| !part.is_empty());
        parts.fold(root, |dir, name| self.lookup(&dir, name).unwrap())
    }

    fn read(&mut self, file: &Fh3, offset: u64, count: u32) -> Result<(Vec<u8>, bool), Status> {
        let args = read::Args { file: file.clone(), offset, count };
        self.call::<proc::Read>(&args).map(|read| {
            let Payload::Bytes(data) = read.data else { panic!("a client has bytes") };
            (data.to_vec(), read.eof)
        })
    }

    /// Names and numbers, without the directory and its parent.
    fn names(&mut self, dir: &Fh3) -> Result<BTreeMap<Vec<u8>, u64>, Status> {
        let (dir, verifier) = (dir.clone(), [0; 8]);
        let args = readdir::Args { dir, cookie: 0, verifier, count: 64 << 10 };
        let page = self.call::<proc::ReadDir>(&args)?;
        assert!(page.list.eof, "one page is enough");
        let entries = page.list.entries.into_iter();
        Ok(entries.map(|entry| (entry.name.0, entry.fileid)).filter(not_dots).collect())
    }

    /// Names and attributes, page by page.
    fn listing(&mut self, dir: &Fh3) -> BTreeMap<Vec<u8>, Seen> {
        let (mut all, mut cookie, mut verifier, mut pages) = (BTreeMap::new(), 0, [0; 8], 0);
        loop {
            let (dir, dir_count, max_count) = (dir.clone(), 4096, 8192);
            let args = readdirplus::Args { dir, cookie, verifier, dir_count, max_count };
            let page = self.call::<proc::ReadDirPlus>(&args).unwrap();
            pages += 1;
            cookie = page.list.entries.last().map_or(cookie, |entry| entry.cookie);
            verifier = page.verifier;
            let entries = page.list.entries.into_iter();
            let named = entries.map(|entry| (entry.name.0, entry.attributes)).filter(not_dots);
            all.extend(named.map(|(name, attributes)| (name, seen(&attributes.unwrap()))));
            if page.list.eof {
                assert!(pages > 1, "a directory for several pages");
                return all;
            }
        }
    }
}

fn not_dots<T>((name, _): &(Vec<u8>, T)) -> bool {
    !matches!(&name[..], b"." | b"..")
}

/// Attributes that both servers take from the directory. The other server has
/// different numbers for the file system and the space used, counts no links,
/// and shows every file as writable by its owner.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    kind: FileType,
    mode: u32,
    owner: (u32, u32),
    size: u64,
    fileid: u64,
    mtime: (u32, u32),
    ctime: (u32, u32),
}

fn seen(attributes: &Attributes) -> Seen {
    let Attributes { kind, mode, uid, gid, size, fileid, mtime, ctime, .. } = attributes;
    Seen {
        kind: *kind,
        mode: *mode,
        owner: (*uid, *gid),
        size: *size,
        fileid: *fileid,
        mtime: (mtime.seconds, mtime.nanoseconds),
        ctime: (ctime.seconds, ctime.nanoseconds),
    }
}

const PLAIN_BYTES: usize = 200_001;

fn make_tree(root: &Path) {
    fs::write(root.join("plain"), noise(7, PLAIN_BYTES)).unwrap();
    fs::write(root.join("empty"), b"").unwrap();
    fs::write(root.join("private"), b"mine").unwrap();
    fs::set_permissions(root.join("private"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("over/there", root.join("link")).unwrap();
    fs::create_dir_all(root.join("deep/er")).unwrap();
    for number in 0..200 {
        fs::write(root.join(format!("deep/file-{number}")), vec![1; number]).unwrap();
    }
}

#[test]
fn both_servers_say_the_same_of_one_tree() {
    let gateway = Gateway::start(90);
    make_tree(&gateway.export());
    let mut ours = Client::mount(gateway.address, b"/export");
    let mut theirs = Client::mount(serve(&gateway.export()), b"/");

    for path in ["", "plain", "empty", "private", "link", "deep", "deep/er", "deep/file-199"] {
        let [one, other] = [&mut ours, &mut theirs].map(|client| {
            let fh = client.walk(path);
            seen(&client.call::<proc::GetAttr>(&fh).unwrap())
        });
        assert_eq!(one, other, "GETATTR of /{path}");
    }

    let size = PLAIN_BYTES as u64;
    for (path, offset, count) in [
        ("plain", 0, 4096),
        ("plain", 0, 65_536),
        ("plain", 4095, 2),
        ("plain", 131_072, 65_536),
        ("plain", size - 1, 1),
        ("plain", size - 1, 4096),
        ("plain", size, 4096),
        ("plain", size + 1000, 4096),
        ("empty", 0, 4096),
        ("private", 1, 2),
    ] {
        let [one, other] = [&mut ours, &mut theirs].map(|client| {
            let fh = client.walk(path);
            client.read(&fh, offset, count).unwrap()
        });
        assert!(one == other, "READ of {count} bytes of {path} at {offset}");
    }

    let [one, other] = [&mut ours, &mut theirs].map(|client| {
        let link = client.walk("link");
        client.call::<proc::ReadLink>(&link).unwrap().path.0
    });
    assert_eq!((&one[..], &other[..]), (&b"over/there"[..], &b"over/there"[..]));

    for path in ["", "deep", "deep/er"] {
        let [one, other] = [&mut ours, &mut theirs].map(|client| {
            let dir = client.walk(path);
            client.names(&dir).unwrap()
        });
        assert_eq!(one, other, "READDIR of /{path}");
    }
    let [one, other] = [&mut ours, &mut theirs].map(|client| {
        let dir = client.walk("deep");
        client.listing(&dir)
    });
    assert_eq!(one.len(), 201);
    assert_eq!(one, other, "READDIRPLUS of /deep");
}

#[test]
fn both_servers_refuse_alike() {
    let gateway = Gateway::start(90);
    make_tree(&gateway.export());
    let mut ours = Client::mount(gateway.address, b"/export");
    let mut theirs = Client::mount(serve(&gateway.export()), b"/");
    type Ask = fn(&mut Client) -> Option<Status>;
    let asks: [(&str, Ask, Status); 8] = [
        (
            "LOOKUP of what is not there",
            |client| {
                let root = client.root.clone();
                client.lookup(&root, "nothing").err()
            },
            Status::NoEnt,
        ),
        (
            "LOOKUP in a file",
            |client| {
                let file = client.walk("plain");
                client.lookup(&file, "x").err()
            },
            Status::NotDir,
        ),
        (
            "LOOKUP of a name that is too long",
            |client| {
                let root = client.root.clone();
                client.lookup(&root, &"n".repeat(256)).err()
            },
            Status::NameTooLong,
        ),
        (
            "READDIR of a file",
            |client| {
                let file = client.walk("plain");
                client.names(&file).err()
            },
            Status::NotDir,
        ),
        (
            "READLINK of a file",
            |client| {
                let file = client.walk("plain");
                client.call::<proc::ReadLink>(&file).err()
            },
            Status::Inval,
        ),
        (
            "READ of a directory",
            |client| {
                let dir = client.walk("deep");
                client.read(&dir, 0, 4096).err()
            },
            Status::Inval,
        ),
        (
            "GETATTR with a handle that is none",
            |client| client.call::<proc::GetAttr>(&Fh3(vec![1, 2, 3])).err(),
            Status::BadHandle,
        ),
        (
            "READ with a handle that is none",
            |client| client.read(&Fh3(vec![1, 2, 3]), 0, 1).err(),
            Status::BadHandle,
        ),
    ];
    for (what, ask, expected) in asks {
        assert_eq!((ask(&mut ours), ask(&mut theirs)), (Some(expected), Some(expected)), "{what}");
    }
}
