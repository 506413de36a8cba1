//! Stores of the exports: opened once, kept over reloads.

use super::absent::Fault;
use super::dataset::forward::DatasetStore;
use super::dataset::store::DatasetTree;
use super::limits::OPEN_PATIENCE;
use super::place::Place;
use super::replaced::ReplacedDatasets;
use super::settings::{ExportSettings, next_step_for_directory};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use zgate_io::mountinfo::MountLine;
use zgate_nfs::namespace::ExportId;
use zgate_posix::{Asleep, DirectIo, Losses, MountedDevices, OpenError, PosixOptions, PosixStore};
use zgate_store::{FileStore, StoreError};

/// Identity of a store: exports with the same tree, number and settings share
/// one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    id: ExportId,
    tree: TreeKey,
    snapshots_visible: bool,
    direct_io: DirectIo,
}

/// Identity of a tree: a followed dataset may be mounted anywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TreeKey {
    Path(PathBuf),
    Dataset(u64),
}

impl Key {
    fn of(id: ExportId, export: &ExportSettings) -> Self {
        let tree = match &export.dataset {
            Some(dataset) => TreeKey::Dataset(dataset.guid),
            None => TreeKey::Path(export.path.clone()),
        };
        let (snapshots_visible, direct_io) = (export.snapshots_visible, export.direct_io);
        Self { id, tree, snapshots_visible, direct_io }
    }
}

/// Store of an export.
#[derive(Clone)]
pub(crate) enum OpenStore {
    /// Store of a path, and its place.
    Fixed(Arc<PosixStore>, Arc<Place>),
    /// Store of a dataset, which it does not keep busy.
    Dataset(Arc<DatasetTree>),
}

impl OpenStore {
    /// Returns the store for the protocols.
    pub(crate) fn files(&self) -> Arc<dyn FileStore> {
        match self {
            Self::Fixed(store, _) => Arc::<PosixStore>::clone(store),
            Self::Dataset(store) => Arc::new(DatasetStore(Arc::clone(store))),
        }
    }
}

/// Stores by export. A reload that does not change an export's tree keeps its
/// store, and with it open files, change numbers and handles.
#[derive(Default)]
pub(crate) struct OpenStores(Vec<(Key, OpenStore)>);

impl OpenStores {
    pub(crate) fn find(&self, id: ExportId, export: &ExportSettings) -> Option<OpenStore> {
        let key = Key::of(id, export);
        let usable = |store: &OpenStore| match store {
            OpenStore::Fixed(_, place) => !place.is_lost(),
            OpenStore::Dataset(store) => store.can_return(),
        };
        let mut known = self.0.iter().filter(|(_, store)| usable(store));
        known.find(|(known, _)| *known == key).map(|(_, store)| store.clone())
    }

    /// Returns the identity of an attempt to open an export.
    pub(crate) fn key(id: ExportId, export: &ExportSettings) -> String {
        format!("{:?} {}", Key::of(id, export), export.path.display())
    }

    pub(crate) fn add(&mut self, id: ExportId, export: &ExportSettings, store: &OpenStore) {
        self.0.push((Key::of(id, export), store.clone()));
    }

    /// Returns the stores of datasets, by their guids.
    pub(crate) fn followed(&self) -> Vec<(u64, Arc<DatasetTree>)> {
        let followed = self.0.iter().filter_map(|(key, store)| match (&key.tree, store) {
            (TreeKey::Dataset(guid), OpenStore::Dataset(store)) => Some((*guid, Arc::clone(store))),
            _ => None,
        });
        followed.collect()
    }

    /// Returns the stores of paths.
    pub(crate) fn fixed(&self) -> Vec<Arc<PosixStore>> {
        let fixed = self.0.iter().filter_map(|(_, store)| match store {
            OpenStore::Fixed(store, _) => Some(Arc::clone(store)),
            OpenStore::Dataset(_) => None,
        });
        fixed.collect()
    }

