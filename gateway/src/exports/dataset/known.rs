//! Known state of the datasets behind exports and logical units, for display.
//! Read without waiting; updated in the background.

use super::store::DatasetTree;
use crate::exports::settings::DatasetRef;
use serde::Serialize;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use utoipa::ToSchema;
use zgate_control::{Dataset, DatasetKind, DatasetName};

/// Datasets at the time of the last query.
#[derive(Debug, Default)]
pub(crate) struct KnownDatasets {
    datasets: RwLock<Arc<Vec<Dataset>>>,
    followed: RwLock<Vec<DatasetExport>>,
}

/// An export that follows a dataset.
#[derive(Debug)]
pub(crate) struct DatasetExport {
    pub pseudo_path: String,
    pub dataset: DatasetRef,
    pub store: Arc<DatasetTree>,
}

/// Properties that determine the behaviour of an export or a logical unit.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct DatasetProperties {
    name: String,
    guid: u64,
    sync: String,
    logbias: String,
    compression: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    recordsize_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    volblocksize_bytes: Option<u64>,
    special_small_blocks_bytes: u64,
    pub used_bytes: u64,
    pub available_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    quota_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refquota_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reservation_bytes: Option<u64>,
    readonly: bool,
    encrypted: bool,
    key_loaded: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
}

impl KnownDatasets {
    /// Stores the datasets found.
    pub(crate) fn set(&self, datasets: Vec<Dataset>) {
        *self.datasets.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(datasets);
    }

