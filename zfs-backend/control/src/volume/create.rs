//! Making a volume, empty or as a clone.

use super::begun::finish;
use super::fault::{Fault, VolumeError};
use super::kind::{VolumeKind, check_name};
use super::properties::{check_properties, zfs_name};
use super::record::{
    Found, OWNER, PENDING, SOURCE, UNCONFIRMED, VOLUME, VolumeRecord, capacity, look, read,
};
use super::snapshot::{SIZE, TEMPORARY, clone_snapshot_name, drop_clone_snapshots};
use crate::name::{DatasetName, SnapshotName};
use crate::tool::{Tool, ToolError};
use std::collections::BTreeMap;
use std::fmt;

/// Origin of a clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The present content of a file system or zvol.
    Dataset(DatasetName),
    /// A snapshot.
    Snapshot(SnapshotName),
}

/// A volume to be made.
#[derive(Clone, Debug)]
pub struct NewVolume {
    /// Its dataset.
    pub dataset: DatasetName,
    /// Its name.
    pub name: String,
    /// Party that it belongs to.
    pub owner: String,
    /// File system or block device.
    pub kind: VolumeKind,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Native properties to set.
    pub properties: BTreeMap<String, String>,
    /// Content; none: empty.
    pub origin: Option<Origin>,
    /// The origin in the words of the request.
    pub source: Option<String>,
    /// Refuses every modification.
    pub read_only: bool,
    /// Time until which it is to be confirmed, in seconds since 1970; none: it
    /// stays.
    pub unconfirmed_until: Option<i64>,
    /// A block device takes space as it is written, not when it is made.
    pub thin: bool,
}

/// A volume that exists as it was asked for.
#[derive(Clone, Debug)]
pub struct Made {
    /// The volume.
    pub volume: VolumeRecord,
    /// Set if it existed before this request.
    pub existed: bool,
}

/// Makes a volume, or finds it as it was asked for. `flush` brings acknowledged
/// writes of an origin to its pool.
///
/// # Errors
/// [`Fault::Exists`] if it exists with other parameters; others see [`Fault`].
pub fn create(
    tool: &dyn Tool,
    new: &NewVolume,
    flush: &mut dyn FnMut(&DatasetName) -> Result<(), VolumeError>,
) -> Result<Made, VolumeError> {
    check_name("volume", &new.name)?;
    check_name("owner", &new.owner)?;
    let properties = new.properties.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    check_properties(properties, new.kind, true)?;
    if new.size_bytes == 0 || i64::try_from(new.size_bytes).is_err() {
        return Err(VolumeError::invalid(
            format!("volume {}: {} bytes is no size", new.dataset, new.size_bytes),
            "ask for 1 byte or more",
        ));
    }
    let mut existed = false;
    match look(tool, &new.dataset)? {
        Found::Volume(volume) => {
            existed = volume.pending_bytes.is_none();
            check_same(new, &volume)?;
        }
        Found::Unmarked(properties) => finish(tool, new, &properties)?,
        Found::Nothing => {
            refuse_beyond_capacity(tool, new)?;
            match &new.origin {
                None => make_empty(tool, new)?,
                Some(origin) => make_clone(tool, new, origin, flush)?,
            }
        }
    }
    let volume = found(tool, new)?;
    if let Some(Origin::Dataset(origin)) = &new.origin {
        // Also those of earlier requests, which a crash has left.
        drop_clone_snapshots(tool, origin, &new.dataset)?;
    }
    let volume = match volume.pending_bytes {
        None => volume,
        Some(bytes) => {
            complete(tool, &volume, bytes)?;
            found(tool, new)?
        }
    };
    Ok(Made { volume, existed })
}

fn found(tool: &dyn Tool, new: &NewVolume) -> Result<VolumeRecord, VolumeError> {
    read(tool, &new.dataset)?.ok_or_else(|| {
        VolumeError::new(
            Fault::Storage,
            format!("volume {}: it was destroyed meanwhile", new.dataset),
            "send the request again",
        )
    })
}

pub(super) fn rounded(bytes: u64, block_bytes: Option<u64>) -> u64 {
    match block_bytes {
        Some(block @ 1..) => bytes.checked_next_multiple_of(block).unwrap_or(bytes),
        _ => bytes,
    }
}

