//! Options for opening a store, and the errors of opening one.

use crate::asleep::Asleep;
use crate::descriptors::DescriptorBudget;
use crate::direct::DirectIo;
#[cfg(test)]
use crate::file_systems::WaitsFor;
use crate::identities::MountedDevices;
use crate::losses::Losses;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use thiserror::Error;
use zgate_io::IoEngine;
use zgate_store::attr::FsId;
use zgate_store::{BufferPool, StoreError};

/// Kind of handles issued for objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HandleMode {
    /// Kernel handles if the process may use them and the file system has them;
    /// else in-tree handles.
    #[default]
    Auto,
    /// In-tree handles, valid for the life of the process only.
    InTree,
}

/// Options for opening a store.
#[derive(Clone, Debug)]
pub struct PosixOptions {
    /// Engine for blocking work.
    pub engine: IoEngine,
    /// Pool of the buffers that reads fill.
    pub pool: BufferPool,
    /// Most cached objects; each needs one to three file descriptors. The
    /// process's limit may lower it.
    pub fd_cache_entries: usize,
    /// Budget of descriptors for them and for the files clients have open;
    /// shared by all stores.
    pub descriptors: Arc<DescriptorBudget>,
    /// Identity of the root's file system in place of its own.
    pub fsid_override: Option<FsId>,
    /// Key that signs handles. It must be secret and survive restarts. Needed
    /// if a subdirectory of a file system is exported: without it, a handle of
    /// a file below it is accepted only while the kernel knows the file's path.
    pub handle_secret: Option<[u8; 16]>,
    /// Kind of handles.
    pub handle_mode: HandleMode,
    /// Shows the `.zfs` directory of datasets.
    pub snapshots_visible: bool,
    /// Policy for reads that bypass the file system's cache.
    pub direct_io: DirectIo,
    /// Name of the dataset that must be mounted at the root; none: whatever is there
    /// is served.
    pub dataset: Option<String>,
    /// Loss counter; a reopened tree keeps the same one.
    pub losses: Losses,
    /// Devices of its file systems; a reopened tree keeps the same ones, and two trees
    /// never share them.
    pub devices: MountedDevices,
    /// Released snapshots; a reopened tree keeps the same ones, and two trees never share them.
    pub asleep: Asleep,
    /// Number of files and trees that a worker is closing: removed files, after the reply or when
    /// the last client has closed the file, those that no client has open any more where a close
    /// may wait, and trees that are dropped; a search for removed files counts as well. A reopened
    /// tree keeps the same one.
    pub freeing: Arc<AtomicUsize>,
    /// Stands for other file systems: the waits of their calls, by mount point.
    #[cfg(test)]
    pub(crate) waits_for: Option<fn(&[u8]) -> WaitsFor>,
}

impl PosixOptions {
    /// Returns the default settings.
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
            dataset: None,
            losses: Losses::default(),
            devices: MountedDevices::default(),
            asleep: Asleep::default(),
            freeing: Arc::default(),
            #[cfg(test)]
            waits_for: None,
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

/// Reason for which a tree cannot be served. The cause lies in the
/// configuration or the machine.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The path does not exist or cannot be reached.
    #[error("cannot open {path}: {source}{hint}", path = .path.display(), hint = hint(.source))]
    Unreachable {
        /// Configured path.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The path is not a directory.
    #[error("{path} is not a directory; export the directory it lies in", path = .0.display())]
    NotDirectory(PathBuf),
    /// Something else is mounted at the path than the dataset that is to be there.
    #[error("dataset {dataset} is not mounted at {path}, which lies in {found}", path = .path.display())]
    OtherMount {
        /// Configured path.
        path: PathBuf,
        /// Name of the dataset.
        dataset: String,
        /// Source and type of what is there.
        found: String,
    },
    /// The mount cannot be examined.
    #[error("cannot examine the file system of {path}: {error}; {}", need(.error), path = .path.display())]
    Unexaminable {
        /// Configured path.
        path: PathBuf,
        /// Error.
        error: StoreError,
    },
}
