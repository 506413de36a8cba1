//! Status codes (RFC 8881 §15.1, RFC 7862 §11.1, RFC 8276 §8.5) and the one
//! place where the storage's errors become them.

use zgate_store::StoreError;

zgate_xdr::xdr_enum! {
    /// nfsstat4.
    pub enum Status {
        /// NFS4_OK.
        Ok = 0,
        /// NFS4ERR_PERM.
        Perm = 1,
        /// NFS4ERR_NOENT.
        Noent = 2,
        /// NFS4ERR_IO.
        Io = 5,
        /// NFS4ERR_NXIO.
        Nxio = 6,
        /// NFS4ERR_ACCESS.
        Access = 13,
        /// NFS4ERR_EXIST.
        Exist = 17,
        /// NFS4ERR_XDEV.
        Xdev = 18,
        /// NFS4ERR_NOTDIR.
        Notdir = 20,
        /// NFS4ERR_ISDIR.
        Isdir = 21,
        /// NFS4ERR_INVAL.
        Inval = 22,
        /// NFS4ERR_FBIG.
        Fbig = 27,
        /// NFS4ERR_NOSPC.
        Nospc = 28,
        /// NFS4ERR_ROFS.
        Rofs = 30,
        /// NFS4ERR_MLINK.
        Mlink = 31,
        /// NFS4ERR_NAMETOOLONG.
        Nametoolong = 63,
        /// NFS4ERR_NOTEMPTY.
        Notempty = 66,
        /// NFS4ERR_DQUOT.
        Dquot = 69,
        /// NFS4ERR_STALE.
        Stale = 70,
        /// NFS4ERR_BADHANDLE.
        Badhandle = 10001,
        /// NFS4ERR_BAD_COOKIE.
        BadCookie = 10003,
        /// NFS4ERR_NOTSUPP.
        Notsupp = 10004,
        /// NFS4ERR_TOOSMALL.
        Toosmall = 10005,
        /// NFS4ERR_SERVERFAULT.
        Serverfault = 10006,
        /// NFS4ERR_BADTYPE.
        Badtype = 10007,
        /// NFS4ERR_DELAY.
        Delay = 10008,
        /// NFS4ERR_SAME.
        Same = 10009,
        /// NFS4ERR_DENIED.
        Denied = 10010,
        /// NFS4ERR_EXPIRED.
        Expired = 10011,
        /// NFS4ERR_LOCKED.
        Locked = 10012,
        /// NFS4ERR_GRACE.
        Grace = 10013,
        /// NFS4ERR_FHEXPIRED.
        Fhexpired = 10014,
        /// NFS4ERR_SHARE_DENIED.
        ShareDenied = 10015,
        /// NFS4ERR_WRONGSEC.
        Wrongsec = 10016,
        /// NFS4ERR_CLID_INUSE.
        ClidInuse = 10017,
        /// NFS4ERR_RESOURCE.
        Resource = 10018,
        /// NFS4ERR_MOVED.
        Moved = 10019,
        /// NFS4ERR_NOFILEHANDLE.
        Nofilehandle = 10020,
        /// NFS4ERR_MINOR_VERS_MISMATCH.
        MinorVersMismatch = 10021,
        /// NFS4ERR_STALE_CLIENTID.
        StaleClientid = 10022,
        /// NFS4ERR_STALE_STATEID.
        StaleStateid = 10023,
        /// NFS4ERR_OLD_STATEID.
        OldStateid = 10024,
        /// NFS4ERR_BAD_STATEID.
        BadStateid = 10025,
        /// NFS4ERR_BAD_SEQID.
        BadSeqid = 10026,
        /// NFS4ERR_NOT_SAME.
        NotSame = 10027,
        /// NFS4ERR_LOCK_RANGE.
        LockRange = 10028,
        /// NFS4ERR_SYMLINK.
        Symlink = 10029,
        /// NFS4ERR_RESTOREFH.
        Restorefh = 10030,
        /// NFS4ERR_LEASE_MOVED.
        LeaseMoved = 10031,
        /// NFS4ERR_ATTRNOTSUPP.
        Attrnotsupp = 10032,
        /// NFS4ERR_NO_GRACE.
        NoGrace = 10033,
        /// NFS4ERR_RECLAIM_BAD.
        ReclaimBad = 10034,
        /// NFS4ERR_RECLAIM_CONFLICT.
        ReclaimConflict = 10035,
        /// NFS4ERR_BADXDR.
        Badxdr = 10036,
        /// NFS4ERR_LOCKS_HELD.
        LocksHeld = 10037,
        /// NFS4ERR_OPENMODE.
        Openmode = 10038,
        /// NFS4ERR_BADOWNER.
        Badowner = 10039,
        /// NFS4ERR_BADCHAR.
        Badchar = 10040,
        /// NFS4ERR_BADNAME.
        Badname = 10041,
        /// NFS4ERR_BAD_RANGE.
        BadRange = 10042,
        /// NFS4ERR_LOCK_NOTSUPP.
        LockNotsupp = 10043,
        /// NFS4ERR_OP_ILLEGAL.
        OpIllegal = 10044,
        /// NFS4ERR_DEADLOCK.
        Deadlock = 10045,
        /// NFS4ERR_FILE_OPEN.
        FileOpen = 10046,
        /// NFS4ERR_ADMIN_REVOKED.
        AdminRevoked = 10047,
        /// NFS4ERR_CB_PATH_DOWN.
        CbPathDown = 10048,
        /// NFS4ERR_BADIOMODE.
        Badiomode = 10049,
        /// NFS4ERR_BADLAYOUT.
        Badlayout = 10050,
        /// NFS4ERR_BAD_SESSION_DIGEST.
        BadSessionDigest = 10051,
        /// NFS4ERR_BADSESSION.
        Badsession = 10052,
        /// NFS4ERR_BADSLOT.
        Badslot = 10053,
        /// NFS4ERR_COMPLETE_ALREADY.
        CompleteAlready = 10054,
        /// NFS4ERR_CONN_NOT_BOUND_TO_SESSION.
        ConnNotBoundToSession = 10055,
        /// NFS4ERR_DELEG_ALREADY_WANTED.
        DelegAlreadyWanted = 10056,
        /// NFS4ERR_BACK_CHAN_BUSY.
        BackChanBusy = 10057,
        /// NFS4ERR_LAYOUTTRYLATER.
        Layouttrylater = 10058,
        /// NFS4ERR_LAYOUTUNAVAILABLE.
        Layoutunavailable = 10059,
        /// NFS4ERR_NOMATCHING_LAYOUT.
        NomatchingLayout = 10060,
        /// NFS4ERR_RECALLCONFLICT.
        Recallconflict = 10061,
        /// NFS4ERR_UNKNOWN_LAYOUTTYPE.
        UnknownLayouttype = 10062,
        /// NFS4ERR_SEQ_MISORDERED.
        SeqMisordered = 10063,
        /// NFS4ERR_SEQUENCE_POS.
        SequencePos = 10064,
        /// NFS4ERR_REQ_TOO_BIG.
        ReqTooBig = 10065,
        /// NFS4ERR_REP_TOO_BIG.
        RepTooBig = 10066,
        /// NFS4ERR_REP_TOO_BIG_TO_CACHE.
        RepTooBigToCache = 10067,
        /// NFS4ERR_RETRY_UNCACHED_REP.
        RetryUncachedRep = 10068,
        /// NFS4ERR_UNSAFE_COMPOUND.
        UnsafeCompound = 10069,
        /// NFS4ERR_TOO_MANY_OPS.
        TooManyOps = 10070,
        /// NFS4ERR_OP_NOT_IN_SESSION.
        OpNotInSession = 10071,
        /// NFS4ERR_HASH_ALG_UNSUPP.
        HashAlgUnsupp = 10072,
        /// NFS4ERR_CLIENTID_BUSY.
        ClientidBusy = 10074,
        /// NFS4ERR_PNFS_IO_HOLE.
        PnfsIoHole = 10075,
        /// NFS4ERR_SEQ_FALSE_RETRY.
        SeqFalseRetry = 10076,
        /// NFS4ERR_BAD_HIGH_SLOT.
        BadHighSlot = 10077,
        /// NFS4ERR_DEADSESSION.
        Deadsession = 10078,
        /// NFS4ERR_ENCR_ALG_UNSUPP.
        EncrAlgUnsupp = 10079,
        /// NFS4ERR_PNFS_NO_LAYOUT.
        PnfsNoLayout = 10080,
        /// NFS4ERR_NOT_ONLY_OP.
        NotOnlyOp = 10081,
        /// NFS4ERR_WRONG_CRED.
        WrongCred = 10082,
        /// NFS4ERR_WRONG_TYPE.
        WrongType = 10083,
        /// NFS4ERR_DIRDELEG_UNAVAIL.
        DirdelegUnavail = 10084,
        /// NFS4ERR_REJECT_DELEG.
        RejectDeleg = 10085,
        /// NFS4ERR_RETURNCONFLICT.
        Returnconflict = 10086,
        /// NFS4ERR_DELEG_REVOKED.
        DelegRevoked = 10087,
        /// NFS4ERR_PARTNER_NOTSUPP.
        PartnerNotsupp = 10088,
        /// NFS4ERR_PARTNER_NO_AUTH.
        PartnerNoAuth = 10089,
        /// NFS4ERR_UNION_NOTSUPP.
        UnionNotsupp = 10090,
        /// NFS4ERR_OFFLOAD_DENIED.
        OffloadDenied = 10091,
        /// NFS4ERR_WRONG_LFS.
        WrongLfs = 10092,
        /// NFS4ERR_BADLABEL.
        Badlabel = 10093,
        /// NFS4ERR_OFFLOAD_NO_REQS.
        OffloadNoReqs = 10094,
        /// NFS4ERR_NOXATTR.
        Noxattr = 10095,
        /// NFS4ERR_XATTR2BIG.
        Xattr2big = 10096,
    }
}

