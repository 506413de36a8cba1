//! The types of MOUNT (RFC 1813 §5.1), in both directions.

use crate::limits::{MAX_FH3_BYTES, MAX_MOUNT_NAME_BYTES, MAX_MOUNT_PATH_BYTES};
use zgate_store::StoreError;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, Opaque, XdrError};

/// RPC program number of MOUNT.
pub const PROGRAM: u32 = 100_005;
/// Version number of the protocol.
pub const VERSION: u32 = 3;

/// dirpath.
pub type DirPath = Opaque<MAX_MOUNT_PATH_BYTES>;
/// name.
pub type Name = Opaque<MAX_MOUNT_NAME_BYTES>;

zgate_xdr::xdr_enum! {
    /// mountstat3.
    pub enum MountStatus {
        /// MNT3_OK.
        Ok = 0,
        /// MNT3ERR_PERM.
        Perm = 1,
        /// MNT3ERR_NOENT.
        NoEnt = 2,
        /// MNT3ERR_IO.
        Io = 5,
        /// MNT3ERR_ACCES.
        Acces = 13,
        /// MNT3ERR_NOTDIR.
        NotDir = 20,
        /// MNT3ERR_INVAL.
        Inval = 22,
        /// MNT3ERR_NAMETOOLONG.
        NameTooLong = 63,
        /// MNT3ERR_NOTSUPP.
        NotSupp = 10004,
        /// MNT3ERR_SERVERFAULT.
        ServerFault = 10006,
    }
}

impl From<StoreError> for MountStatus {
    /// Maps an error of a path lookup: few of the store's errors occur there,
    /// and MOUNT has few numbers.
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound | StoreError::Stale | StoreError::BadHandle => Self::NoEnt,
            StoreError::NotPermitted => Self::Perm,
            StoreError::AccessDenied => Self::Acces,
            StoreError::NotDirectory | StoreError::IsSymlink | StoreError::WrongType => {
                Self::NotDir
            }
            StoreError::Invalid | StoreError::BadName => Self::Inval,
            StoreError::NameTooLong => Self::NameTooLong,
            StoreError::NotSupported => Self::NotSupp,
            StoreError::Io => Self::Io,
            StoreError::Exists
            | StoreError::IsDirectory
            | StoreError::NotEmpty
            | StoreError::NoSpace
            | StoreError::QuotaExceeded
            | StoreError::TooLarge
            | StoreError::ReadOnly
            | StoreError::CrossDevice
            | StoreError::TooManyLinks
            | StoreError::NoXattr
            | StoreError::XattrTooBig
            | StoreError::BeyondEnd
            | StoreError::Busy
            | StoreError::TextBusy
            | StoreError::OutOfResources => Self::ServerFault,
        }
    }
}

zgate_xdr::xdr_struct! {
    /// mountres3_ok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Mounted {
        /// Handle of the directory.
        pub fh: Opaque<MAX_FH3_BYTES>,
        /// Flavours accepted there, the preferred one first.
        pub flavors: Flavors,
    }
}

/// auth_flavors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flavors(pub Vec<u32>);

impl Encode for Flavors {
    fn encode(&self, e: &mut Encoder) {
        e.array(&self.0);
    }
}

impl Decode for Flavors {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        d.array(64).map(Self)
    }
}

/// mountres3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountResult(pub Result<Mounted, MountStatus>);

impl Encode for MountResult {
    fn encode(&self, e: &mut Encoder) {
        match &self.0 {
            Ok(mounted) => {
                MountStatus::Ok.encode(e);
                mounted.encode(e);
            }
            Err(status) => status.encode(e),
        }
    }
}

impl Decode for MountResult {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        match MountStatus::decode(d)? {
            MountStatus::Ok => Mounted::decode(d).map(|mounted| Self(Ok(mounted))),
            status => Ok(Self(Err(status))),
        }
    }
}

/// A linked list of XDR: a word before each element tells that one follows
/// (mountlist, exports, groups).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linked<T>(pub Vec<T>);

impl<T: Encode> Encode for Linked<T> {
    fn encode(&self, e: &mut Encoder) {
        for item in &self.0 {
            true.encode(e);
            item.encode(e);
        }
        false.encode(e);
    }
}

impl<T: Decode> Decode for Linked<T> {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let mut items = Vec::new();
        while bool::decode(d)? {
            items.push(T::decode(d)?);
        }
        Ok(Self(items))
    }
}

zgate_xdr::xdr_struct! {
    /// mountbody.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct MountBody {
        /// The client.
        pub host: Name,
        /// The mounted path.
        pub path: DirPath,
    }
}

zgate_xdr::xdr_struct! {
    /// exportnode.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ExportNode {
        /// Its path.
        pub path: DirPath,
        /// Groups that may mount it; empty: everyone.
        pub groups: Linked<Name>,
    }
}
