//! Volumes as ZFS has them.

use super::fault::{Fault, VolumeError};
use super::grant::Grant;
use super::kind::VolumeKind;
use super::properties::is_settable;
use crate::name::DatasetName;
use crate::tool::{Tool, ToolError, command_line};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Party that the volume or snapshot belongs to.
pub(super) const OWNER: &str = "zgate:owner";
/// Name of the volume: the mark of a dataset that was made here.
pub(super) const VOLUME: &str = "zgate:volume";
/// Origin of the content, as the request named it.
pub(super) const SOURCE: &str = "zgate:source";
/// Time until which a new volume is to be confirmed, in seconds since 1970: it is
/// destroyed later.
pub(super) const UNCONFIRMED: &str = "zgate:unconfirmed";
/// Size in bytes that a new clone is still to get: it is not complete before.
pub(super) const PENDING: &str = "zgate:pending";

const COLUMNS: &str =
    "name,type,guid,used,available,refquota,volsize,volblocksize,readonly,mounted,mountpoint";

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRecord {
    /// Its dataset.
    pub dataset: DatasetName,
    /// Identity of the dataset: a volume that is made again has another.
    pub guid: u64,
    /// Its name.
    pub name: String,
    /// Party that it belongs to.
    pub owner: String,
    /// File system or block device.
    pub kind: VolumeKind,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Block size of a block device, in bytes.
    pub block_bytes: Option<u64>,
    /// Space that it occupies, in bytes, with its snapshots.
    pub used_bytes: u64,
    /// Space that it may still use, in bytes.
    pub available_bytes: u64,
    /// Set if it cannot be modified.
    pub read_only: bool,
    /// Mount point of a file system that is mounted.
    pub mounted_at: Option<PathBuf>,
    /// Native properties that were set on it.
    pub properties: BTreeMap<String, String>,
    /// Origin of its content, as the request that made it named it.
    pub source: Option<String>,
    /// Size in bytes that it is still to get.
    pub pending_bytes: Option<u64>,
    /// Time until which it is to be confirmed, in seconds since 1970.
    pub unconfirmed_until: Option<i64>,
    /// Nodes with access, by their names.
    pub grants: Vec<Grant>,
}

impl VolumeRecord {
    /// Returns whether a property was set. Values have several forms ("1M",
    /// "1048576"): only that of the block size, which never changes, is compared.
    pub(super) fn has_property(&self, name: &str, value: &str) -> bool {
        match self.block_bytes.filter(|_| name == BLOCK_SIZE) {
            Some(block) => bytes(value) == Some(block),
            None => self.properties.contains_key(name),
        }
    }

    /// Returns whether it was not confirmed in time: nobody knows of it.
    #[must_use]
    pub fn is_abandoned(&self, now_unix_seconds: i64) -> bool {
        let is_late = self.unconfirmed_until.is_some_and(|until| until <= now_unix_seconds);
        is_late && self.grants.is_empty()
    }

    /// Checks that it belongs to this owner.
    ///
    /// # Errors
    /// [`Fault::Forbidden`].
    pub fn check_owner(&self, owner: &str) -> Result<(), VolumeError> {
        if self.owner == owner {
            return Ok(());
        }
        Err(VolumeError::new(
            Fault::Forbidden,
            format!("volume {} belongs to another owner", self.dataset),
            "let its owner change it",
        ))
    }
}

/// Space below a dataset, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeSpace {
    /// Space that is free.
    pub available_bytes: u64,
    /// Space that is free or used.
    pub total_bytes: u64,
}

/// Local properties of datasets.
type Locals = BTreeMap<String, BTreeMap<String, String>>;

fn locals(tool: &dyn Tool, depth: &str, dataset: &DatasetName) -> Result<Locals, ToolError> {
    // Properties that a replication brought are as good as local ones.
    let arguments = [
        "get",
        "-Hp",
        "-d",
        depth,
        "-t",
        "filesystem,volume",
        "-s",
        "local,received",
        "-o",
        "name,property,value",
        "all",
        dataset.as_str(),
    ];
    let text = tool.run("zfs", &arguments)?;
    let mut all = Locals::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, '\t');
        // The value of another program's property may have line breaks.
        if let (Some(name), Some(property), Some(value)) =
            (fields.next(), fields.next(), fields.next())
        {
            let of = all.entry(name.to_owned()).or_default();
            of.insert(property.to_owned(), value.to_owned());
        }
    }
    Ok(all)
}

/// Property of a zvol that ZFS has as its default, and not as set, when a
/// request sets it to the default.
const BLOCK_SIZE: &str = "volblocksize";

