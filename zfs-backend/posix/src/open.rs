//! Opening a tree.

use crate::entry::Entry;
use crate::entry_cache::EntryCache;
use crate::errno::OrStoreError;
use crate::handle::HandleCodec;
use crate::identities::Identities;
use crate::mounts::{self, Mount, MountPolicy, MountTable};
use crate::name_table::NameTable;
use crate::options::{HandleMode, OpenError, PosixOptions};
use crate::removed;
use crate::snapshot_mounts;
use crate::statfs::statfs;
use crate::store::PosixStore;
use crate::syscall::{self, PATH_FLAGS};
use crate::tree::{Tree, in_tree_handle};
use crate::unsynced::Unsynced;
use rustix::fs::{Mode, Statx};
use rustix::process::{Resource, getrlimit};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Instant;
use zgate_io::credentials;
use zgate_io::file_handle::name_to_handle;
use zgate_store::file_store::StoreTraits;
use zgate_store::{NodeHandle, StoreError, StoreResult};

/// Descriptors of the process per cached object: an object holds two at most,
/// and the third is for sockets and files in use.
const FDS_PER_ENTRY: u64 = 3;

impl PosixStore {
    /// Opens the tree below `root`. Sets the process's umask to 0, because
    /// clients choose the modes.
    ///
    /// # Errors
    /// If `root` is not a directory that can be examined, or is not in the dataset
    /// that is to be mounted there.
    pub fn open(root: &Path, options: PosixOptions) -> Result<Arc<Self>, OpenError> {
        let path = std::fs::canonicalize(root)
            .map_err(|source| OpenError::Unreachable { path: root.to_owned(), source })?;
        if !path.is_dir() {
            return Err(OpenError::NotDirectory(path));
        }
        rustix::process::umask(Mode::empty());
        let fd = rustix::fs::open(&path, PATH_FLAGS, Mode::empty())
            .map_err(|errno| OpenError::Unreachable { path: path.clone(), source: errno.into() })?;
        let unexaminable = |error| OpenError::Unexaminable { path: path.clone(), error };
        if let Some(dataset) = &options.dataset
            && let Some(found) = mounts::in_place_of(dataset, &fd).map_err(unexaminable)?
        {
            let (path, dataset) = (path.clone(), dataset.clone());
            return Err(OpenError::OtherMount { path, dataset, found });
        }
        Self::assemble(&path, fd, options).map_err(unexaminable)
    }

    /// Returns the identities of its objects; they outlast the store.
    #[must_use]
    pub fn identities(&self) -> Identities {
        self.tree.identities.clone()
    }

    fn assemble(path: &Path, fd: OwnedFd, options: PosixOptions) -> StoreResult<Arc<Self>> {
        let root_path = path.as_os_str().as_bytes().to_vec();
        let policy = MountPolicy {
            engine: options.engine.clone(),
            kernel_handles: options.handle_mode == HandleMode::Auto,
            root_fsid: options.fsid_override,
            devices: options.devices.clone(),
            asleep: options.asleep.clone(),
            #[cfg(test)]
            waits_for: options.waits_for,
        };
        let mounts = MountTable::new(root_path.clone(), &fd, policy)?;
        let mount = Arc::clone(mounts.root());
        let codec =
            HandleCodec::new(options.handle_secret, RandomState::new().build_hasher().finish());
        let looked_at = Instant::now();
        let stat = syscall::stat(&fd)?;
        let handle = root_handle(&codec, &mount, &fd, &stat)?;
        let modifications = Arc::default();
        let descriptors = Arc::clone(&options.descriptors);
        let seen = (&stat, looked_at);
        let claim = descriptors.claim()?;
        let root = Arc::new(Entry::new(handle, fd, mount, seen, &modifications, claim));
        let traits = statfs(&root)?.traits;
        report(path, &traits, &root.mount, &options);
        let capacity = cache_capacity(options.fd_cache_entries);
        let cache = Arc::new(EntryCache::new(capacity));
        let reclaimed: Weak<EntryCache> = Arc::downgrade(&cache);
        descriptors.reclaim_from(reclaimed);
        let unsynced = Unsynced::new(capacity.min(descriptors.limit()), options.losses.clone());
        let reclaimed: Weak<Unsynced<Entry>> = Arc::downgrade(&unsynced);
        descriptors.reclaim_from(reclaimed);
        let tree = Tree {
            root,
            root_path,
            mounts,
            cache,
            unsynced,
            descriptors,
            known_names: NameTable::default(),
            codec,
            identities: Identities::new(codec, options.devices.clone()),
            listings: Arc::default(),
            losses: options.losses.clone(),
            freeing: Arc::clone(&options.freeing),
            modifications,
            snapshots_visible: options.snapshots_visible,
            switches_identity: credentials::can_switch(),
        };
        let tree = Arc::new(tree);
        removed::search(&tree.cache, &tree.freeing);
        if tree.snapshots_visible {
            snapshot_mounts::look_after(&tree);
        }
        let PosixOptions { pool, direct_io, .. } = options;
        Ok(Arc::new(Self { tree, pool, traits, direct_io }))
    }
}

fn root_handle(
    codec: &HandleCodec,
    mount: &Mount,
    fd: &OwnedFd,
    stat: &Statx,
) -> StoreResult<NodeHandle> {
    if mount.kernel_handles {
        let handle = name_to_handle(fd, c"").or_store()?;
        return codec.kernel(mount.key, &handle).ok_or(StoreError::NotSupported);
    }
    in_tree_handle(codec, stat)
}

fn cache_capacity(asked: usize) -> usize {
    let Some(limit) = getrlimit(Resource::Nofile).current else {
        return asked;
    };
    let allowed = usize::try_from(limit / FDS_PER_ENTRY).unwrap_or(usize::MAX);
    if allowed < asked {
        tracing::info!(
            asked,
            allowed,
            "fewer objects are cached than configured: the limit of open files is low"
        );
    }
    asked.min(allowed)
}

fn report(path: &Path, traits: &StoreTraits, mount: &Mount, options: &PosixOptions) {
    let path = path.display();
    if !traits.persistent_handles {
        tracing::warn!(
            %path,
            "file handles are only valid while this process runs: the file system has no kernel \
             handles, or the process lacks CAP_DAC_READ_SEARCH; clients see stale handles after a \
             restart"
        );
    } else if !mount.whole && options.handle_secret.is_none() {
        tracing::warn!(
            %path,
            "a subdirectory of a file system is exported without a handle secret: file handles \
             may become stale when the kernel drops their paths from its cache"
        );
    }
    if !credentials::can_switch() {
        tracing::warn!(
            %path,
            "not running as root: the store checks callers' rights by mode bits, and new files \
             belong to this process's user"
        );
    }
}
