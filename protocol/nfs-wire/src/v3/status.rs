//! nfsstat3 (RFC 1813 §2.6) and its mapping from the store's errors.

use zgate_store::StoreError;

zgate_xdr::xdr_enum! {
    /// nfsstat3.
    pub enum Status {
        /// NFS3_OK.
        Ok = 0,
        /// NFS3ERR_PERM.
        Perm = 1,
        /// NFS3ERR_NOENT.
        NoEnt = 2,
        /// NFS3ERR_IO.
        Io = 5,
        /// NFS3ERR_NXIO.
        Nxio = 6,
        /// NFS3ERR_ACCES.
        Acces = 13,
        /// NFS3ERR_EXIST.
        Exist = 17,
        /// NFS3ERR_XDEV.
        Xdev = 18,
        /// NFS3ERR_NODEV.
        NoDev = 19,
        /// NFS3ERR_NOTDIR.
        NotDir = 20,
        /// NFS3ERR_ISDIR.
        IsDir = 21,
        /// NFS3ERR_INVAL.
        Inval = 22,
        /// NFS3ERR_FBIG.
        FBig = 27,
        /// NFS3ERR_NOSPC.
        NoSpc = 28,
        /// NFS3ERR_ROFS.
        Rofs = 30,
        /// NFS3ERR_MLINK.
        MLink = 31,
        /// NFS3ERR_NAMETOOLONG.
        NameTooLong = 63,
        /// NFS3ERR_NOTEMPTY.
        NotEmpty = 66,
        /// NFS3ERR_DQUOT.
        DQuot = 69,
        /// NFS3ERR_STALE.
        Stale = 70,
        /// NFS3ERR_REMOTE.
        Remote = 71,
        /// NFS3ERR_BADHANDLE.
        BadHandle = 10001,
        /// NFS3ERR_NOT_SYNC.
        NotSync = 10002,
        /// NFS3ERR_BAD_COOKIE.
        BadCookie = 10003,
        /// NFS3ERR_NOTSUPP.
        NotSupp = 10004,
        /// NFS3ERR_TOOSMALL.
        TooSmall = 10005,
        /// NFS3ERR_SERVERFAULT.
        ServerFault = 10006,
        /// NFS3ERR_BADTYPE.
        BadType = 10007,
        /// NFS3ERR_JUKEBOX.
        Jukebox = 10008,
    }
}

impl From<StoreError> for Status {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound => Self::NoEnt,
            StoreError::Exists => Self::Exist,
            StoreError::NotPermitted => Self::Perm,
            StoreError::AccessDenied => Self::Acces,
            StoreError::NotDirectory => Self::NotDir,
            StoreError::IsDirectory => Self::IsDir,
            StoreError::IsSymlink
            | StoreError::WrongType
            | StoreError::Invalid
            | StoreError::BadName => Self::Inval,
            StoreError::NameTooLong => Self::NameTooLong,
            StoreError::NotEmpty => Self::NotEmpty,
            StoreError::NoSpace => Self::NoSpc,
            StoreError::QuotaExceeded => Self::DQuot,
            StoreError::TooLarge => Self::FBig,
            StoreError::ReadOnly => Self::Rofs,
            StoreError::CrossDevice => Self::Xdev,
            StoreError::TooManyLinks => Self::MLink,
            StoreError::Stale => Self::Stale,
            StoreError::BadHandle => Self::BadHandle,
            StoreError::NotSupported => Self::NotSupp,
            StoreError::BeyondEnd => Self::Nxio,
            StoreError::Busy | StoreError::OutOfResources => Self::Jukebox,
            // A program may run for ever, and a client that is told to wait never stops. The
            // RFC has no status for it, and EIO would look like a fault of the disk.
            StoreError::TextBusy => Self::Acces,
            // Extended attributes do not exist in NFSv3: an error about one is
            // an error of the store.
            StoreError::NoXattr | StoreError::XattrTooBig => Self::ServerFault,
            StoreError::Io => Self::Io,
        }
    }
}

impl Status {
    /// Returns the status of a failed REMOVE, RMDIR or RENAME. Busy is a mount point there:
    /// waiting does not help, and a client that is told to wait never stops. Version 3 has
    /// no status for it; this one is what the kernel's server says.
    #[must_use]
    pub fn of_name_change(error: StoreError) -> Self {
        match error {
            StoreError::Busy => Self::Acces,
            other => other.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_rfc() {
        assert_eq!(Status::from(StoreError::NotEmpty) as u32, 66);
        assert_eq!(Status::from(StoreError::Stale) as u32, 70);
        assert_eq!(Status::from(StoreError::Busy) as u32, 10_008);
    }

    #[test]
    fn the_end_of_a_program_is_not_waited_for() {
        assert_eq!(Status::from(StoreError::TextBusy) as u32, 13);
    }

    #[test]
    fn a_mount_point_is_not_waited_for() {
        assert_eq!(Status::of_name_change(StoreError::Busy) as u32, 13);
        assert_eq!(Status::of_name_change(StoreError::OutOfResources) as u32, 10_008);
        assert_eq!(Status::of_name_change(StoreError::NotEmpty) as u32, 66);
    }
}