/// Reads a size: a number, with or without a unit (zfsprops(7)).
fn bytes(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let text = text.strip_suffix('b').unwrap_or(&text);
    let (digits, shift) = match text.strip_suffix(['k', 'm']) {
        Some(digits) if text.ends_with('k') => (digits, 10),
        Some(digits) => (digits, 20),
        None => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// A dataset below a parent.
struct Row {
    name: DatasetName,
    fields: Vec<String>,
}

fn rows(tool: &dyn Tool, depth: &str, dataset: &DatasetName) -> Result<Vec<Row>, ToolError> {
    let arguments =
        ["list", "-Hp", "-d", depth, "-t", "filesystem,volume", "-o", COLUMNS, dataset.as_str()];
    let text = tool.run("zfs", &arguments)?;
    let wrong = |line: &str| ToolError::Answer {
        command: command_line("zfs", &arguments),
        reason: format!("{line:?} cannot be parsed"),
    };
    let row = |line: &str| {
        let fields: Vec<String> = line.splitn(11, '\t').map(str::to_owned).collect();
        let name = fields[0].parse().ok()?;
        (fields.len() == 11).then_some(Row { name, fields })
    };
    text.lines().map(|line| row(line).ok_or_else(|| wrong(line))).collect()
}

fn record(row: &Row, mut local: BTreeMap<String, String>) -> Option<VolumeRecord> {
    let number = |index: usize| row.fields[index].parse::<u64>().unwrap_or(0);
    let name = local.remove(VOLUME)?;
    let owner = local.remove(OWNER)?;
    let kind = match row.fields[1].as_str() {
        "volume" => VolumeKind::Block,
        _ => VolumeKind::Filesystem,
    };
    let is_block = kind == VolumeKind::Block;
    let is_mounted = row.fields[9] == "yes";
    let mut grants: Vec<_> =
        local.iter().filter_map(|(property, value)| Grant::parse(property, value)).collect();
    grants.sort_by(|a, b| a.node.cmp(&b.node));
    let block_bytes = is_block.then(|| number(7));
    let mut properties = local.clone();
    properties.retain(|name, _| is_settable(name));
    properties.extend(block_bytes.map(|bytes| (BLOCK_SIZE.to_owned(), bytes.to_string())));
    Some(VolumeRecord {
        dataset: row.name.clone(),
        guid: number(2),
        name,
        owner,
        kind,
        size_bytes: number(if is_block { 6 } else { 5 }),
        block_bytes,
        used_bytes: number(3),
        available_bytes: number(4),
        read_only: row.fields[8] == "on",
        mounted_at: is_mounted.then(|| PathBuf::from(&row.fields[10])),
        source: local.get(SOURCE).cloned(),
        pending_bytes: local.get(PENDING).and_then(|text| text.parse().ok()),
        unconfirmed_until: local.get(UNCONFIRMED).and_then(|text| text.parse().ok()),
        grants,
        properties,
    })
}

/// Lists the volumes directly below a parent, by name.
///
/// # Errors
/// The error of `zfs`.
pub fn list(tool: &dyn Tool, parent: &DatasetName) -> Result<Vec<VolumeRecord>, ToolError> {
    let rows = rows(tool, "1", parent)?;
    let mut locals = locals(tool, "1", parent)?;
    let mut records: Vec<_> = rows
        .iter()
        .filter(|row| row.name != *parent)
        .filter_map(|row| record(row, locals.remove(row.name.as_str())?))
        .collect();
    records.sort_by(|a, b| a.dataset.cmp(&b.dataset));
    Ok(records)
}

/// Reads one volume; none if there is no such dataset.
///
/// # Errors
/// [`Fault::Forbidden`] if the dataset is no volume; the error of `zfs`.
pub fn read(tool: &dyn Tool, dataset: &DatasetName) -> Result<Option<VolumeRecord>, VolumeError> {
    let absent = |error: &ToolError| error.is_absent();
    let rows = match rows(tool, "0", dataset) {
        Err(error) if absent(&error) => return Ok(None),
        rows => rows?,
    };
    let mut locals = match locals(tool, "0", dataset) {
        Err(error) if absent(&error) => return Ok(None),
        locals => locals?,
    };
    let Some(row) = rows.first() else { return Ok(None) };
    match record(row, locals.remove(dataset.as_str()).unwrap_or_default()) {
        Some(record) => Ok(Some(record)),
        None => Err(VolumeError::new(
            Fault::Forbidden,
            format!("dataset {dataset} was not made as a volume"),
            "choose another name; nothing is done to it",
        )),
    }
}

/// Reads the space below a dataset.
///
/// # Errors
/// The error of `zfs`.
pub fn capacity(tool: &dyn Tool, dataset: &DatasetName) -> Result<VolumeSpace, VolumeError> {
    let arguments = ["list", "-Hp", "-o", "available,used", dataset.as_str()];
    let text = tool.run("zfs", &arguments)?;
    let mut numbers = text.trim().split('\t').map(str::parse::<u64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(available_bytes)), Some(Ok(used))) => {
            Ok(VolumeSpace { available_bytes, total_bytes: available_bytes.saturating_add(used) })
        }
        _ => Err(ToolError::Answer {
            command: command_line("zfs", &arguments),
            reason: format!("{text:?} cannot be parsed"),
        }
        .into()),
    }
}
