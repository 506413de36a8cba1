//! Opens exports: builds the protocol's namespace and informs the stores of
//! datasets.

use super::dataset::facts::DatasetExport;
use super::settings::{ExportSet, ExportSettings};
use super::stores::{OpenStores, open_store};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use zgate_nfs::namespace::{Export, Namespace, StableNames};
use zgate_posix::PosixOptions;
use zgate_store::FileStore;

/// Opens the exports of a gateway.
///
/// # Errors
/// The export, the reason and the next step.
pub(crate) fn open_exports(
    exports: &ExportSet,
    options: &PosixOptions,
    generation: u64,
    kept: &OpenStores,
) -> io::Result<(Namespace, OpenStores)> {
    let mut opened = Vec::new();
    let mut now = OpenStores::default();
    for export in &exports.exports {
        let id = match export.id {
            Some(number) => zgate_nfs::namespace::ExportId(number),
            None => zgate_nfs::namespace::ExportId::from_pseudo_path(&export.pseudo_path),
        };
        let store = match kept.find(id, export) {
            Some(store) => store,
            None if export.dataset.as_ref().is_some_and(|dataset| dataset.away) => continue,
            None => match open_store(export, id, options, exports.len()) {
                Ok(store) => store,
                // Found by a pattern, not named: it may be gone again.
                Err(error) if export.dataset.is_some() => {
                    tracing::warn!(%error, "cannot export a dataset");
                    continue;
                }
                Err(error) => return Err(error),
            },
        };
        now.add(id, export, &store);
        let store = store.files();
        let store: Arc<dyn FileStore> =
            if export.sync_names { Arc::new(StableNames::over(store)) } else { store };
        opened.push(Arc::new(Export {
            id,
            pseudo_path: export.pseudo_path.clone(),
            source: export.path.display().to_string(),
            store,
            clients: export.clients.clone(),
            read_only: export.read_only,
            max_transfer_bytes: export.max_transfer_bytes,
            versions: export.versions,
            tcp: export.tcp,
            rdma: export.rdma,
            delegations: export.delegations,
            delegated_times: export.delegated_times,
            reserved_port_only: export.reserved_port_only,
        }));
    }
    let namespace = Namespace::new(opened, generation)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
    Ok((namespace.with_absent_clients(exports.pattern_clients.clone()), now))
}

/// Informs the stores of datasets of their mount points.
pub(crate) fn place_datasets(
    exports: &[ExportSettings],
    stores: &OpenStores,
) -> Vec<DatasetExport> {
    let followed = stores.followed();
    let mut views = Vec::new();
    for export in exports {
        let Some(dataset) = &export.dataset else { continue };
        for (_, store) in followed.iter().filter(|(guid, _)| *guid == dataset.guid) {
            if dataset.away {
                store.hold(Duration::ZERO);
            } else {
                store.found_at(&export.path);
            }
            views.push(DatasetExport {
                pseudo_path: export.pseudo_path.clone(),
                dataset: dataset.clone(),
                store: Arc::clone(store),
            });
        }
    }
    views
}