    /// Notes that the content of datasets may have been replaced, in each store that shows one
    /// and is not of an export that was `told` of it; returns the numbers of their exports.
    /// `mounts`: the mount table; while nobody knows it, any store may show any dataset.
    pub(crate) fn content_replaced(
        &self,
        replaced: &ReplacedDatasets<'_>,
        mounts: Option<&[MountLine]>,
        told: &BTreeSet<ExportId>,
    ) -> BTreeSet<ExportId> {
        let mut concerned = BTreeSet::new();
        let showing = self.showing(replaced, mounts);
        for (key, store) in showing.filter(|(key, _)| !told.contains(&key.id)) {
            match store {
                OpenStore::Fixed(store, _) => store.content_replaced(),
                OpenStore::Dataset(store) => store.content_replaced(),
            }
            concerned.insert(key.id);
        }
        concerned
    }

    /// Returns whether a store shows a dataset.
    pub(crate) fn show_any_dataset(&self, mounts: &[MountLine]) -> bool {
        self.showing(&ReplacedDatasets::Any, Some(mounts)).next().is_some()
    }

    /// Returns the stores that show one of the datasets, alone or among others; all without a
    /// mount table.
    fn showing<'a>(
        &'a self,
        datasets: &'a ReplacedDatasets<'_>,
        mounts: Option<&'a [MountLine]>,
    ) -> impl Iterator<Item = &'a (Key, OpenStore)> {
        let is_unknown = mounts.is_none();
        let mounts: &[MountLine] = mounts.unwrap_or_default();
        let is_concerned =
            move |mount: &MountLine| mount.kind == b"zfs" && datasets.has(&mount.source);
        let points: Vec<&Path> =
            mounts.iter().filter(|mount| is_concerned(mount)).map(point_of).collect();
        let is_below = move |path: &Path| points.iter().any(|point| point.starts_with(path));
        // Of the mounts around a path, the innermost one has it.
        let is_around = move |path: &Path| {
            let around = mounts.iter().filter(|mount| path.starts_with(point_of(mount)));
            around.max_by_key(|mount| mount.point.len()).is_some_and(is_concerned)
        };
        let shows = move |store: &OpenStore| match store {
            OpenStore::Fixed(store, _) => is_below(store.path()) || is_around(store.path()),
            OpenStore::Dataset(store) => {
                store.name().is_some_and(|name| datasets.has(name.as_bytes()))
                    || store.mounted_at().is_some_and(|path| is_below(&path))
            }
        };
        self.0.iter().filter(move |(_, store)| is_unknown || shows(store))
    }

    /// Returns the places of paths.
    pub(crate) fn places(&self) -> Vec<Arc<Place>> {
        let places = self.0.iter().filter_map(|(_, store)| match store {
            OpenStore::Fixed(_, place) => Some(Arc::clone(place)),
            OpenStore::Dataset(_) => None,
        });
        places.collect()
    }
}

fn point_of(mount: &MountLine) -> &Path {
    Path::new(OsStr::from_bytes(&mount.point))
}

/// Most descriptors of a cached object, with few exceptions.
const DESCRIPTORS_PER_OBJECT: usize = 3;

/// Opens an export's tree. Blocks.
///
/// # Errors
/// The reason and the next step: it is absent.
pub(crate) fn open_store(
    export: &ExportSettings,
    id: ExportId,
    options: &PosixOptions,
    exports: usize,
) -> Result<OpenStore, Fault> {
    let options = PosixOptions {
        snapshots_visible: export.snapshots_visible,
        direct_io: export.direct_io,
        dataset: export.dataset.as_ref().map(|dataset| dataset.name.to_string()),
        losses: Losses::default(),
        devices: MountedDevices::default(),
        asleep: Asleep::default(),
        freeing: Arc::default(),
        handle_secret: options.handle_secret.map(|secret| secret_of(secret, id)),
        fd_cache_entries: options
            .fd_cache_entries
            .min(options.descriptors.limit() / DESCRIPTORS_PER_OBJECT / exports.max(1))
            .max(64),
        ..options.clone()
    };
    let opened = match export.dataset {
        Some(_) => DatasetTree::open(&export.path, options).map(OpenStore::Dataset),
        None => PosixStore::open(&export.path, options)
            .map(|store| OpenStore::Fixed(store, Arc::new(Place::of(export.path.clone())))),
    };
    opened.map_err(fault)
}

