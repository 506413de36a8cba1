//! File systems and volumes with the properties that matter for serving them
//! (zfsprops(7)).

use crate::name::DatasetName;
use crate::properties::{
    KeyStatus, LogBias, OutputForm, Properties, SnapDir, SyncMode, ask, json_object, not_understood,
};
use crate::tool::{Tool, ToolError};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Properties requested of each dataset. The mount point comes last: it is the
/// one value that may contain a tab.
const COLUMNS: [&str; 25] = [
    "name",
    "type",
    "guid",
    "createtxg",
    "used",
    "available",
    "referenced",
    "recordsize",
    "volblocksize",
    "volsize",
    "sync",
    "logbias",
    "compression",
    "special_small_blocks",
    "quota",
    "refquota",
    "reservation",
    "refreservation",
    "readonly",
    "snapdir",
    "encryption",
    "keystatus",
    "canmount",
    "mounted",
    "mountpoint",
];

/// A file system or a volume.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "type")]
pub enum DatasetKind {
    /// A file system.
    Filesystem {
        /// Largest block of a file, in bytes.
        recordsize_bytes: u64,
        /// Set if it is mounted now.
        mounted: bool,
        /// Its mount point, mounted or not; none for `none` and `legacy`.
        mountpoint: Option<PathBuf>,
        /// Set if `zfs mount -a` mounts it: not with `canmount=off`.
        can_mount: bool,
        /// Visibility of `.zfs`.
        snapdir: SnapDir,
    },
    /// A block device.
    Volume {
        /// Its size in bytes.
        volsize_bytes: u64,
        /// Its block size in bytes.
        volblocksize_bytes: u64,
    },
}

/// A dataset and its properties.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Dataset {
    /// Its name.
    pub name: DatasetName,
    /// Identity of the dataset: unchanged by a rename, different after it is
    /// destroyed and created anew.
    pub guid: u64,
    /// Transaction group of its creation.
    pub createtxg: u64,
    /// File system or volume, with the properties of either.
    #[serde(flatten)]
    pub kind: DatasetKind,
    /// Space used by the dataset and everything below it, in bytes.
    pub used_bytes: u64,
    /// Space it may still use, in bytes.
    pub available_bytes: u64,
    /// Data it refers to, in bytes.
    pub referenced_bytes: u64,
    /// Treatment of synchronous writes.
    pub sync: SyncMode,
    /// Optimisation of the intent log.
    pub logbias: LogBias,
    /// Compression algorithm, `off` for none.
    pub compression: String,
    /// Largest block that is stored on special vdevs, in bytes; 0: none.
    pub special_small_blocks_bytes: u64,
    /// Limit including everything below, in bytes.
    pub quota_bytes: Option<u64>,
    /// Limit without snapshots and children, in bytes.
    pub refquota_bytes: Option<u64>,
    /// Guaranteed space with everything below, in bytes.
    pub reservation_bytes: Option<u64>,
    /// Guaranteed space without snapshots and children, in bytes.
    pub refreservation_bytes: Option<u64>,
    /// Set if modifications are refused.
    pub readonly: bool,
    /// Cipher; none if the dataset is not encrypted.
    pub encryption: Option<String>,
    /// State of its key.
    pub keystatus: KeyStatus,
}

impl Dataset {
    /// Returns its current mount point; none for volumes and unmounted file
    /// systems.
    #[must_use]
    pub fn mounted_at(&self) -> Option<&std::path::Path> {
        match &self.kind {
            DatasetKind::Filesystem { mounted: true, mountpoint, .. } => mountpoint.as_deref(),
            _ => None,
        }
    }

    /// Returns whether it is a file system.
    #[must_use]
    pub fn is_filesystem(&self) -> bool {
        matches!(self.kind, DatasetKind::Filesystem { .. })
    }

    /// Returns whether it is a volume.
    #[must_use]
    pub fn is_volume(&self) -> bool {
        matches!(self.kind, DatasetKind::Volume { .. })
    }

    /// Returns the block device of a volume.
    #[must_use]
    pub fn device(&self) -> Option<PathBuf> {
        self.is_volume().then(|| self.name.device())
    }

    /// Returns whether acknowledged synchronous writes can be lost.
    #[must_use]
    pub fn loses_sync_writes(&self) -> bool {
        self.sync == SyncMode::Disabled
    }