/// Checks that a volume that exists is the one that is asked for.
fn check_same(new: &NewVolume, volume: &VolumeRecord) -> Result<(), VolumeError> {
    volume.check_owner(&new.owner)?;
    let size = volume.pending_bytes.unwrap_or(volume.size_bytes);
    // Written in several forms ("1M", "1048576"), so compared only in size.
    let differs = if volume.kind != new.kind {
        Some("kind")
    } else if rounded(new.size_bytes, volume.block_bytes) != rounded(size, volume.block_bytes) {
        Some("size_bytes")
    } else if volume.source != new.source {
        Some("source")
    } else if volume.read_only != new.read_only {
        Some("read_only")
    } else if new.properties.iter().any(|(name, value)| !volume.has_property(name, value)) {
        Some("properties")
    } else {
        None
    };
    match differs {
        None => Ok(()),
        Some(what) => Err(VolumeError::new(
            Fault::Exists,
            format!("volume {} exists, and differs in {what}", new.dataset),
            "choose another name, or change the volume",
        )),
    }
}

/// Refuses a volume that could never be filled.
fn refuse_beyond_capacity(tool: &dyn Tool, new: &NewVolume) -> Result<(), VolumeError> {
    let Some(parent) = new.dataset.parent() else {
        return Err(VolumeError::invalid("a pool is no volume", "name a parent"));
    };
    let space = capacity(tool, &parent)?;
    if new.size_bytes <= space.total_bytes {
        return Ok(());
    }
    Err(VolumeError::new(
        Fault::NoSpace,
        format!(
            "volume {}: {} bytes are more than {parent} has ({} bytes)",
            new.dataset, new.size_bytes, space.total_bytes
        ),
        "ask for less, or choose another parent",
    ))
}

/// Returns `name=value` for each property of a new dataset.
pub(super) fn settings(new: &NewVolume) -> Vec<String> {
    let mut settings = vec![format!("{OWNER}={}", new.owner), format!("{VOLUME}={}", new.name)];
    settings.extend(match (new.kind, &new.origin) {
        (VolumeKind::Filesystem, _) => Some(format!("refquota={}", new.size_bytes)),
        // A clone begins with the size of its origin.
        (VolumeKind::Block, Some(_)) => Some(format!("{PENDING}={}", new.size_bytes)),
        (VolumeKind::Block, None) => None,
    });
    settings.extend(new.source.as_ref().map(|source| format!("{SOURCE}={source}")));
    settings.extend(new.unconfirmed_until.map(|until| format!("{UNCONFIRMED}={until}")));
    settings.extend(new.read_only.then(|| "readonly=on".to_owned()));
    let properties = new.properties.iter();
    settings.extend(properties.map(|(name, value)| format!("{}={value}", zfs_name(name))));
    settings
}

fn options(new: &NewVolume) -> impl Iterator<Item = String> {
    settings(new).into_iter().flat_map(|setting| ["-o".to_owned(), setting])
}

pub(super) fn run(tool: &dyn Tool, arguments: &[String]) -> Result<(), ToolError> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    tool.run("zfs", &arguments).map(drop)
}

fn make_empty(tool: &dyn Tool, new: &NewVolume) -> Result<(), VolumeError> {
    let mut arguments = vec!["create".to_owned()];
    if new.kind == VolumeKind::Block {
        arguments.extend(new.thin.then(|| "-s".to_owned()));
        // ZFS rounds it up to whole blocks.
        arguments.extend(["-V".to_owned(), new.size_bytes.to_string()]);
    }
    arguments.extend(options(new));
    arguments.push(new.dataset.to_string());
    unless_made(tool, new, run(tool, &arguments))
}

/// Takes an error as success if the dataset exists nevertheless: it was made,
/// but could not be mounted, or `zfs` died after making it.
fn unless_made(
    tool: &dyn Tool,
    new: &NewVolume,
    outcome: Result<(), ToolError>,
) -> Result<(), VolumeError> {
    let Err(error) = outcome else { return Ok(()) };
    match read(tool, &new.dataset) {
        Ok(Some(volume)) => check_same(new, &volume),
        _ => Err(error.into()),
    }
}

