//! Records of staged volumes, one file each: an unstage gets only the id of a
//! volume, and the driver may have been restarted since.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A staged volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) volume_id: String,
    pub(crate) staging: PathBuf,
    /// The pods use the device itself.
    pub(crate) is_raw: bool,
    pub(crate) read_only: bool,
    /// Source of the mount, of a volume over NFS.
    pub(crate) nfs_path: Option<String>,
    pub(crate) disk: Option<DiskRecord>,
    /// Target paths and true for those that are read-only.
    pub(crate) published: BTreeMap<PathBuf, bool>,
}

/// The disk of a volume over iSCSI.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DiskRecord {
    pub(crate) target: String,
    pub(crate) naa: String,
    /// File system on it; none for raw devices.
    pub(crate) filesystem: Option<String>,
}

impl Record {
    /// Returns whether a stage that wants this goes on with what an earlier one has begun.
    pub(crate) fn is_of_same_stage(&self, wanted: &Self) -> bool {
        let is_same_disk = match (&self.disk, &wanted.disk) {
            (Some(own), Some(other)) => own.target == other.target && own.naa == other.naa,
            (own, other) => own.is_none() && other.is_none(),
        };
        is_same_disk
            && self.staging == wanted.staging
            && self.is_raw == wanted.is_raw
            && self.read_only == wanted.read_only
    }
}

/// Directory of the records.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    dir: PathBuf,
}

impl Records {
    pub(crate) fn new(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        Ok(Self { dir: dir.to_owned() })
    }

    fn path(&self, volume_id: &str) -> PathBuf {
        let digest = Sha256::digest(volume_id.as_bytes());
        let hex: String = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        self.dir.join(format!("{hex}.json"))
    }

    /// Reads a record; none if the volume is not staged.
    pub(crate) fn read(&self, volume_id: &str) -> io::Result<Option<Record>> {
        match fs::read(self.path(volume_id)) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes a record so that a power failure leaves the old one or the new one.
    pub(crate) fn write(&self, record: &Record) -> io::Result<()> {
        let path = self.path(&record.volume_id);
        let new = path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(record)?)?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(&self.dir)?.sync_all()
    }

    pub(crate) fn remove(&self, volume_id: &str) -> io::Result<()> {
        match fs::remove_file(self.path(volume_id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
