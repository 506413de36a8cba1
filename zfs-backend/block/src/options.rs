//! Options for opening a volume, and the errors of opening one.

use std::io;
use std::path::PathBuf;
use thiserror::Error;
use zgate_store::BufferPool;

/// Use of the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirectIo {
    /// Bypass for devices that support it, page cache for files.
    #[default]
    Auto,
    /// Bypass; the volume does not open if O_DIRECT is impossible.
    Always,
    /// Page cache.
    Never,
}

/// Options for opening a volume.
#[derive(Clone, Debug)]
pub struct BlockOptions {
    /// Pool of the buffers that reads fill.
    pub pool: BufferPool,
    /// Refuses writes; several processes may then share a file.
    pub read_only: bool,
    /// Use of the page cache.
    pub direct: DirectIo,
    /// Size in bytes (a multiple of 512) at which a missing file is created. A
    /// file with content keeps its size; devices are never created.
    pub create_bytes: Option<u64>,
}

impl BlockOptions {
    /// Returns the defaults: read and write, no creation, O_DIRECT for devices.
    #[must_use]
    pub fn new(pool: BufferPool) -> Self {
        Self { pool, read_only: false, direct: DirectIo::Auto, create_bytes: None }
    }
}

/// Reason for which a volume cannot be served. The cause lies in the
/// configuration or the machine.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The path does not exist or cannot be reached.
    #[error("cannot open {path}: {source}", path = .path.display())]
    Unreachable {
        /// The path configured.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Another user has it open.
    #[error("{path} is in use: {by}", path = .path.display())]
    InUse {
        /// The path configured.
        path: PathBuf,
        /// The other user, as far as it is known.
        by: String,
    },
    /// The device or file refuses writes.
    #[error("{path} cannot be written: {why}; set it read-only", path = .path.display())]
    NotWritable {
        /// The path configured.
        path: PathBuf,
        /// The part that refuses writes.
        why: &'static str,
    },
    /// The path is neither a block device nor a regular file.
    #[error("{path} is {what}, not a block device or a regular file", path = .path.display())]
    WrongType {
        /// The path configured.
        path: PathBuf,
        /// Type of the object.
        what: &'static str,
    },
    /// The size cannot be served.
    #[error("{path} has {size_bytes} bytes: {why}", path = .path.display())]
    BadSize {
        /// The path configured.
        path: PathBuf,
        /// Present size, or the configured size, in bytes.
        size_bytes: u64,
        /// Reason for the refusal.
        why: &'static str,
    },
    /// The file cannot be created with its size.
    #[error(
        "{path} cannot have {size_bytes} bytes: the size is too large for its file system",
        path = .path.display()
    )]
    TooLarge {
        /// The path configured.
        path: PathBuf,
        /// The configured size, in bytes.
        size_bytes: u64,
    },
    /// The path is the link of a zvol that was renamed, and leads to it still.
    #[error(
        "{path} leads to another zvol, whose path is {own} since it was renamed",
        path = .path.display(), own = .own.display()
    )]
    OtherZvol {
        /// The path configured.
        path: PathBuf,
        /// The path that belongs to the zvol.
        own: PathBuf,
    },
    /// A device path that does not exist is not replaced by a file.
    #[error("{path} does not exist; create the zvol or device first", path = .0.display())]
    NoSuchDevice(PathBuf),
    /// O_DIRECT is required and impossible.
    #[error("{path} cannot be used with O_DIRECT: {why}", path = .path.display())]
    NoDirectIo {
        /// The path configured.
        path: PathBuf,
        /// Reason.
        why: &'static str,
    },
    /// The device or file opened, but could not be examined.
    #[error("cannot {what} {path}: {source}", path = .path.display())]
    Unexaminable {
        /// The path configured.
        path: PathBuf,
        /// Operation that failed.
        what: &'static str,
        /// Error of the operating system.
        source: io::Error,
    },
}
