//! How a volume is opened, and what can go wrong then.

use std::io;
use std::path::PathBuf;
use thiserror::Error;
use zgate_store::BufferPool;

/// Whether I/O goes past the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirectIo {
    /// Devices past it where they can, files through it.
    #[default]
    Auto,
    /// Past it, or the volume does not open.
    Always,
    /// Through it.
    Never,
}

/// How a volume is opened.
#[derive(Clone, Debug)]
pub struct BlockOptions {
    /// Gives the buffers reads fill.
    pub pool: BufferPool,
    /// Refuse writes; several processes may then share a file.
    pub read_only: bool,
    /// Whether I/O goes past the page cache.
    pub direct: DirectIo,
    /// Create a missing file with this size in bytes (a multiple of 512). A
    /// file that holds something keeps its size; devices are never created.
    pub create_bytes: Option<u64>,
}

impl BlockOptions {
    /// Read and write, no creation, O_DIRECT for devices.
    #[must_use]
    pub fn new(pool: BufferPool) -> Self {
        Self { pool, read_only: false, direct: DirectIo::Auto, create_bytes: None }
    }
}

/// Why a volume cannot be served. All of them are the configuration's or the
/// machine's fault.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Nothing is there, or it cannot be reached.
    #[error("cannot open {path}: {source}", path = .path.display())]
    Unreachable {
        /// The path configured.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Somebody else uses it.
    #[error("{path} is in use: {by}", path = .path.display())]
    InUse {
        /// The path configured.
        path: PathBuf,
        /// Who, as far as it can be told.
        by: String,
    },
    /// Writing is asked for and what lies below refuses it.
    #[error("{path} cannot be written: {why}; set it read-only", path = .path.display())]
    NotWritable {
        /// The path configured.
        path: PathBuf,
        /// What refuses.
        why: &'static str,
    },
    /// It is neither a block device nor a regular file.
    #[error("{path} is {what}, not a block device or a regular file", path = .path.display())]
    WrongType {
        /// The path configured.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// Its size cannot be served.
    #[error("{path} has {size_bytes} bytes: {why}", path = .path.display())]
    BadSize {
        /// The path configured.
        path: PathBuf,
        /// Its size, or the size asked for.
        size_bytes: u64,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A device path that does not exist is not replaced by a file.
    #[error("{path} does not exist, and nothing is created among the devices", path = .0.display())]
    NoSuchDevice(PathBuf),
    /// O_DIRECT is demanded and not to be had.
    #[error("{path} cannot be used with O_DIRECT: {why}", path = .path.display())]
    NoDirectIo {
        /// The path configured.
        path: PathBuf,
        /// What is missing.
        why: &'static str,
    },
    /// It opened, but a question about it was not answered.
    #[error("cannot {what} {path}: {source}", path = .path.display())]
    Unexaminable {
        /// The path configured.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the system says.
        source: io::Error,
    },
}