    /// Returns whether its data cannot be read because its key is not loaded.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.keystatus == KeyStatus::Unavailable
    }

    /// Reads a dataset from all its properties, as `zfs get all` prints them.
    ///
    /// # Errors
    /// [`ToolError::Answer`] with the property that is not there.
    pub(crate) fn of_all(name: &str, all: &BTreeMap<String, String>) -> Result<Self, ToolError> {
        // ZFS has them of each dataset: one that was not read has a line break in its value.
        let of_file_systems: &[&str] = match all.get("type").map(String::as_str) {
            Some("filesystem") => &["canmount", "mounted", "mountpoint"],
            _ => &[],
        };
        let mut needed = ["readonly"].iter().chain(of_file_systems);
        if let Some(untold) = needed.find(|property| !all.contains_key(**property)) {
            return Err(not_understood("zfs", "get", format!("dataset {name}: no {untold}")));
        }
        let mut properties = Properties::default();
        for (column, value) in COLUMNS.iter().filter_map(|one| all.get_key_value(*one)) {
            properties.set(column, value);
        }
        properties.set("name", name);
        Self::of(&properties).map_err(|reason| not_understood("zfs", "get", reason))
    }

    fn of(properties: &Properties) -> Result<Self, String> {
        let name = properties.text("name").ok_or("a dataset without name")?;
        let need = |key: &str| {
            properties.number(key).ok_or_else(|| format!("dataset {name}: no number for {key}"))
        };
        let kind = match properties.text("type") {
            Some("volume" | "VOLUME") => DatasetKind::Volume {
                volsize_bytes: need("volsize")?,
                volblocksize_bytes: need("volblocksize")?,
            },
            Some("filesystem" | "FILESYSTEM") => DatasetKind::Filesystem {
                recordsize_bytes: need("recordsize")?,
                mounted: properties.is_on("mounted"),
                mountpoint: properties
                    .text("mountpoint")
                    .filter(|path| path.starts_with('/'))
                    .map(PathBuf::from),
                can_mount: properties.text("canmount") != Some("off"),
                snapdir: SnapDir::of(properties, "snapdir"),
            },
            other => return Err(format!("dataset {name}: type {other:?}")),
        };
        Ok(Self {
            name: name.parse().map_err(|error| format!("{error}"))?,
            guid: need("guid")?,
            createtxg: need("createtxg")?,
            kind,
            used_bytes: need("used")?,
            available_bytes: need("available")?,
            referenced_bytes: need("referenced")?,
            sync: SyncMode::of(properties, "sync"),
            logbias: LogBias::of(properties, "logbias"),
            compression: properties.text("compression").unwrap_or("off").to_owned(),
            special_small_blocks_bytes: properties.number("special_small_blocks").unwrap_or(0),
            quota_bytes: properties.limit("quota"),
            refquota_bytes: properties.limit("refquota"),
            reservation_bytes: properties.limit("reservation"),
            refreservation_bytes: properties.limit("refreservation"),
            readonly: properties.is_on("readonly"),
            encryption: properties
                .text("encryption")
                .filter(|cipher| *cipher != "off")
                .map(str::to_owned),
            keystatus: KeyStatus::of(properties, "keystatus"),
        })
    }
}