impl Status {
    /// Its name as the RFCs write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "NFS4_OK",
            Self::Perm => "NFS4ERR_PERM",
            Self::Noent => "NFS4ERR_NOENT",
            Self::Io => "NFS4ERR_IO",
            Self::Nxio => "NFS4ERR_NXIO",
            Self::Access => "NFS4ERR_ACCESS",
            Self::Exist => "NFS4ERR_EXIST",
            Self::Xdev => "NFS4ERR_XDEV",
            Self::Notdir => "NFS4ERR_NOTDIR",
            Self::Isdir => "NFS4ERR_ISDIR",
            Self::Inval => "NFS4ERR_INVAL",
            Self::Fbig => "NFS4ERR_FBIG",
            Self::Nospc => "NFS4ERR_NOSPC",
            Self::Rofs => "NFS4ERR_ROFS",
            Self::Mlink => "NFS4ERR_MLINK",
            Self::Nametoolong => "NFS4ERR_NAMETOOLONG",
            Self::Notempty => "NFS4ERR_NOTEMPTY",
            Self::Dquot => "NFS4ERR_DQUOT",
            Self::Stale => "NFS4ERR_STALE",
            Self::Badhandle => "NFS4ERR_BADHANDLE",
            Self::BadCookie => "NFS4ERR_BAD_COOKIE",
            Self::Notsupp => "NFS4ERR_NOTSUPP",
            Self::Toosmall => "NFS4ERR_TOOSMALL",
            Self::Serverfault => "NFS4ERR_SERVERFAULT",
            Self::Badtype => "NFS4ERR_BADTYPE",
            Self::Delay => "NFS4ERR_DELAY",
            Self::Same => "NFS4ERR_SAME",
            Self::Denied => "NFS4ERR_DENIED",
            Self::Expired => "NFS4ERR_EXPIRED",
            Self::Locked => "NFS4ERR_LOCKED",
            Self::Grace => "NFS4ERR_GRACE",
            Self::Fhexpired => "NFS4ERR_FHEXPIRED",
            Self::ShareDenied => "NFS4ERR_SHARE_DENIED",
            Self::Wrongsec => "NFS4ERR_WRONGSEC",
            Self::ClidInuse => "NFS4ERR_CLID_INUSE",
            Self::Resource => "NFS4ERR_RESOURCE",
            Self::Moved => "NFS4ERR_MOVED",
            Self::Nofilehandle => "NFS4ERR_NOFILEHANDLE",
            Self::MinorVersMismatch => "NFS4ERR_MINOR_VERS_MISMATCH",
            Self::StaleClientid => "NFS4ERR_STALE_CLIENTID",
            Self::StaleStateid => "NFS4ERR_STALE_STATEID",
            Self::OldStateid => "NFS4ERR_OLD_STATEID",
            Self::BadStateid => "NFS4ERR_BAD_STATEID",
            Self::BadSeqid => "NFS4ERR_BAD_SEQID",
            Self::NotSame => "NFS4ERR_NOT_SAME",
            Self::LockRange => "NFS4ERR_LOCK_RANGE",
            Self::Symlink => "NFS4ERR_SYMLINK",
            Self::Restorefh => "NFS4ERR_RESTOREFH",
            Self::LeaseMoved => "NFS4ERR_LEASE_MOVED",
            Self::Attrnotsupp => "NFS4ERR_ATTRNOTSUPP",
            Self::NoGrace => "NFS4ERR_NO_GRACE",
            Self::ReclaimBad => "NFS4ERR_RECLAIM_BAD",
            Self::ReclaimConflict => "NFS4ERR_RECLAIM_CONFLICT",
            Self::Badxdr => "NFS4ERR_BADXDR",
            Self::LocksHeld => "NFS4ERR_LOCKS_HELD",
            Self::Openmode => "NFS4ERR_OPENMODE",
            Self::Badowner => "NFS4ERR_BADOWNER",
            Self::Badchar => "NFS4ERR_BADCHAR",
            Self::Badname => "NFS4ERR_BADNAME",
            Self::BadRange => "NFS4ERR_BAD_RANGE",
            Self::LockNotsupp => "NFS4ERR_LOCK_NOTSUPP",
            Self::OpIllegal => "NFS4ERR_OP_ILLEGAL",
            Self::Deadlock => "NFS4ERR_DEADLOCK",
            Self::FileOpen => "NFS4ERR_FILE_OPEN",
            Self::AdminRevoked => "NFS4ERR_ADMIN_REVOKED",
            Self::CbPathDown => "NFS4ERR_CB_PATH_DOWN",
            Self::Badiomode => "NFS4ERR_BADIOMODE",
            Self::Badlayout => "NFS4ERR_BADLAYOUT",
            Self::BadSessionDigest => "NFS4ERR_BAD_SESSION_DIGEST",
            Self::Badsession => "NFS4ERR_BADSESSION",
            Self::Badslot => "NFS4ERR_BADSLOT",
            Self::CompleteAlready => "NFS4ERR_COMPLETE_ALREADY",
            Self::ConnNotBoundToSession => "NFS4ERR_CONN_NOT_BOUND_TO_SESSION",
            Self::DelegAlreadyWanted => "NFS4ERR_DELEG_ALREADY_WANTED",
            Self::BackChanBusy => "NFS4ERR_BACK_CHAN_BUSY",
            Self::Layouttrylater => "NFS4ERR_LAYOUTTRYLATER",
            Self::Layoutunavailable => "NFS4ERR_LAYOUTUNAVAILABLE",
            Self::NomatchingLayout => "NFS4ERR_NOMATCHING_LAYOUT",
            Self::Recallconflict => "NFS4ERR_RECALLCONFLICT",
            Self::UnknownLayouttype => "NFS4ERR_UNKNOWN_LAYOUTTYPE",
            Self::SeqMisordered => "NFS4ERR_SEQ_MISORDERED",
            Self::SequencePos => "NFS4ERR_SEQUENCE_POS",
            Self::ReqTooBig => "NFS4ERR_REQ_TOO_BIG",
            Self::RepTooBig => "NFS4ERR_REP_TOO_BIG",
            Self::RepTooBigToCache => "NFS4ERR_REP_TOO_BIG_TO_CACHE",
            Self::RetryUncachedRep => "NFS4ERR_RETRY_UNCACHED_REP",
            Self::UnsafeCompound => "NFS4ERR_UNSAFE_COMPOUND",
            Self::TooManyOps => "NFS4ERR_TOO_MANY_OPS",
            Self::OpNotInSession => "NFS4ERR_OP_NOT_IN_SESSION",
            Self::HashAlgUnsupp => "NFS4ERR_HASH_ALG_UNSUPP",
            Self::ClientidBusy => "NFS4ERR_CLIENTID_BUSY",
            Self::PnfsIoHole => "NFS4ERR_PNFS_IO_HOLE",
            Self::SeqFalseRetry => "NFS4ERR_SEQ_FALSE_RETRY",
            Self::BadHighSlot => "NFS4ERR_BAD_HIGH_SLOT",
            Self::Deadsession => "NFS4ERR_DEADSESSION",
            Self::EncrAlgUnsupp => "NFS4ERR_ENCR_ALG_UNSUPP",
            Self::PnfsNoLayout => "NFS4ERR_PNFS_NO_LAYOUT",
            Self::NotOnlyOp => "NFS4ERR_NOT_ONLY_OP",
            Self::WrongCred => "NFS4ERR_WRONG_CRED",
            Self::WrongType => "NFS4ERR_WRONG_TYPE",
            Self::DirdelegUnavail => "NFS4ERR_DIRDELEG_UNAVAIL",
            Self::RejectDeleg => "NFS4ERR_REJECT_DELEG",
            Self::Returnconflict => "NFS4ERR_RETURNCONFLICT",
            Self::DelegRevoked => "NFS4ERR_DELEG_REVOKED",
            Self::PartnerNotsupp => "NFS4ERR_PARTNER_NOTSUPP",
            Self::PartnerNoAuth => "NFS4ERR_PARTNER_NO_AUTH",
            Self::UnionNotsupp => "NFS4ERR_UNION_NOTSUPP",
            Self::OffloadDenied => "NFS4ERR_OFFLOAD_DENIED",
            Self::WrongLfs => "NFS4ERR_WRONG_LFS",
            Self::Badlabel => "NFS4ERR_BADLABEL",
            Self::OffloadNoReqs => "NFS4ERR_OFFLOAD_NO_REQS",
            Self::Noxattr => "NFS4ERR_NOXATTR",
            Self::Xattr2big => "NFS4ERR_XATTR2BIG",
        }
    }
}