fn make_clone(
    tool: &dyn Tool,
    new: &NewVolume,
    origin: &Origin,
    flush: &mut dyn FnMut(&DatasetName) -> Result<(), VolumeError>,
) -> Result<(), VolumeError> {
    let (snapshot, is_temporary) = match origin {
        Origin::Snapshot(snapshot) => (snapshot.clone(), false),
        Origin::Dataset(dataset) => (clone_snapshot_name(dataset)?, true),
    };
    let least = match origin {
        Origin::Snapshot(snapshot) => snapshot_size(tool, snapshot, new.kind)?,
        Origin::Dataset(dataset) => dataset_size(tool, dataset, new.kind)?,
    };
    if new.size_bytes < least {
        return Err(VolumeError::invalid(
            format!("volume {}: its source has {least} bytes, more than it", new.dataset),
            "ask for at least the size of the source",
        ));
    }
    if is_temporary {
        flush(&snapshot.dataset())?;
        take_temporary(tool, &snapshot, new)?;
    }
    let mut arguments = vec!["clone".to_owned()];
    arguments.extend(options(new));
    arguments.extend([snapshot.to_string(), new.dataset.to_string()]);
    unless_made(tool, new, run(tool, &arguments))
}

/// Returns the least size of a clone of the present content, in bytes, and checks that the
/// dataset is of this kind.
fn dataset_size(
    tool: &dyn Tool,
    origin: &DatasetName,
    kind: VolumeKind,
) -> Result<u64, VolumeError> {
    let arguments = ["list", "-Hp", "-o", "type,refquota,volsize", origin.as_str()];
    let text = source_line(tool, &arguments, origin)?;
    let fields: Vec<_> = text.trim_end().split('\t').collect();
    match (fields[0], kind) {
        ("filesystem", VolumeKind::Filesystem) => Ok(number(&fields, 1)),
        ("volume", VolumeKind::Block) => Ok(number(&fields, 2)),
        (found, _) => Err(other_kind(origin, found)),
    }
}

/// Returns the least size of a clone of a snapshot, in bytes, and checks that the snapshot
/// is of this kind. Its dataset may have grown since: that size says nothing of the clone.
fn snapshot_size(
    tool: &dyn Tool,
    origin: &SnapshotName,
    kind: VolumeKind,
) -> Result<u64, VolumeError> {
    let columns = format!("volsize,{SIZE},referenced");
    let arguments = ["list", "-Hp", "-t", "snapshot", "-o", columns.as_str(), origin.as_str()];
    let text = source_line(tool, &arguments, origin)?;
    let fields: Vec<_> = text.trim_end().split('\t').collect();
    match (fields[0], kind) {
        // Only that of a zvol has a size in ZFS.
        ("-", VolumeKind::Filesystem) => Ok(match number(&fields, 1) {
            // Nobody has recorded the quota of that time. ZFS takes none below the content.
            0 => number(&fields, 2),
            recorded => recorded,
        }),
        ("-", VolumeKind::Block) => Err(other_kind(origin, "snapshot of a filesystem")),
        (_, VolumeKind::Block) => Ok(number(&fields, 0)),
        (_, VolumeKind::Filesystem) => Err(other_kind(origin, "snapshot of a volume")),
    }
}

/// Asks ZFS about the source of a clone.
fn source_line(
    tool: &dyn Tool,
    arguments: &[&str],
    origin: &dyn fmt::Display,
) -> Result<String, VolumeError> {
    match tool.run("zfs", arguments) {
        Err(error) if error.is_absent() => Err(VolumeError::new(
            Fault::NotFound,
            format!("there is no source {origin}"),
            "check its name",
        )),
        text => Ok(text?),
    }
}

/// Reads a field that is a number; 0 if it is none.
fn number(fields: &[&str], index: usize) -> u64 {
    fields.get(index).and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn other_kind(origin: &dyn fmt::Display, found: &str) -> VolumeError {
    VolumeError::invalid(
        format!("source {origin} is a {found}, and the volume is to be another kind"),
        "ask for the kind of the source",
    )
}

/// Takes the snapshot that a clone of the present content begins from.
fn take_temporary(
    tool: &dyn Tool,
    snapshot: &SnapshotName,
    new: &NewVolume,
) -> Result<(), VolumeError> {
    let (mark, owner) = (format!("{TEMPORARY}={}", new.dataset), format!("{OWNER}={}", new.owner));
    tool.run("zfs", &["snapshot", "-o", &mark, "-o", &owner, snapshot.as_str()])?;
    Ok(())
}

/// Gives a clone its size.
fn complete(tool: &dyn Tool, volume: &VolumeRecord, bytes: u64) -> Result<(), VolumeError> {
    let bytes = rounded(bytes, volume.block_bytes);
    if bytes > volume.size_bytes {
        let size = format!("volsize={bytes}");
        tool.run("zfs", &["set", &size, volume.dataset.as_str()])?;
    }
    tool.run("zfs", &["inherit", PENDING, volume.dataset.as_str()])?;
    Ok(())
}
