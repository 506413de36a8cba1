//! Settings of one export, derived from the configuration.

use super::absent::Fault;
use std::io;
use std::path::{Path, PathBuf};
use zgate_config::{DirectChoice, ExportClient, ExportConfig, Rates};
use zgate_control::DatasetName;
use zgate_nfs::namespace::ExportId;
use zgate_nfs::namespace::export::Versions;
use zgate_posix::DirectIo;

/// Dataset that an export follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DatasetRef {
    /// Its name.
    pub name: DatasetName,
    /// Its identity.
    pub guid: u64,
    /// Set if not mounted, or held: clients are told to retry.
    pub away: bool,
}

/// Exports to be opened, and the hosts that may come for others later.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExportSet {
    pub exports: Vec<ExportSettings>,
    /// Client entries of patterns of datasets: these hosts are clients while no
    /// dataset matches, too, and are told that a file handle is stale.
    pub pattern_clients: Vec<ExportClient>,
    /// Set while there may be others that are not known yet: clients are told to retry
    /// instead.
    pub incomplete: bool,
}

impl std::ops::Deref for ExportSet {
    type Target = [ExportSettings];

    fn deref(&self) -> &[ExportSettings] {
        &self.exports
    }
}

/// An export to be opened.
#[derive(Clone, Debug)]
pub(crate) struct ExportSettings {
    pub path: PathBuf,
    pub pseudo_path: String,
    pub id: Option<u32>,
    pub clients: Vec<ExportClient>,
    pub read_only: bool,
    pub max_transfer_bytes: u32,
    pub versions: Versions,
    pub tcp: bool,
    pub rdma: bool,
    pub delegations: bool,
    pub delegated_times: bool,
    pub sync_names: bool,
    pub reserved_port_only: bool,
    pub snapshots_visible: bool,
    pub direct_io: DirectIo,
    pub rates: Rates,
    /// Dataset that it follows, if any.
    pub dataset: Option<DatasetRef>,
}

impl ExportSettings {
    /// Returns its number.
    pub(crate) fn number(&self) -> ExportId {
        self.id.map_or_else(|| ExportId::from_pseudo_path(&self.pseudo_path), ExportId)
    }
}

/// Returns the settings of one export; without a path if it selects datasets.
pub(crate) fn export(export: &ExportConfig) -> ExportSettings {
    let has = |list: &[String], value: &str| list.iter().any(|item| item == value);
    ExportSettings {
        path: export.path.clone().unwrap_or_default(),
        pseudo_path: export.pseudo.clone(),
        id: export.fsid,
        clients: export.clients.clone(),
        read_only: export.read_only,
        max_transfer_bytes: export.max_transfer.0 as u32,
        versions: Versions {
            v3: has(&export.versions, "3"),
            v4: ["4.0", "4.1", "4.2"].map(|version| has(&export.versions, version)),
        },
        tcp: has(&export.transports, "tcp"),
        rdma: has(&export.transports, "rdma"),
        delegations: export.delegations,
        delegated_times: export.delegated_times,
        sync_names: export.sync_names,
        reserved_port_only: export.require_reserved_port,
        snapshots_visible: export.snapshots_visible,
        direct_io: match export.direct_io {
            DirectChoice::Auto => DirectIo::Auto,
            DirectChoice::Always => DirectIo::Always,
            DirectChoice::Never => DirectIo::Never,
        },
        rates: export.rates(),
        dataset: None,
    }
}

/// Returns the next step for a directory that cannot be read.
pub(crate) fn next_step_for_directory(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "create or mount it, or correct the path",
        io::ErrorKind::NotADirectory => "export the directory it lies in",
        io::ErrorKind::PermissionDenied => "run as a user who can read it",
        _ => "check its file system",
    }
}

/// Reads a directory that is to be exported. Blocks.
///
/// # Errors
/// The reason and the next step.
pub(crate) fn check_directory(path: &Path) -> Result<(), Fault> {
    std::fs::read_dir(path).map(drop).map_err(|error| {
        let next_step = next_step_for_directory(&error);
        Fault::absent(format!("cannot read {}: {error}", path.display()), next_step)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_without_clients_admits_nobody() {
        let text = "[[export]]\npath = \"/tmp\"\npseudo = \"/t\"\n";
        let config = zgate_config::parse(text, std::path::Path::new("x")).unwrap();
        assert!(export(&config.exports[0]).clients.is_empty());
    }
}
