//! The stores of the exports: opened once, kept over reloads.

use super::run::ExportSettings;
use sha2::{Digest, Sha256};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use zgate_nfs::namespace::ExportId;
use zgate_posix::{PosixOptions, PosixStore};

/// What makes two exports share a store: the same tree under the same number,
/// shown in the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    id: ExportId,
    path: PathBuf,
    snapshots_visible: bool,
}

impl Key {
    fn of(id: ExportId, export: &ExportSettings) -> Self {
        Self { id, path: export.path.clone(), snapshots_visible: export.snapshots_visible }
    }
}

/// Stores by export. A reload that leaves an export's tree alone keeps its
/// store, and with it open files, change numbers and handles.
#[derive(Default)]
pub(super) struct OpenStores(Vec<(Key, Arc<PosixStore>)>);

impl OpenStores {
    pub(super) fn find(&self, id: ExportId, export: &ExportSettings) -> Option<Arc<PosixStore>> {
        let key = Key::of(id, export);
        self.0.iter().find(|(known, _)| *known == key).map(|(_, store)| Arc::clone(store))
    }

    pub(super) fn add(&mut self, id: ExportId, export: &ExportSettings, store: &Arc<PosixStore>) {
        self.0.push((Key::of(id, export), Arc::clone(store)));
    }
}

/// The part of the limit of open files that all stores together may keep.
const DESCRIPTOR_SHARE: usize = 3;

/// Opens an export's tree.
///
/// # Errors
/// Naming the export, the reason and the next step.
pub(super) fn open_store(
    export: &ExportSettings,
    id: ExportId,
    options: &PosixOptions,
    exports: usize,
) -> io::Result<Arc<PosixStore>> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let limit = limit.map_or(usize::MAX, |limit| limit as usize);
    let options = PosixOptions {
        snapshots_visible: export.snapshots_visible,
        handle_secret: options.handle_secret.map(|secret| secret_of(secret, id)),
        fd_cache_entries: options
            .fd_cache_entries
            .min(limit / DESCRIPTOR_SHARE / exports.max(1))
            .max(64),
        ..options.clone()
    };
    PosixStore::open(&export.path, options).map_err(|error| {
        let reason = format!("export {}: {error}", export.pseudo_path);
        io::Error::new(io::ErrorKind::InvalidInput, reason)
    })
}

/// Each export signs its handles with a secret of its own: a handle of one
/// export under another's number is no handle, even where both lie on one file
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
    fn exports_do_not_share_secrets() {
        let secret = [7; 16];
        assert_ne!(secret_of(secret, ExportId(1)), secret_of(secret, ExportId(2)));
        assert_eq!(secret_of(secret, ExportId(1)), secret_of(secret, ExportId(1)));
    }
}
