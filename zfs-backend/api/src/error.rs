//! What can go wrong in storage. Each protocol maps this enum exhaustively to
//! its own codes, in one place.

use thiserror::Error;

/// Result of a store operation.
pub type StoreResult<T> = Result<T, StoreError>;

/// The storage's fault, or the storage's verdict on a request.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, Hash)]
pub enum StoreError {
    /// ENOENT.
    #[error("no such file or directory")]
    NotFound,
    /// EEXIST.
    #[error("it exists already")]
    Exists,
    /// EPERM: only the owner or root may do that.
    #[error("not permitted")]
    NotPermitted,
    /// EACCES: the mode or ACL forbids it.
    #[error("access denied")]
    AccessDenied,
    /// ENOTDIR.
    #[error("not a directory")]
    NotDirectory,
    /// EISDIR.
    #[error("is a directory")]
    IsDirectory,
    /// ELOOP or an operation that does not follow a symbolic link.
    #[error("is a symbolic link")]
    IsSymlink,
    /// The object is of a kind the operation does not apply to.
    #[error("wrong kind of object")]
    WrongType,
    /// EINVAL.
    #[error("invalid argument")]
    Invalid,
    /// ENAMETOOLONG.
    #[error("name too long")]
    NameTooLong,
    /// The name holds bytes the file system refuses.
    #[error("bad name")]
    BadName,
    /// ENOTEMPTY.
    #[error("directory not empty")]
    NotEmpty,
    /// ENOSPC.
    #[error("no space left")]
    NoSpace,
    /// EDQUOT.
    #[error("quota exceeded")]
    QuotaExceeded,
    /// EFBIG.
    #[error("file too large")]
    TooLarge,
    /// EROFS.
    #[error("read-only file system")]
    ReadOnly,
    /// EXDEV.
    #[error("crosses file systems")]
    CrossDevice,
    /// EMLINK.
    #[error("too many links")]
    TooManyLinks,
    /// The handle names nothing any more (ESTALE, or the mount vanished).
    #[error("stale handle")]
    Stale,
    /// The handle was never one of this store's.
    #[error("bad handle")]
    BadHandle,
    /// ENODATA / ENOATTR: no such extended attribute.
    #[error("no such extended attribute")]
    NoXattr,
    /// E2BIG: extended attribute too large.
    #[error("extended attribute too large")]
    XattrTooBig,
    /// The store or its file system cannot do that at all.
    #[error("not supported by the file system")]
    NotSupported,
    /// EOF reached where data was needed (SEEK beyond the end: ENXIO).
    #[error("beyond the end")]
    BeyondEnd,
    /// ETXTBSY, EBUSY, EAGAIN: may work later.
    #[error("busy, try again")]
    Busy,
    /// ENOMEM, ENFILE, EMFILE: the server lacks resources.
    #[error("out of resources")]
    OutOfResources,
    /// EIO, ENXIO and every error without a line of its own.
    #[error("input/output error")]
    Io,
}
