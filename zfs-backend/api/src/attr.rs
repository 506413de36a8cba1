//! File attributes as the storage knows them.

/// Seconds and nanoseconds since the Unix epoch. `nanoseconds` < 1e9.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Whole seconds, negative before 1970.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanoseconds: u32,
}

/// Type of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A block device node.
    BlockDevice,
    /// A character device node.
    CharDevice,
    /// A named pipe.
    Fifo,
    /// A socket node.
    Socket,
}

/// Identity of a file system as clients see it; two objects with different
/// `FsId` lie in different file systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FsId {
    /// Upper half.
    pub major: u64,
    /// Lower half.
    pub minor: u64,
}

/// All attributes of one object at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Type of the object.
    pub kind: FileKind,
    /// Permission bits incl. setuid/setgid/sticky (`& 0o7777`).
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
    /// Length in bytes.
    pub size: u64,
    /// Space allocated, in bytes.
    pub used_bytes: u64,
    /// Device numbers (major, minor) of a device node, else zeros.
    pub rdev: (u32, u32),
    /// The file system the object lies in.
    pub fsid: FsId,
    /// Number unique within `fsid`.
    pub fileid: u64,
    /// For the root of a mounted file system, the number of the directory it
    /// covers; else equal to `fileid`.
    pub mounted_on_fileid: u64,
    /// Last read.
    pub atime: Timestamp,
    /// Last data change.
    pub mtime: Timestamp,
    /// Last change of data or attributes.
    pub ctime: Timestamp,
    /// Creation, where the file system keeps it.
    pub btime: Option<Timestamp>,
    /// Never goes backwards and differs after every modification
    /// (RFC 8881 §5.8.1.4).
    pub change: u64,
    /// Preferred I/O size in bytes (a ZFS dataset's recordsize).
    pub preferred_io_bytes: u32,
}

/// Value that a time stamp is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The server's clock.
    Now,
    /// The given moment.
    At(Timestamp),
}

/// Attributes to change; `None` leaves one alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// New permission bits.
    pub mode: Option<u32>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New length (truncate or extend with zeros).
    pub size: Option<u64>,
    /// New access time.
    pub atime: Option<SetTime>,
    /// New modification time.
    pub mtime: Option<SetTime>,
    /// Creation time, for file systems that can set it (others ignore it).
    pub btime: Option<Timestamp>,
}

impl SetAttr {
    /// Returns whether no attribute is to change.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
