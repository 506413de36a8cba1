//! Making a volume, empty or as a clone.

use super::begun::finish;
use super::fault::{Fault, VolumeError};
use super::kind::{VolumeKind, check_name};
use super::origin::{Origin, least_bytes};
use super::properties::{check_properties, zfs_name};
use super::record::{
    Found, OWNER, PENDING, SOURCE, UNCONFIRMED, VOLUME, VolumeRecord, VolumeSpace, capacity, read,
};
use super::snapshot::{TEMPORARY, clone_snapshot_name, drop_clone_snapshots};
use crate::name::{DatasetName, SnapshotName};
use crate::tool::{Tool, ToolError};
use std::collections::BTreeMap;

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
    /// Set if the origin is a volume of this owner, or a snapshot of one that is listed.
    pub is_origin_own: bool,
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

/// Makes a volume, or takes what [`look`](super::look) has found under its name as it was asked
/// for. `flush` brings acknowledged writes of an origin to its pool.
///
/// # Errors
/// [`Fault::Exists`] if it exists with other parameters; others see [`Fault`].
pub fn create(
    tool: &dyn Tool,
    new: &NewVolume,
    found: Found,
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
    let (volume, existed) = match found {
        // Also when its origin is gone.
        Found::Volume(volume) => {
            check_same(new, &volume)?;
            let is_complete = volume.pending_bytes.is_none();
            (*volume, is_complete)
        }
        Found::Unmarked(properties) => {
            least_of(tool, new)?;
            finish(tool, new, &properties)?;
            (read_made(tool, new)?, false)
        }
        Found::Nothing(space) => {
            make(tool, new, space, flush)?;
            (read_made(tool, new)?, false)
        }
    };
    if let Some(Origin::Dataset(origin)) = &new.origin {
        // Also those of earlier requests, which a crash has left.
        drop_clone_snapshots(tool, origin, &new.dataset)?;
    }
    let volume = match volume.pending_bytes {
        None => volume,
        Some(bytes) => {
            complete(tool, &volume, bytes)?;
            read_made(tool, new)?
        }
    };
    Ok(Made { volume, existed })
}

/// Makes a volume that does not exist. `space` is that below its parent, if it is known.
fn make(
    tool: &dyn Tool,
    new: &NewVolume,
    space: Option<VolumeSpace>,
    flush: &mut dyn FnMut(&DatasetName) -> Result<(), VolumeError>,
) -> Result<(), VolumeError> {
    let least = least_of(tool, new)?;
    refuse_beyond_capacity(tool, new, space)?;
    match (&new.origin, least) {
        (Some(origin), Some(least)) => make_clone(tool, new, (origin, least), flush),
        _ => make_empty(tool, new),
    }
}

/// Checks the origin of a volume, and returns the least size of its clones in bytes; none
/// without an origin.
fn least_of(tool: &dyn Tool, new: &NewVolume) -> Result<Option<u64>, VolumeError> {
    let owner = new.is_origin_own.then_some(new.owner.as_str());
    let least = |origin| least_bytes(tool, origin, owner, new.kind);
    new.origin.as_ref().map(least).transpose()
}

fn read_made(tool: &dyn Tool, new: &NewVolume) -> Result<VolumeRecord, VolumeError> {
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

/// Refuses a volume that could never be filled. `known` is the space below its parent, if it is
/// known.
fn refuse_beyond_capacity(
    tool: &dyn Tool,
    new: &NewVolume,
    known: Option<VolumeSpace>,
) -> Result<(), VolumeError> {
    let Some(parent) = new.dataset.parent() else {
        return Err(VolumeError::invalid("a pool is no volume", "name a parent"));
    };
    let space = known.map_or_else(|| capacity(tool, &parent), Ok)?;
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

fn options(settings: Vec<String>) -> impl Iterator<Item = String> {
    settings.into_iter().flat_map(|setting| ["-o".to_owned(), setting])
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
    arguments.extend(options(settings(new)));
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
    (origin, least): (&Origin, u64),
    flush: &mut dyn FnMut(&DatasetName) -> Result<(), VolumeError>,
) -> Result<(), VolumeError> {
    if new.size_bytes < least {
        return Err(VolumeError::invalid(
            format!("volume {}: its source has {least} bytes, more than it", new.dataset),
            "ask for at least the size of the source",
        ));
    }
    let snapshot = match origin {
        Origin::Snapshot(snapshot) => snapshot.clone(),
        Origin::Dataset(dataset) => {
            let snapshot = clone_snapshot_name(dataset)?;
            flush(dataset)?;
            take_temporary(tool, &snapshot, new)?;
            snapshot
        }
    };
    let mut settings = settings(new);
    if new.size_bytes == least {
        // It begins with this size.
        let pending = format!("{PENDING}=");
        settings.retain(|setting| !setting.starts_with(&pending));
    }
    let mut arguments = vec!["clone".to_owned()];
    arguments.extend(options(settings));
    arguments.extend([snapshot.to_string(), new.dataset.to_string()]);
    unless_made(tool, new, run(tool, &arguments))
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
