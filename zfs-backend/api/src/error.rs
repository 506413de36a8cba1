//! Errors of storage. Each protocol maps this enum exhaustively to its own
//! codes, in one place.

use thiserror::Error;

/// Result of a store operation.
pub type StoreResult<T> = Result<T, StoreError>;

/// Failure of the storage, or its refusal of a request.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, Hash)]
pub enum StoreError {
    /// ENOENT.
    #[error("no such file or directory")]
    NotFound,
    /// EEXIST.
    #[error("already exists")]
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
    /// The operation does not apply to objects of this kind.
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
    /// The handle no longer names an object (ESTALE, or the mount vanished).
    #[error("stale handle")]
    Stale,
    /// The handle was never issued by this store.
    #[error("bad handle")]
    BadHandle,
    /// ENODATA / ENOATTR: no such extended attribute.
    #[error("no such extended attribute")]
    NoXattr,
    /// E2BIG: extended attribute too large.
    #[error("extended attribute too large")]
    XattrTooBig,
    /// The store or its file system does not support the operation.
    #[error("not supported by the file system")]
    NotSupported,
    /// No data at or after the offset (ENXIO of SEEK, or EOF where data was
    /// needed).
    #[error("beyond the end")]
    BeyondEnd,
    /// EBUSY, EAGAIN: a retry may succeed.
    #[error("busy, try again")]
    Busy,
    /// ETXTBSY: a program that runs on the server, or a swap file. It is not written, and a
    /// retry does not help before the program ends.
    #[error("a running program or a swap file")]
    TextBusy,
    /// ENOMEM, ENFILE, EMFILE: the server lacks resources.
    #[error("out of resources")]
    OutOfResources,
    /// EIO, ENXIO and every error without a variant of its own.
    #[error("input/output error")]
    Io,
}