fn fault(error: OpenError) -> Fault {
    match &error {
        OpenError::Unreachable { path, source } => Fault::absent(
            format!("cannot open {}: {source}", path.display()),
            next_step_for_directory(source),
        ),
        OpenError::NotDirectory(path) => Fault::absent(
            format!("{} is not a directory", path.display()),
            next_step_for_directory(&io::ErrorKind::NotADirectory.into()),
        ),
        OpenError::OtherMount { dataset, .. } => Fault::absent(
            error.to_string(),
            format!("mount it by `zfs mount {dataset}`, at a mount point that nothing else has"),
        ),
        OpenError::Unexaminable {
            path,
            error: refused @ (StoreError::AccessDenied | StoreError::NotPermitted),
        } => Fault::absent(
            // Without the next step that the error has of its own.
            format!("cannot examine the file system of {}: {refused}", path.display()),
            next_step_for_directory(&io::ErrorKind::PermissionDenied.into()),
        ),
        OpenError::Unexaminable { .. } => Fault::absent(error.to_string(), "check its file system"),
    }
}

/// Runs `open` on a separate thread, which is abandoned if it takes too long.
///
/// # Errors
/// If it takes too long, or no thread can be started.
pub(crate) fn in_time<T: Send + 'static>(
    open: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    within(OPEN_PATIENCE, open)
}

fn within<T: Send + 'static>(
    patience: Duration,
    open: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (done, opened) = mpsc::channel();
    std::thread::Builder::new().name("zgate-open".to_owned()).spawn(move || {
        // After the time limit nothing receives the result.
        let _ = done.send(open());
    })?;
    opened.recv_timeout(patience).map_err(|error| match error {
        RecvTimeoutError::Timeout => {
            let reason = format!(
                "the storage has not answered for {} s; check its pool or device, then reload",
                patience.as_secs()
            );
            io::Error::new(io::ErrorKind::TimedOut, reason)
        }
        RecvTimeoutError::Disconnected => io::Error::other("opening it panicked"),
    })
}

/// Derives the secret with which an export signs its handles: a handle of one
/// export is invalid under another's number, even if both lie on one file
/// system.
fn secret_of(secret: [u8; 16], id: ExportId) -> [u8; 16] {
    let digest = Sha256::new().chain_update(secret).chain_update(id.0.to_be_bytes()).finalize();
    let mut own = [0; 16];
    own.copy_from_slice(&digest[..16]);
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_that_does_not_answer_is_not_waited_for() {
        let (answers, asked) = mpsc::channel::<()>();
        let opened = within(Duration::from_millis(1), move || asked.recv());
        assert_eq!(opened.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(answers);
        assert_eq!(in_time(|| 5).unwrap(), 5);
    }

    #[test]
    fn a_dataset_that_is_not_mounted_at_its_path_is_absent() {
        let (path, found) = (PathBuf::from("/tank/a"), "tank/b (zfs)".to_owned());
        let fault = fault(OpenError::OtherMount { path, dataset: "tank/a".to_owned(), found });
        assert!(fault.absent && fault.next_step.contains("zfs mount tank/a"), "{fault}");
        assert!(fault.reason.contains("tank/b (zfs)"), "{fault}");
    }

    #[test]
    fn a_directory_without_rights_has_one_next_step() {
        let error = StoreError::AccessDenied;
        let fault = fault(OpenError::Unexaminable { path: PathBuf::from("/tank/a"), error });
        assert!(fault.absent);
        assert_eq!(
            fault.to_string(),
            "cannot examine the file system of /tank/a: access denied; run as a user who can read it"
        );
    }

    #[test]
    fn exports_do_not_share_secrets() {
        let secret = [7; 16];
        assert_ne!(secret_of(secret, ExportId(1)), secret_of(secret, ExportId(2)));
        assert_eq!(secret_of(secret, ExportId(1)), secret_of(secret, ExportId(1)));
    }
}
