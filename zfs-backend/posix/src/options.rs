//! How a store is opened, and what can go wrong then.

use crate::descriptors::DescriptorBudget;
use crate::direct::DirectIo;
use crate::losses::Losses;
use std::path::PathBuf;
use std::sync::Arc;
use thiserror::Error;
use zgate_io::IoEngine;
use zgate_store::attr::FsId;
use zgate_store::{BufferPool, StoreError};

/// How objects are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HandleMode {
    /// Kernel handles where the process may use them and the file system has
    /// them; else in-tree handles.
    #[default]
    Auto,
    /// In-tree handles: stable for the life of the process only.
    InTree,
}

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct PosixOptions {
    /// Runs blocking work.
    pub engine: IoEngine,
    /// Gives the buffers reads fill.
    pub pool: BufferPool,
    /// Objects kept at hand; each needs one to three file descriptors. The
    /// process's limit may lower it.
    pub fd_cache_entries: usize,
    /// Descriptors for them and for the files clients have open; stores share
    /// it.
    pub descriptors: Arc<DescriptorBudget>,
    /// Identity of the root's file system instead of its own.
    pub fsid_override: Option<FsId>,
    /// Signs handles. Keep it secret and the same over restarts. Needed where
    /// a subdirectory of a file system is exported: without it, a handle of a
    /// file below it is honoured only while the kernel knows the file's path.
    pub handle_secret: Option<[u8; 16]>,
    /// How objects are named.
    pub handle_mode: HandleMode,
    /// Show the `.zfs` directory of datasets.
    pub snapshots_visible: bool,
    /// Which reads go past the file system's cache.
    pub direct_io: DirectIo,
    /// Counts data that could not be kept; of a tree that is opened again, the
    /// same.
    pub losses: Losses,
}

impl PosixOptions {
    /// The usual settings.
    #[must_use]
    pub fn new(engine: IoEngine, pool: BufferPool) -> Self {
        Self {
            engine,
            pool,
            fd_cache_entries: 16_384,
            descriptors: DescriptorBudget::new(usize::MAX),
            fsid_override: None,
            handle_secret: None,
            handle_mode: HandleMode::Auto,
            snapshots_visible: false,
            direct_io: DirectIo::Never,
            losses: Losses::default(),
        }
    }
}

fn hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::NotFound => "; create or mount it, or correct the path",
        std::io::ErrorKind::PermissionDenied => "; run as a user who may enter it",
        _ => "",
    }
}

fn need(error: &StoreError) -> &'static str {
    match error {
        StoreError::AccessDenied | StoreError::NotPermitted => "run as a user who may read it",
        _ => "Linux 5.8 and /proc are needed",
    }
}

/// Why a tree cannot be served. All of them are the configuration's or the
/// machine's fault.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The path does not exist or cannot be reached.
    #[error("cannot open {path}: {source}{hint}", path = .path.display(), hint = hint(.source))]
    Unreachable {
        /// The path configured.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The path is no directory.
    #[error("{path} is not a directory; export the directory it lies in", path = .0.display())]
    NotDirectory(PathBuf),
    /// The mount cannot be examined.
    #[error("cannot examine the file system of {path}: {error}; {}", need(.error), path = .path.display())]
    Unexaminable {
        /// The path configured.
        path: PathBuf,
        /// What went wrong.
        error: StoreError,
    },
}