    fn all(&self) -> Arc<Vec<Dataset>> {
        Arc::clone(&self.datasets.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Stores the exports that follow a dataset.
    pub(crate) fn set_followed(&self, followed: Vec<DatasetExport>) {
        *self.followed.write().unwrap_or_else(PoisonError::into_inner) = followed;
    }

    /// Returns the dataset of an export, and its use if it is followed:
    /// `in-use`, `idle` or `away`.
    pub(crate) fn of_export(
        &self,
        pseudo_path: &str,
        path: &Path,
    ) -> (Option<DatasetProperties>, Option<&'static str>) {
        self.of_export_by(pseudo_path, path, is_on)
    }

    /// The same, with the question to the file system: whether a path is on a dataset.
    fn of_export_by(
        &self,
        pseudo_path: &str,
        path: &Path,
        is_on: impl FnOnce(&Path, &Dataset) -> bool,
    ) -> (Option<DatasetProperties>, Option<&'static str>) {
        let Some((guid, store)) = self.followed_at(pseudo_path) else {
            return (self.of_path_by(path, is_on), None);
        };
        let all = self.all();
        let dataset = all.iter().find(|dataset| dataset.guid == guid);
        (dataset.map(DatasetProperties::of), Some(store.condition()))
    }

    /// Returns the dataset that an export follows, and its store; holds no lock. Its
    /// caller may ask a file system that hangs, and would keep a reload waiting, and
    /// with it everybody who asks after that.
    fn followed_at(&self, pseudo_path: &str) -> Option<(u64, Arc<DatasetTree>)> {
        let followed = self.followed.read().unwrap_or_else(PoisonError::into_inner);
        let export = followed.iter().find(|export| export.pseudo_path == pseudo_path)?;
        Some((export.dataset.guid, Arc::clone(&export.store)))
    }

    /// Returns the dataset that contains a path.
    fn of_path_by(
        &self,
        path: &Path,
        is_on: impl FnOnce(&Path, &Dataset) -> bool,
    ) -> Option<DatasetProperties> {
        let all = self.all();
        let mounted = all.iter().filter_map(|dataset| Some((dataset.mounted_at()?, dataset)));
        let around = mounted.filter(|(point, _)| path.starts_with(point));
        let nearest = around.max_by_key(|(point, _)| point.components().count())?;
        // Another file system may be mounted in between; the kernel knows.
        is_on(path, nearest.1).then(|| DatasetProperties::of(nearest.1))
    }

    /// Returns the zvol of a device.
    pub(crate) fn of_device(&self, device: &Path) -> Option<DatasetProperties> {
        let name = DatasetName::of_device(device)?;
        let all = self.all();
        all.iter().find(|dataset| dataset.name == name).map(DatasetProperties::of)
    }
}

/// Returns whether `path` is on the dataset's file system: it has the same
/// device number as its mount point.
fn is_on(path: &Path, dataset: &Dataset) -> bool {
    use std::os::unix::fs::MetadataExt;
    let device = |path: &Path| std::fs::metadata(path).map(|found| found.dev()).ok();
    let point = dataset.mounted_at();
    point.is_some_and(|point| device(point).is_some() && device(point) == device(path))
}

impl DatasetProperties {
    /// Returns the warning about a property that loses data.
    pub(crate) fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    fn of(dataset: &Dataset) -> Self {
        let (recordsize_bytes, volblocksize_bytes) = match &dataset.kind {
            DatasetKind::Filesystem { recordsize_bytes, .. } => (Some(*recordsize_bytes), None),
            DatasetKind::Volume { volblocksize_bytes, .. } => (None, Some(*volblocksize_bytes)),
        };
        Self {
            name: dataset.name.to_string(),
            guid: dataset.guid,
            sync: dataset.sync.to_string(),
            logbias: dataset.logbias.to_string(),
            compression: dataset.compression.clone(),
            recordsize_bytes,
            volblocksize_bytes,
            special_small_blocks_bytes: dataset.special_small_blocks_bytes,
            used_bytes: dataset.used_bytes,
            available_bytes: dataset.available_bytes,
            quota_bytes: dataset.quota_bytes,
            refquota_bytes: dataset.refquota_bytes,
            reservation_bytes: dataset.reservation_bytes.or(dataset.refreservation_bytes),
            readonly: dataset.readonly,
            encrypted: dataset.encryption.is_some(),
            key_loaded: !dataset.is_locked(),
            warning: dataset.loses_sync_writes().then(|| sync_warning(dataset.name.as_str())),
        }
    }
}

/// Warns of the consequence of `sync=disabled`.
fn sync_warning(name: &str) -> String {
    format!(
        "sync=disabled: acknowledged stable writes are lost when this machine stops unexpectedly; \
         `zfs inherit sync {name}` makes it safe"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use zgate_control::OutputForm;

    #[test]
    fn a_file_system_that_hangs_keeps_no_change_waiting() {
        let line = "tank\tfilesystem\t7\t1\t10\t90\t10\t131072\t-\t-\tstandard\tlatency\tlz4\t0\t0\t0\t0\t0\toff\thidden\toff\t-\ton\tyes\t/\n";
        let known = KnownDatasets::default();
        known.set(zgate_control::datasets::parse(OutputForm::Columns, line).unwrap());
        let asks = |_: &Path, _: &Dataset| {
            // What a change of the exports and a look at the datasets need.
            known.followed.try_write().is_ok() && known.datasets.try_write().is_ok()
        };
        let (dataset, condition) = known.of_export_by("/data", Path::new("/srv"), asks);
        assert_eq!((dataset.map(|dataset| dataset.guid), condition), (Some(7), None));
    }

    #[test]
    fn a_dataset_that_loses_writes_is_named_as_such() {
        let line = "tank\tfilesystem\t7\t1\t10\t90\t10\t131072\t-\t-\tdisabled\tlatency\tlz4\t0\t0\t0\t0\t0\toff\thidden\toff\t-\ton\tyes\t/\n";
        let volume = "tank/v\tvolume\t8\t1\t10\t90\t10\t-\t16384\t65536\talways\tlatency\toff\t0\t-\t-\t0\t0\toff\t-\toff\t-\t-\t-\t-\n";
        let text = format!("{line}{volume}");
        let known = KnownDatasets::default();
        known.set(zgate_control::datasets::parse(OutputForm::Columns, &text).unwrap());
        let root = known.of_path_by(Path::new("/"), is_on).unwrap();
        assert!(root.warning.unwrap().starts_with("sync=disabled"));
        let volume = known.of_device(Path::new("/dev/zvol/tank/v")).unwrap();
        assert_eq!((volume.warning, volume.volblocksize_bytes), (None, Some(16_384)));
        assert!(known.of_path_by(Path::new("/proc/self"), is_on).is_none(), "another file system");
        assert!(known.of_device(Path::new("/dev/sda")).is_none());
    }
}
