//! Content that a volume begins with: a volume, another dataset or a snapshot, of which it is
//! made as a clone.

use super::fault::{Fault, VolumeError};
use super::kind::VolumeKind;
use super::record::{OWNER, VOLUME, read};
use super::snapshot::{SIZE, SNAPSHOT, TEMPORARY};
use crate::name::{DatasetName, SnapshotName};
use crate::tool::Tool;
use std::fmt;

/// Origin of a clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The present content of a file system or zvol.
    Dataset(DatasetName),
    /// A snapshot.
    Snapshot(SnapshotName),
}

/// Returns the least size of a clone in bytes, and checks that its origin is there, of this
/// kind, and a volume of this owner or a snapshot that is listed of one. Without an owner, it
/// may be any dataset or snapshot.
///
/// # Errors
/// [`Fault::NotFound`], [`Fault::Invalid`] for another kind, [`Fault::Forbidden`] for another
/// owner's; the error of `zfs`.
pub(super) fn least_bytes(
    tool: &dyn Tool,
    origin: &Origin,
    owner: Option<&str>,
    kind: VolumeKind,
) -> Result<u64, VolumeError> {
    match (origin, owner) {
        (Origin::Snapshot(snapshot), _) => snapshot_size(tool, snapshot, owner, kind),
        (Origin::Dataset(dataset), None) => dataset_size(tool, dataset, kind),
        (Origin::Dataset(dataset), Some(owner)) => {
            let volume = read(tool, dataset)?.ok_or_else(|| absent(dataset))?;
            volume.check_owner(owner)?;
            match volume.kind {
                same if same == kind => Ok(volume.size_bytes),
                VolumeKind::Filesystem => Err(other_kind(dataset, "filesystem")),
                VolumeKind::Block => Err(other_kind(dataset, "volume")),
            }
        }
    }
}

/// Returns the size of a dataset that need not be a volume.
fn dataset_size(
    tool: &dyn Tool,
    origin: &DatasetName,
    kind: VolumeKind,
) -> Result<u64, VolumeError> {
    let arguments = ["list", "-Hp", "-o", "type,refquota,volsize", origin.as_str()];
    let text = match tool.run("zfs", &arguments) {
        Err(error) if error.is_absent() => return Err(absent(origin)),
        text => text?,
    };
    let fields: Vec<_> = text.trim_end().split('\t').collect();
    let number = |index: usize| fields.get(index).map_or(0, |text| number(text));
    match (fields[0], kind) {
        ("filesystem", VolumeKind::Filesystem) => Ok(number(1)),
        ("volume", VolumeKind::Block) => Ok(number(2)),
        (found, _) => Err(other_kind(origin, found)),
    }
}

/// A volume or a snapshot.
struct Row<'a> {
    name: &'a str,
    owner: &'a str,
    /// Name of the volume; that of the dataset unless somebody has renamed it.
    volume: &'a str,
    is_listed: bool,
    /// `-` for file systems and their snapshots.
    volsize: &'a str,
    /// Recorded size, in bytes.
    size_bytes: u64,
    /// Space of the content, in bytes.
    referenced_bytes: u64,
}

impl<'a> Row<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let fields: Vec<&str> = line.split('\t').collect();
        let &[name, owner, volume, snapshot, temporary, deferred, volsize, size, referenced] =
            fields.as_slice()
        else {
            return None;
        };
        let is_going = temporary != "-" || deferred == "on";
        Some(Self {
            name,
            owner,
            volume,
            is_listed: snapshot != "-" && !is_going,
            volsize,
            size_bytes: number(size),
            referenced_bytes: number(referenced),
        })
    }
}

/// Asks about a snapshot, and with an owner by the same command about its volume. The volume may
/// have grown since: its size says nothing of the clone.
fn snapshot_size(
    tool: &dyn Tool,
    origin: &SnapshotName,
    owner: Option<&str>,
    kind: VolumeKind,
) -> Result<u64, VolumeError> {
    let dataset = origin.dataset();
    let columns = format!(
        "name,{OWNER},{VOLUME},{SNAPSHOT},{TEMPORARY},defer_destroy,volsize,{SIZE},referenced"
    );
    let types = "filesystem,volume,snapshot";
    let mut arguments = vec!["list", "-Hp", "-t", types, "-o", columns.as_str()];
    arguments.extend(owner.map(|_| dataset.as_str()));
    arguments.push(origin.as_str());
    // It prints neither if one is not there.
    let text = match tool.run("zfs", &arguments) {
        Err(error) if error.is_absent() => String::new(),
        text => text?,
    };
    let row = |name: &str| text.lines().filter_map(Row::parse).find(|row| row.name == name);
    if let Some(owner) = owner {
        let is_its = |row: Row<'_>| {
            let part = dataset.as_str().rsplit('/').next();
            row.owner == owner && part == Some(row.volume)
        };
        // Another answer tells why, and also if the pool is elsewhere.
        if !row(dataset.as_str()).is_some_and(is_its) {
            read(tool, &dataset)?.ok_or_else(|| absent(origin))?.check_owner(owner)?;
        }
    }
    let found = row(origin.as_str()).filter(|row| owner.is_none() || row.is_listed);
    let Some(row) = found else { return Err(absent(origin)) };
    // Only that of a zvol has a size in ZFS.
    match (row.volsize, kind) {
        // Without a recorded quota of that time: ZFS takes none below the content.
        ("-", VolumeKind::Filesystem) if row.size_bytes == 0 => Ok(row.referenced_bytes),
        ("-", VolumeKind::Filesystem) => Ok(row.size_bytes),
        ("-", VolumeKind::Block) => Err(other_kind(origin, "snapshot of a filesystem")),
        (size, VolumeKind::Block) => Ok(number(size)),
        (_, VolumeKind::Filesystem) => Err(other_kind(origin, "snapshot of a volume")),
    }
}

fn absent(origin: &dyn fmt::Display) -> VolumeError {
    VolumeError::new(Fault::NotFound, format!("there is no source {origin}"), "check its name")
}

/// Reads a field that is a number; 0 if it is none.
fn number(text: &str) -> u64 {
    text.parse().unwrap_or(0)
}

fn other_kind(origin: &dyn fmt::Display, found: &str) -> VolumeError {
    VolumeError::invalid(
        format!("source {origin} is a {found}, and the volume is to be another kind"),
        "ask for the kind of the source",
    )
}
