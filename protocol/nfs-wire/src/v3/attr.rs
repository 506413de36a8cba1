//! Attributes on the wire: fattr3, sattr3, wcc_data (RFC 1813 §2.5, §2.6).

use super::Status;
use zgate_store::attr::{Attr, FileKind, SetAttr, SetTime, Timestamp};
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError};

zgate_xdr::xdr_enum! {
    /// ftype3.
    pub enum FileType {
        /// NF3REG.
        Regular = 1,
        /// NF3DIR.
        Directory = 2,
        /// NF3BLK.
        BlockDevice = 3,
        /// NF3CHR.
        CharDevice = 4,
        /// NF3LNK.
        Symlink = 5,
        /// NF3SOCK.
        Socket = 6,
        /// NF3FIFO.
        Fifo = 7,
    }
}

impl From<FileKind> for FileType {
    fn from(kind: FileKind) -> Self {
        match kind {
            FileKind::Regular => Self::Regular,
            FileKind::Directory => Self::Directory,
            FileKind::BlockDevice => Self::BlockDevice,
            FileKind::CharDevice => Self::CharDevice,
            FileKind::Symlink => Self::Symlink,
            FileKind::Socket => Self::Socket,
            FileKind::Fifo => Self::Fifo,
        }
    }
}

zgate_xdr::xdr_struct! {
    /// nfstime3.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct NfsTime {
        /// Seconds since 1970, unsigned.
        pub seconds: u32,
        /// Nanoseconds.
        pub nanoseconds: u32,
    }
}

impl From<Timestamp> for NfsTime {
    /// Times before 1970 or after 2106 become the nearest representable one.
    fn from(time: Timestamp) -> Self {
        match u32::try_from(time.seconds) {
            Ok(seconds) => Self { seconds, nanoseconds: time.nanoseconds },
            Err(_) if time.seconds < 0 => Self::default(),
            Err(_) => Self { seconds: u32::MAX, nanoseconds: 0 },
        }
    }
}

impl NfsTime {
    /// The time as a timestamp.
    ///
    /// # Errors
    /// [`Status::Inval`] if the nanoseconds are a second or more.
    pub fn to_timestamp(self) -> Result<Timestamp, Status> {
        if self.nanoseconds >= 1_000_000_000 {
            return Err(Status::Inval);
        }
        Ok(Timestamp { seconds: i64::from(self.seconds), nanoseconds: self.nanoseconds })
    }
}

zgate_xdr::xdr_struct! {
    /// fattr3.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Attributes {
        /// Type.
        pub kind: FileType,
        /// Permission bits.
        pub mode: u32,
        /// Hard links.
        pub nlink: u32,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
        /// Length in bytes.
        pub size: u64,
        /// Space in bytes.
        pub used_bytes: u64,
        /// Device numbers: major.
        pub rdev_major: u32,
        /// Device numbers: minor.
        pub rdev_minor: u32,
        /// File system.
        pub fsid: u64,
        /// Number within it.
        pub fileid: u64,
        /// Last read.
        pub atime: NfsTime,
        /// Last data change.
        pub mtime: NfsTime,
        /// Last change.
        pub ctime: NfsTime,
    }
}

impl Attributes {
    /// The attributes of an object of the file system `fsid`.
    #[must_use]
    pub fn new(fsid: u64, attr: &Attr) -> Self {
        Self {
            kind: attr.kind.into(),
            mode: attr.mode,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            size: attr.size,
            used_bytes: attr.used_bytes,
            rdev_major: attr.rdev.0,
            rdev_minor: attr.rdev.1,
            fsid,
            fileid: attr.fileid,
            atime: attr.atime.into(),
            mtime: attr.mtime.into(),
            ctime: attr.ctime.into(),
        }
    }
}

zgate_xdr::xdr_struct! {
    /// wcc_attr.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WccAttr {
        /// Length in bytes.
        pub size: u64,
        /// Last data change.
        pub mtime: NfsTime,
        /// Last change.
        pub ctime: NfsTime,
    }
}

impl WccAttr {
    /// The attributes that a client compares.
    #[must_use]
    pub fn new(attr: &Attr) -> Self {
        Self { size: attr.size, mtime: attr.mtime.into(), ctime: attr.ctime.into() }
    }
}

zgate_xdr::xdr_struct! {
    /// wcc_data: an object before and after a modification.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct WccData {
        /// Before; only if there was no other change in between.
        pub before: Option<WccAttr>,
        /// After.
        pub after: Option<Attributes>,
    }
}

