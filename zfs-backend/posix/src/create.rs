//! Creating files and other objects.

use crate::entry::{Entry, Writer};
use crate::errno::OrStoreError;
use crate::name::Name;
use crate::open_file::PosixFile;
use crate::setattr::complete_new;
use crate::syscall;
use crate::tree::{Tree, node};
use rustix::fs::{AtFlags, Dev, FileType, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use zgate_io::IoEngine;
use zgate_io::access_check::Rights;
use zgate_io::credentials;
use zgate_store::file_store::{CreateMode, CreatedFile, DirChange, NewNode, Node};
use zgate_store::{
    Attr, Caller, FileKind, NodeHandle, SetAttr, SetTime, StoreError, StoreResult, Timestamp,
};

/// A file that was created or found; or, if the name is a mount point and what is mounted
/// there has other workers than the directory, the engine for calls that may wait for
/// either.
pub(crate) type Created = Result<CreatedFile, IoEngine>;

/// Default mode of a file: access for the owner only.
const DEFAULT_FILE_MODE: u32 = 0o600;
const DEFAULT_DIR_MODE: u32 = 0o700;

/// Largest numbers of a device: mknod(2) takes 32 bits for both, and drops others.
const MAX_MAJOR: u32 = (1 << 12) - 1;
const MAX_MINOR: u32 = (1 << 20) - 1;

impl Tree {
    /// Creates or finds a regular file; may wait for the disk of `dir`, but for no other
    /// one.
    pub(crate) fn create_file(
        self: &Arc<Self>,
        who: &Caller,
        dir: &NodeHandle,
        name: &[u8],
        mode: CreateMode,
        attrs: &SetAttr,
    ) -> StoreResult<Created> {
        let (dir, name) = self.prepare_new(who, dir, name, attrs)?;
        let _lock = dir.lock_entries();
        let before = dir.attr()?.change;
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let bits = syscall::mode_bits(attrs.mode.unwrap_or(DEFAULT_FILE_MODE));
        let mut opened = Err(Errno::EXIST);
        // An existing name needs no right to write to the directory.
        if self.precheck(who, &dir, Rights::WRITE | Rights::EXECUTE).is_ok() {
            opened = rustix::fs::openat(&dir.fd, name.as_c_str(), flags, bits);
        } else if !syscall::exists_at(&dir.fd, name.as_c_str()) {
            opened = Err(Errno::ACCESS);
        }
        let fd = match opened {
            Ok(fd) => fd,
            Err(Errno::EXIST) if mode == CreateMode::Guarded => return Err(StoreError::Exists),
            Err(Errno::EXIST) => {
                self.precheck(who, &dir, Rights::EXECUTE)?;
                return match self.open_nearby(&dir, name.as_c_str())? {
                    Ok(fd) => self.found(who, (&dir, &name), fd, (mode, attrs), before).map(Ok),
                    Err(engine) => Ok(Err(engine)),
                };
            }
            Err(errno) => return Err(self.dir_error(&dir, crate::errno::store_error(errno))),
        };
        let made = self.made(&dir, &name, fd, mode, attrs);
        if made.is_err() {
            // Remove the incomplete file. The name is ours: it was created
            // under the directory's lock a moment ago.
            let _ = rustix::fs::unlinkat(&dir.fd, name.as_c_str(), AtFlags::empty());
        }
        dir.mark_entries_modified();
        let (entry, attr, writer) = made?;
        entry.note_creator(who.uid);
        let is_stable = matches!(mode, CreateMode::Exclusive(_));
        let open = PosixFile::created(self, entry.clone(), writer, who).into_open();
        Ok(Ok(CreatedFile {
            node: node(&entry, attr),
            open: Some(open),
            created: true,
            is_stable,
            dir: DirChange { atomic: true, before, after: dir.attr()?.change },
        }))
    }

    /// Finds the regular file of a mount point for a creation that is not guarded; may
    /// wait for its disk. Others may change the directory meanwhile.
    pub(crate) fn found_across(
        self: &Arc<Self>,
        who: &Caller,
        dir: &NodeHandle,
        name: &[u8],
        mode: CreateMode,
        attrs: &SetAttr,
    ) -> StoreResult<CreatedFile> {
        let (dir, name) = self.prepare_new(who, dir, name, attrs)?;
        self.precheck(who, &dir, Rights::EXECUTE)?;
        let before = dir.attr()?.change;
        let fd = syscall::open_path(&dir.fd, name.as_c_str())?;
        self.found(who, (&dir, &name), fd, (mode, attrs), before)
    }

    fn prepare_new(
        &self,
        who: &Caller,
        dir: &NodeHandle,
        name: &[u8],
        attrs: &SetAttr,
    ) -> StoreResult<(Arc<Entry>, Name)> {
        let name = Name::parse(name)?;
        let dir = self.directory(dir)?;
        if self.hides(&dir, name.as_bytes()) {
            return Err(StoreError::AccessDenied);
        }
        if !self.switches_identity {
            let own = credentials::process_identity();
            let foreign = attrs.uid.is_some_and(|uid| uid != own.uid)
                || attrs.gid.is_some_and(|gid| !own.in_group(gid) || !who.in_group(gid));
            if foreign {
                return Err(StoreError::NotPermitted);
            }
        }
        Ok((dir, name))
    }

    /// Caches a new regular file and sets its remaining attributes.
    fn made(
        &self,
        dir: &Entry,
        name: &Name,
        fd: OwnedFd,
        mode: CreateMode,
        attrs: &SetAttr,
    ) -> StoreResult<(Arc<Entry>, Attr, Writer)> {
        if let Some(size) = attrs.size.filter(|&size| size > 0) {
            rustix::fs::ftruncate(&fd, size).or_store()?;
        }
        match mode {
            CreateMode::Exclusive(verifier) => {
                let times = verifier_times(verifier);
                complete_new(&fd, FileKind::Regular, &SetAttr { size: None, ..times.over(attrs) })?;
                // The verifier must survive a crash.
                rustix::fs::fsync(&fd).or_store()?;
            }
            CreateMode::Unchecked | CreateMode::Guarded => {
                complete_new(&fd, FileKind::Regular, attrs)?;
            }
        }
        // The kernel creates nothing across a mount: it lies in that of the directory.
        let writer = Writer::of_created(fd, &dir.mount);
        let (entry, attr) = self.adopt_created(&writer.fd, dir, name)?;
        entry.keep_writer(writer.clone());
        Ok((entry, attr, writer))
    }

    /// Handles an existing name, opened as `O_PATH`.
    fn found(
        self: &Arc<Self>,
        who: &Caller,
        place: (&Entry, &Name),
        fd: OwnedFd,
        (mode, attrs): (CreateMode, &SetAttr),
        before: u64,
    ) -> StoreResult<CreatedFile> {
        let (entry, attr) = self.adopt(fd, Some(place))?;
        let mut found = CreatedFile {
            node: node(&entry, attr),
            open: None,
            created: false,
            is_stable: false,
            dir: DirChange { atomic: true, before, after: before },
        };
        let regular = entry.kind == FileKind::Regular;
        match mode {
            CreateMode::Exclusive(verifier) => {
                if !regular || !verifier_matches(&attr, verifier) {
                    return Err(StoreError::Exists);
                }
                // A retransmission: the creator opens the file regardless of
                // its mode. Anybody can take the verifier from the times of any
                // file; and all files have one owner if identities are not switched.
                if who.uid == attr.uid || who.uid == 0 || entry.is_created_by(who.uid) {
                    let writer = entry.writer()?;
                    let file = PosixFile::created(self, Arc::clone(&entry), writer, who);
                    found.open = Some(file.into_open());
                }
                found.created = true;
            }
            CreateMode::Unchecked if regular && attrs.size == Some(0) => {
                let empty = SetAttr { size: Some(0), ..SetAttr::default() };
                found.node.attr = self.setattr(who, &entry.handle, &empty, None)?;
            }
            CreateMode::Unchecked | CreateMode::Guarded => {}
        }
        Ok(found)
    }

    /// Creates anything but a regular file.
    pub(crate) fn create_node(
        &self,
        who: &Caller,
        dir: &NodeHandle,
        name: &[u8],
        what: &NewNode,
        attrs: &SetAttr,
    ) -> StoreResult<(Node, DirChange)> {
        let (dir, name) = self.prepare_new(who, dir, name, attrs)?;
        let _lock = dir.lock_entries();
        let before = dir.attr()?.change;
        if let Err(error) = self.precheck(who, &dir, Rights::WRITE | Rights::EXECUTE) {
            let exists = syscall::exists_at(&dir.fd, name.as_c_str());
            return Err(if exists { StoreError::Exists } else { error });
        }
        make(&dir.fd, &name, what, attrs).map_err(|error| self.dir_error(&dir, error))?;
        let made = self.made_node(&dir, &name, attrs);
        if made.is_err() {
            let dir_flag =
                if *what == NewNode::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            let _ = rustix::fs::unlinkat(&dir.fd, name.as_c_str(), dir_flag);
        }
        dir.mark_entries_modified();
        let made = made?;
        Ok((made, DirChange { atomic: true, before, after: dir.attr()?.change }))
    }

    fn made_node(&self, dir: &Entry, name: &Name, attrs: &SetAttr) -> StoreResult<Node> {
        let fd = syscall::open_path(&dir.fd, name.as_c_str())?;
        let (entry, attr) = self.adopt(fd, Some((dir, name)))?;
        let plain = SetAttr { mode: attrs.mode, size: attrs.size, ..SetAttr::default() };
        if *attrs == plain && attrs.mode.is_none_or(|mode| mode & 0o6000 == 0) {
            return Ok(node(&entry, attr));
        }
        complete_new(&entry.fd, entry.kind, attrs)?;
        entry.mark_modified();
        Ok(node(&entry, entry.attr()?))
    }
}

fn make(dir: &OwnedFd, name: &Name, what: &NewNode, attrs: &SetAttr) -> StoreResult<()> {
    let name = name.as_c_str();
    let bits = |default| syscall::mode_bits(attrs.mode.unwrap_or(default));
    let special =
        |kind, device| rustix::fs::mknodat(dir, name, kind, bits(DEFAULT_FILE_MODE), device);
    match what {
        NewNode::Directory => rustix::fs::mkdirat(dir, name, bits(DEFAULT_DIR_MODE)),
        NewNode::Symlink(target) => {
            if target.is_empty() {
                return Err(StoreError::Invalid);
            }
            rustix::fs::symlinkat(&target[..], dir, name)
        }
        NewNode::BlockDevice(major, minor) => {
            special(FileType::BlockDevice, device(*major, *minor)?)
        }
        NewNode::CharDevice(major, minor) => {
            special(FileType::CharacterDevice, device(*major, *minor)?)
        }
        NewNode::Fifo => special(FileType::Fifo, 0),
        NewNode::Socket => special(FileType::Socket, 0),
    }
    .or_store()
}

/// Returns the device with these numbers, which Linux must have.
fn device(major: u32, minor: u32) -> StoreResult<Dev> {
    if major > MAX_MAJOR || minor > MAX_MINOR {
        return Err(StoreError::Invalid);
    }
    Ok(rustix::fs::makedev(major, minor))
}

/// Times that encode a verifier: 31 bits each, which every file system can
/// store as seconds.
struct VerifierTimes {
    atime: i64,
    mtime: i64,
}

fn verifier_times(verifier: [u8; 8]) -> VerifierTimes {
    let whole = u64::from_be_bytes(verifier);
    VerifierTimes {
        atime: ((whole >> 32) & 0x7fff_ffff) as i64,
        mtime: (whole & 0x7fff_ffff) as i64,
    }
}

impl VerifierTimes {
    fn over(&self, attrs: &SetAttr) -> SetAttr {
        let at = |seconds| Some(SetTime::At(Timestamp { seconds, nanoseconds: 0 }));
        SetAttr { atime: at(self.atime), mtime: at(self.mtime), ..attrs.clone() }
    }
}

fn verifier_matches(attr: &Attr, verifier: [u8; 8]) -> bool {
    let times = verifier_times(verifier);
    attr.atime.seconds == times.atime && attr.mtime.seconds == times.mtime
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::PosixOptions;
    use crate::store::PosixStore;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use zgate_io::{EngineChoice, WriteMethod};
    use zgate_store::BufferPool;

    /// Opens a store that takes on no identities, also if the tests run as root.
    fn store_without_root(path: &Path) -> Arc<PosixStore> {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
        let engine = IoEngine::new(EngineChoice::Threads, 1).unwrap();
        let options = PosixOptions::new(engine, BufferPool::new(1 << 20));
        let mut store = PosixStore::open(path, options).unwrap();
        let tree = Arc::get_mut(&mut Arc::get_mut(&mut store).unwrap().tree);
        tree.unwrap().switches_identity = false;
        store
    }

    #[test]
    fn without_root_a_forged_verifier_opens_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = store_without_root(dir.path());
        let (tree, root) = (&store.tree, store.tree.root.handle);
        let me = credentials::process_identity();
        let [alice, bob] = [1, 2].map(|more| Caller {
            uid: me.uid + more,
            gid: me.gid + more,
            groups: Arc::from([]),
        });
        let attrs = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        let verifier = [0, 0, 0, 1, 0, 0, 0, 2];
        let exclusive = |who: &Caller, name: &[u8]| {
            let mode = CreateMode::Exclusive(verifier);
            tree.create_file(who, &root, name, mode, &attrs).unwrap().unwrap()
        };
        // The times of somebody's file are a verifier that everybody can read.
        let made = tree.create_file(me, &root, b"f", CreateMode::Guarded, &attrs).unwrap();
        let made = made.unwrap();
        let times = verifier_times(verifier).over(&SetAttr::default());
        tree.setattr(me, &made.node.handle, &times, None).unwrap();
        assert!(exclusive(&alice, b"f").open.is_none());
        assert!(exclusive(me, b"f").open.is_some(), "its owner");
        // A repeated request of the creator still has the file.
        assert!(exclusive(&alice, b"x").open.is_some());
        let again = exclusive(&alice, b"x");
        assert!(again.created && again.open.is_some());
        assert!(exclusive(&bob, b"x").open.is_none());
    }

    /// Others would become another device: 4097 is 1 in the 12 bits that there are.
    #[test]
    fn a_device_that_linux_does_not_have_is_not_made() {
        let dir = tempfile::tempdir().unwrap();
        let store = store_without_root(dir.path());
        let (tree, root) = (&store.tree, store.tree.root.handle);
        let (me, attrs) = (credentials::process_identity(), SetAttr::default());
        for (major, minor) in [(4097, 1), (1, 1 << 20), (u32::MAX, 0)] {
            for what in [NewNode::BlockDevice(major, minor), NewNode::CharDevice(major, minor)] {
                let made = tree.create_node(me, &root, b"device", &what, &attrs);
                assert_eq!(made.err(), Some(StoreError::Invalid), "{what:?}");
            }
        }
        assert_eq!(device(MAX_MAJOR, MAX_MINOR), Ok(u64::from(u32::MAX)));
    }

    #[test]
    fn a_new_file_is_written_as_one_that_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        let store = store_without_root(dir.path());
        let (tree, root) = (&store.tree, store.tree.root.handle);
        let (me, attrs) = (credentials::process_identity(), SetAttr::default());
        for name in [b"one", b"two"] {
            let made = tree.create_file(me, &root, name, CreateMode::Guarded, &attrs);
            let open = made.unwrap().unwrap().open.unwrap();
            let (fd, mode) = PosixFile::of(&open).unwrap().writer_and_mode().unwrap();
            assert_eq!(mode.method, WriteMethod::of(&fd));
        }
    }

    #[test]
    fn verifiers_fit_into_seconds() {
        let times = verifier_times([0xff; 8]);
        assert_eq!((times.atime, times.mtime), (0x7fff_ffff, 0x7fff_ffff));
        let times = verifier_times([0, 0, 0, 1, 0, 0, 0, 2]);
        assert_eq!((times.atime, times.mtime), (1, 2));
    }
}
