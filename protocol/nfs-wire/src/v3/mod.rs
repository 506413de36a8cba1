//! NFSv3 (RFC 1813): shared types, and the procedures.

mod attr;
pub mod proc;
mod status;

pub use attr::{Attributes, FileType, NfsTime, SetAttributes, SetTimeHow, WccAttr, WccData};
pub use proc::Procedure;
pub use status::Status;

use crate::limits::{MAX_COMPONENT_BYTES, MAX_FH3_BYTES, MAX_LINK_BYTES};
use zgate_store::file_store::Stability;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, Opaque, XdrError};

/// Version number of the protocol.
pub const VERSION: u32 = 3;

/// nfspath3: the target of a symbolic link.
pub type Path3 = Opaque<MAX_LINK_BYTES>;

/// filename3. The store checks its length: a name that is too long gets
/// NFS3ERR_NAMETOOLONG.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Name3(pub Vec<u8>);

impl Encode for Name3 {
    fn encode(&self, e: &mut Encoder) {
        e.opaque(&self.0);
    }
}

impl Decode for Name3 {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        d.opaque(MAX_COMPONENT_BYTES).map(|bytes| Self(bytes.to_vec()))
    }
}

impl From<&[u8]> for Name3 {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

/// Kind of a name in an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind<'a> {
    /// `.`: the directory itself.
    This,
    /// `..`: its parent.
    Parent,
    /// An ordinary name.
    Plain(&'a [u8]),
}

impl Name3 {
    /// Classifies a name. The store checks its length.
    ///
    /// # Errors
    /// [`Status::Inval`] if it is empty or contains `/` or NUL.
    pub fn kind(&self) -> Result<NameKind<'_>, Status> {
        match self.0.as_slice() {
            b"." => Ok(NameKind::This),
            b".." => Ok(NameKind::Parent),
            name if name.is_empty() || name.iter().any(|&b| b == b'/' || b == 0) => {
                Err(Status::Inval)
            }
            name => Ok(NameKind::Plain(name)),
        }
    }

    /// A name to be created: `.` and `..` always exist.
    ///
    /// # Errors
    /// [`Status::Exist`] or [`Status::Inval`].
    pub fn to_create(&self) -> Result<&[u8], Status> {
        match self.kind()? {
            NameKind::Plain(name) => Ok(name),
            NameKind::This | NameKind::Parent => Err(Status::Exist),
        }
    }

    /// A name to be removed or renamed: never `.` or `..` (RFC 1813 §3.3.14).
    ///
    /// # Errors
    /// [`Status::Inval`].
    pub fn to_remove(&self) -> Result<&[u8], Status> {
        match self.kind()? {
            NameKind::Plain(name) => Ok(name),
            NameKind::This | NameKind::Parent => Err(Status::Inval),
        }
    }
}

/// nfs_fh3.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fh3(pub Vec<u8>);

impl Encode for Fh3 {
    fn encode(&self, e: &mut Encoder) {
        e.opaque(&self.0);
    }
}

impl Decode for Fh3 {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        d.opaque(MAX_FH3_BYTES).map(|bytes| Self(bytes.to_vec()))
    }
}

zgate_xdr::xdr_struct! {
    /// diropargs3: a name in a directory.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct DirOpArgs {
        /// The directory.
        pub dir: Fh3,
        /// The name.
        pub name: Name3,
    }
}

zgate_xdr::xdr_struct! {
    /// Result of the procedures that create objects.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Created {
        /// Handle of the new object.
        pub fh: Option<Fh3>,
        /// Its attributes.
        pub attributes: Option<Attributes>,
        /// The directory.
        pub dir_wcc: WccData,
    }
}

zgate_xdr::xdr_enum! {
    /// stable_how.
    pub enum StableHow {
        /// UNSTABLE.
        Unstable = 0,
        /// DATA_SYNC.
        DataSync = 1,
        /// FILE_SYNC.
        FileSync = 2,
    }
}

impl From<StableHow> for Stability {
    fn from(how: StableHow) -> Self {
        match how {
            StableHow::Unstable => Self::Unstable,
            StableHow::DataSync => Self::DataSync,
            StableHow::FileSync => Self::FileSync,
        }
    }
}

impl From<Stability> for StableHow {
    fn from(stability: Stability) -> Self {
        match stability {
            Stability::Unstable => Self::Unstable,
            Stability::DataSync => Self::DataSync,
            Stability::FileSync => Self::FileSync,
        }
    }
}