/// set_atime, set_mtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetTimeHow {
    /// DONT_CHANGE.
    #[default]
    DontChange,
    /// SET_TO_SERVER_TIME.
    ServerTime,
    /// SET_TO_CLIENT_TIME.
    ClientTime(NfsTime),
}

impl Encode for SetTimeHow {
    fn encode(&self, e: &mut Encoder) {
        match self {
            Self::DontChange => e.u32(0),
            Self::ServerTime => e.u32(1),
            Self::ClientTime(time) => {
                e.u32(2);
                time.encode(e);
            }
        }
    }
}

impl Decode for SetTimeHow {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        match d.u32()? {
            0 => Ok(Self::DontChange),
            1 => Ok(Self::ServerTime),
            2 => NfsTime::decode(d).map(Self::ClientTime),
            _ => Err(XdrError::BadValue),
        }
    }
}

impl SetTimeHow {
    fn to_set_time(self) -> Result<Option<SetTime>, Status> {
        Ok(match self {
            Self::DontChange => None,
            Self::ServerTime => Some(SetTime::Now),
            Self::ClientTime(time) => Some(SetTime::At(time.to_timestamp()?)),
        })
    }
}

zgate_xdr::xdr_struct! {
    /// sattr3.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct SetAttributes {
        /// Permission bits.
        pub mode: Option<u32>,
        /// Owner.
        pub uid: Option<u32>,
        /// Group.
        pub gid: Option<u32>,
        /// Length in bytes.
        pub size: Option<u64>,
        /// Last read.
        pub atime: SetTimeHow,
        /// Last data change.
        pub mtime: SetTimeHow,
    }
}

impl SetAttributes {
    /// The corresponding request to the store.
    ///
    /// # Errors
    /// [`Status::Inval`] for an invalid time.
    pub fn to_set_attr(&self) -> Result<SetAttr, Status> {
        Ok(SetAttr {
            mode: self.mode.map(|mode| mode & 0o7777),
            uid: self.uid,
            gid: self.gid,
            size: self.size,
            atime: self.atime.to_set_time()?,
            mtime: self.mtime.to_set_time()?,
            btime: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trip<T: Encode + Decode>(value: &T) -> (T, usize) {
        let mut e = Encoder::new();
        value.encode(&mut e);
        let raw = e.finish().flatten().unwrap();
        let mut d = Decoder::new(&raw);
        let back = T::decode(&mut d).unwrap();
        d.finish().unwrap();
        (back, raw.len())
    }

    #[test]
    fn attributes_take_84_bytes_and_survive_the_trip() {
        let attributes = Attributes {
            kind: FileType::Fifo,
            mode: 0o644,
            nlink: 1,
            uid: 2,
            gid: 3,
            size: 1 << 40,
            used_bytes: 5,
            rdev_major: 6,
            rdev_minor: 7,
            fsid: 8,
            fileid: 9,
            atime: NfsTime { seconds: 1, nanoseconds: 2 },
            mtime: NfsTime { seconds: 3, nanoseconds: 4 },
            ctime: NfsTime { seconds: 5, nanoseconds: 6 },
        };
        assert_eq!(trip(&attributes), (attributes.clone(), 84));
        let wcc = WccData { before: None, after: Some(attributes) };
        assert_eq!(trip(&wcc), (wcc.clone(), 92));
    }

    #[test]
    fn times_outside_the_range_are_clamped_and_bad_ones_refused() {
        let early = Timestamp { seconds: -5, nanoseconds: 9 };
        assert_eq!(NfsTime::from(early), NfsTime::default());
        let late = Timestamp { seconds: 1 << 33, nanoseconds: 9 };
        assert_eq!(NfsTime::from(late).seconds, u32::MAX);
        let bad = NfsTime { seconds: 0, nanoseconds: 1_000_000_000 };
        assert_eq!(bad.to_timestamp(), Err(Status::Inval));
        let set = SetAttributes { mtime: SetTimeHow::ClientTime(bad), ..Default::default() };
        assert_eq!(set.to_set_attr(), Err(Status::Inval));
    }

    #[test]
    fn settable_attributes_survive_the_trip() {
        let set = SetAttributes {
            mode: Some(0o644),
            size: Some(7),
            atime: SetTimeHow::ServerTime,
            mtime: SetTimeHow::ClientTime(NfsTime { seconds: 1, nanoseconds: 2 }),
            ..Default::default()
        };
        assert_eq!(trip(&set).0, set);
        assert_eq!(set.to_set_attr().unwrap().atime, Some(SetTime::Now));
    }
}
