//! One object of the tree.

use crate::content::PAGE_BYTES;
use crate::directory::Directory;
use crate::file_data::FileData;
use std::collections::BTreeMap;
use zgate_store::attr::FsId;
use zgate_store::file_store::PosixAclEntry;
use zgate_store::{Attr, FileKind, StoreError, StoreResult, Timestamp};

/// Set-user-id bit.
pub(crate) const SET_UID: u32 = 0o4000;
/// Set-group-id bit.
pub(crate) const SET_GID: u32 = 0o2000;
/// Sticky bit: only owners remove entries.
pub(crate) const STICKY: u32 = 0o1000;

/// Preferred I/O size reported to clients, in bytes: a ZFS record.
const PREFERRED_IO_BYTES: u32 = 128 << 10;

/// Content of an object.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// A regular file.
    Regular(FileData),
    /// A directory.
    Directory(Directory),
    /// A symbolic link's target.
    Symlink(Vec<u8>),
    /// A block device node.
    BlockDevice(u32, u32),
    /// A character device node.
    CharDevice(u32, u32),
    /// A named pipe.
    Fifo,
    /// A socket node.
    Socket,
}

/// An object.
#[derive(Clone, Debug)]
pub(crate) struct Inode {
    pub(crate) number: u64,
    /// Distinguishes objects that had the same number.
    pub(crate) generation: u64,
    /// Permission bits; with an ACL, the group bits are its mask.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) nlink: u32,
    /// Number of open files; the object exists while there are any.
    pub(crate) opens: u32,
    pub(crate) atime: Timestamp,
    pub(crate) mtime: Timestamp,
    pub(crate) ctime: Timestamp,
    pub(crate) btime: Timestamp,
    pub(crate) change: u64,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Access ACL, if the mode alone does not express it; else empty.
    pub(crate) acl: Vec<PosixAclEntry>,
    /// Default ACL of a directory.
    pub(crate) default_acl: Vec<PosixAclEntry>,
    /// Verifier of the exclusive create that made the object, until the time
    /// stamps that would hold it are overwritten.
    pub(crate) verifier: Option<[u8; 8]>,
    pub(crate) body: Body,
}

impl Inode {
    /// Returns the kind of the object.
    pub(crate) fn kind(&self) -> FileKind {
        match self.body {
            Body::Regular(_) => FileKind::Regular,
            Body::Directory(_) => FileKind::Directory,
            Body::Symlink(_) => FileKind::Symlink,
            Body::BlockDevice(..) => FileKind::BlockDevice,
            Body::CharDevice(..) => FileKind::CharDevice,
            Body::Fifo => FileKind::Fifo,
            Body::Socket => FileKind::Socket,
        }
    }

    /// Returns whether it is a directory.
    pub(crate) fn is_directory(&self) -> bool {
        matches!(self.body, Body::Directory(_))
    }

    /// Returns its entries.
    pub(crate) fn entries(&self) -> StoreResult<&Directory> {
        match &self.body {
            Body::Directory(entries) => Ok(entries),
            Body::Symlink(_) => Err(StoreError::IsSymlink),
            _ => Err(StoreError::NotDirectory),
        }
    }

    /// Returns its entries for modification.
    pub(crate) fn entries_mut(&mut self) -> StoreResult<&mut Directory> {
        match &mut self.body {
            Body::Directory(entries) => Ok(entries),
            Body::Symlink(_) => Err(StoreError::IsSymlink),
            _ => Err(StoreError::NotDirectory),
        }
    }

    /// Returns its data.
    pub(crate) fn data(&self) -> StoreResult<&FileData> {
        match &self.body {
            Body::Regular(data) => Ok(data),
            other => Err(not_regular(other)),
        }
    }

    /// Returns its data for modification.
    pub(crate) fn data_mut(&mut self) -> StoreResult<&mut FileData> {
        match &mut self.body {
            Body::Regular(data) => Ok(data),
            other => Err(not_regular(other)),
        }
    }

    /// Returns the number of pages it occupies.
    pub(crate) fn allocated_pages(&self) -> u64 {
        self.data().map_or(0, |data| data.live().allocated_pages())
    }

    /// Returns its attributes, except those of the file system.
    pub(crate) fn attr(&self, fsid: FsId) -> Attr {
        let (size, rdev) = match &self.body {
            Body::Regular(data) => (data.live().size(), (0, 0)),
            // Counts entries as ZFS does, with `.` and `..`.
            Body::Directory(entries) => (entries.len() as u64 + 2, (0, 0)),
            Body::Symlink(target) => (target.len() as u64, (0, 0)),
            Body::BlockDevice(major, minor) | Body::CharDevice(major, minor) => {
                (0, (*major, *minor))
            }
            Body::Fifo | Body::Socket => (0, (0, 0)),
        };
        Attr {
            kind: self.kind(),
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            size,
            used_bytes: self.allocated_pages().saturating_mul(PAGE_BYTES),
            rdev,
            fsid,
            fileid: self.number,
            mounted_on_fileid: self.number,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: Some(self.btime),
            change: self.change,
            preferred_io_bytes: PREFERRED_IO_BYTES,
        }
    }

    /// Clears set-id bits as a write by anybody but root does; a set-group-id
    /// bit without group execute permission has another meaning and stays.
    pub(crate) fn drop_set_id(&mut self) {
        let group = if self.mode & 0o010 != 0 { SET_GID } else { 0 };
        self.mode &= !(SET_UID | group);
    }
}

fn not_regular(body: &Body) -> StoreError {
    match body {
        Body::Directory(_) => StoreError::IsDirectory,
        Body::Symlink(_) => StoreError::IsSymlink,
        _ => StoreError::WrongType,
    }
}