/// Datasets to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope<'a> {
    /// All datasets of all pools.
    All,
    /// This dataset.
    One(&'a DatasetName),
    /// This dataset and everything below it.
    Below(&'a DatasetName),
}

/// Lists datasets, sorted by name.
///
/// # Errors
/// See [`ToolError`]; [`ToolError::is_absent`] if the scope's dataset does not
/// exist.
pub fn list(
    tool: &dyn Tool,
    form: OutputForm,
    scope: Scope<'_>,
) -> Result<Vec<Dataset>, ToolError> {
    let columns = COLUMNS.join(",");
    let mut arguments = vec!["list", "{form}", "-t", "filesystem,volume", "-o", &columns];
    match scope {
        Scope::All => {}
        Scope::One(name) => arguments.push(name.as_str()),
        Scope::Below(name) => arguments.extend(["-r", name.as_str()]),
    }
    parse(form, &ask(tool, form, "zfs", &arguments)?)
}

/// Parses the output of `zfs list`.
///
/// # Errors
/// [`ToolError::Answer`].
pub fn parse(form: OutputForm, output: &str) -> Result<Vec<Dataset>, ToolError> {
    let wrong = |reason: String| not_understood("zfs", "list", reason);
    let mut found = match form {
        OutputForm::Json => parse_json(output)?,
        OutputForm::Columns => output
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with("no datasets"))
            .map(|line| {
                let properties = Properties::from_columns(&COLUMNS, line).ok_or_else(|| {
                    wrong(format!("{} columns expected: {line:?}", COLUMNS.len()))
                })?;
                Dataset::of(&properties).map_err(wrong)
            })
            .collect::<Result<Vec<_>, _>>()?,
    };
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

fn parse_json(output: &str) -> Result<Vec<Dataset>, ToolError> {
    let wrong = |reason: String| not_understood("zfs", "list", reason);
    let mut found = Vec::new();
    for (name, dataset) in json_object("zfs", "list", output, "datasets")? {
        let mut properties = Properties::from_json(&dataset["properties"]);
        // The identifying fields stand beside the properties.
        properties.set("name", &name);
        for key in ["type", "createtxg"] {
            match &dataset[key] {
                serde_json::Value::String(text) => properties.set(key, text),
                serde_json::Value::Number(number) => properties.set(key, &number.to_string()),
                _ => {}
            }
        }
        found.push(Dataset::of(&properties).map_err(wrong)?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::OutputForm::{Columns, Json};

    fn columns() -> String {
        let file = "tank/models\tfilesystem\t8113240321\t17\t98304\t1000000\t98304\t1048576\t-\t-\tdisabled\tthroughput\tlz4\t32768\t0\t500000\t0\t0\toff\tvisible\taes-256-gcm\tavailable\ton\tyes\t/tank/models\n";
        let volume = "tank/vm\tvolume\t18446744073709551615\t40\t5000\t1000000\t4096\t-\t16384\t1073741824\talways\tlatency\toff\t-\t-\t-\t0\t1073741824\ton\t-\toff\t-\t-\t-\t-\n";
        format!("{volume}{file}")
    }

    fn json() -> String {
        let property = |text: &str| serde_json::json!({"value": text, "source": {"type": "NONE", "data": "-"}});
        let mut datasets = serde_json::Map::new();
        for line in columns().lines() {
            let values: Vec<&str> = line.split('\t').collect();
            let mut properties = serde_json::Map::new();
            for (name, value) in COLUMNS.iter().zip(&values).filter(|(name, _)| **name != "name") {
                properties.insert((*name).into(), property(value));
            }
            datasets.insert(
                values[0].into(),
                serde_json::json!({
                    "name": values[0], "type": values[1].to_uppercase(), "pool": "tank",
                    "createtxg": values[3], "properties": properties,
                }),
            );
        }
        let version = serde_json::json!({"command": "zfs list", "vers_major": 0, "vers_minor": 1});
        serde_json::json!({"output_version": version, "datasets": datasets}).to_string()
    }

    #[test]
    fn both_forms_tell_the_same() {
        let found = parse(Columns, &columns()).unwrap();
        assert_eq!(parse(Json, &json()).unwrap(), found);
        let [models, vm] = &found[..] else { panic!("two, sorted") };
        assert_eq!(models.mounted_at(), Some(std::path::Path::new("/tank/models")));
        assert!(models.loses_sync_writes() && !models.is_locked());
        assert_eq!((models.quota_bytes, models.refquota_bytes), (None, Some(500_000)));
        assert_eq!(models.encryption.as_deref(), Some("aes-256-gcm"));
        assert_eq!(vm.device(), Some(PathBuf::from("/dev/zvol/tank/vm")));
        assert_eq!(vm.guid, u64::MAX, "guids have 64 bits");
        assert!(vm.readonly && vm.mounted_at().is_none());
        let DatasetKind::Volume { volsize_bytes, volblocksize_bytes } = vm.kind else {
            panic!("a volume")
        };
        assert_eq!((volsize_bytes, volblocksize_bytes), (1 << 30, 16 << 10));
    }

    #[test]
    fn nothing_there_and_nonsense_are_told_apart() {
        for empty in ["", "no datasets available\n"] {
            assert!(parse(Json, empty).unwrap().is_empty());
            assert!(parse(Columns, empty).unwrap().is_empty());
        }
        assert!(parse(Json, "{}").is_err());
        assert!(parse(Json, "{").is_err());
        assert!(parse(Columns, "a\tb\n").is_err());
        let dash = columns().replace("8113240321", "-");
        assert!(parse(Columns, &dash).unwrap_err().to_string().contains("guid"));
    }
}