impl From<StoreError> for Status {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound => Self::Noent,
            StoreError::Exists => Self::Exist,
            StoreError::NotPermitted => Self::Perm,
            StoreError::AccessDenied => Self::Access,
            StoreError::NotDirectory => Self::Notdir,
            StoreError::IsDirectory => Self::Isdir,
            StoreError::IsSymlink => Self::Symlink,
            StoreError::WrongType | StoreError::Invalid => Self::Inval,
            StoreError::NameTooLong => Self::Nametoolong,
            StoreError::BadName => Self::Badname,
            StoreError::NotEmpty => Self::Notempty,
            StoreError::NoSpace => Self::Nospc,
            StoreError::QuotaExceeded => Self::Dquot,
            StoreError::TooLarge => Self::Fbig,
            StoreError::ReadOnly => Self::Rofs,
            StoreError::CrossDevice => Self::Xdev,
            StoreError::TooManyLinks => Self::Mlink,
            StoreError::Stale => Self::Stale,
            StoreError::BadHandle => Self::Badhandle,
            StoreError::NoXattr => Self::Noxattr,
            StoreError::XattrTooBig => Self::Xattr2big,
            StoreError::NotSupported => Self::Notsupp,
            StoreError::BeyondEnd => Self::Nxio,
            // A mount point in the way: waiting will not move it, and clients
            // report this as EBUSY.
            StoreError::Busy => Self::FileOpen,
            StoreError::OutOfResources => Self::Delay,
            StoreError::Io => Self::Io,
        }
    }
}

impl From<zgate_xdr::XdrError> for Status {
    fn from(_: zgate_xdr::XdrError) -> Self {
        Self::Badxdr
    }
}
