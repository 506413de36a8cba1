//! Volumes as ZFS has them.

use super::fault::{Fault, VolumeError};
use super::grant::Grant;
use super::kind::VolumeKind;
use super::limits::MAX_ASKED_AT_ONCE;
use super::properties::{RateLimits, request_name};
use crate::datasets::Dataset;
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
    /// Properties that were set on it, by their names in requests.
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

    /// Limits on its reads and writes.
    #[must_use]
    pub fn rates(&self) -> RateLimits {
        RateLimits::of(&self.properties)
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

/// Properties of a dataset.
#[derive(Debug, Default)]
pub struct Properties {
    pub(super) all: BTreeMap<String, String>,
    /// Those that were set on the dataset itself.
    pub(super) local: BTreeMap<String, String>,
}

impl Properties {
    /// Returns the value of a property; `-` if there is none, as ZFS has it.
    pub(super) fn text(&self, name: &str) -> &str {
        self.all.get(name).map_or("-", String::as_str)
    }

    /// Returns the value of a property that is a number.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.text(name).parse().ok()
    }

    /// Returns the kind of the dataset.
    pub(super) fn kind(&self) -> VolumeKind {
        match self.text("type") {
            "volume" => VolumeKind::Block,
            _ => VolumeKind::Filesystem,
        }
    }

    /// Returns the space below the dataset.
    fn space(&self) -> Option<VolumeSpace> {
        let (available_bytes, used) = (self.number("available")?, self.number("used")?);
        Some(VolumeSpace { available_bytes, total_bytes: available_bytes.saturating_add(used) })
    }
}

/// Dataset under the name of a volume.
#[derive(Debug)]
pub enum Found {
    /// None, and its parent is there, with this space below it. Without: nobody has told it.
    Nothing(Option<VolumeSpace>),
    /// A volume.
    Volume(Box<VolumeRecord>),
    /// A dataset without the mark of a volume.
    Unmarked(Properties),
}

/// Properties of datasets, by their names.
type AllProperties = BTreeMap<String, Properties>;

/// Reads the properties of datasets, and of those below them as far as `reach` says: one command
/// for everything.
fn properties(
    tool: &dyn Tool,
    reach: &[&str],
    datasets: &[&str],
) -> Result<AllProperties, ToolError> {
    Ok(parsed(&tool.run("zfs", &question(reach, datasets))?).0)
}

fn question<'a>(reach: &[&'a str], datasets: &[&'a str]) -> Vec<&'a str> {
    let columns = "name,property,value,source";
    let what = ["-t", "filesystem,volume", "-o", columns, "all"];
    [&["get", "-Hp"][..], reach, &what, datasets].concat()
}

/// Reads the answer to a question. False: it tells a property of a dataset twice, which ZFS does
/// not. The value of another program's property may have tabs and line breaks, and what follows
/// one may look like a line about another dataset.
fn parsed(text: &str) -> (AllProperties, bool) {
    let (mut found, mut is_clear) = (AllProperties::new(), true);
    for line in text.lines() {
        let fields = line.split_once('\t').and_then(|(name, rest)| {
            let (property, rest) = rest.split_once('\t')?;
            let (value, source) = rest.rsplit_once('\t')?;
            Some((name, property, value, source))
        });
        let Some((name, property, value, source)) = fields else { continue };
        let of = found.entry(name.to_owned()).or_default();
        // Properties that a replication brought are as good as local ones.
        if matches!(source, "local" | "received") {
            of.local.insert(property.to_owned(), value.to_owned());
        }
        is_clear &= of.all.insert(property.to_owned(), value.to_owned()).is_none();
    }
    (found, is_clear)
}

/// Property of a zvol that ZFS has as its default, and not as set, when a
/// request sets it to the default.
pub(super) const BLOCK_SIZE: &str = "volblocksize";

/// Reads a size: a number, with or without a unit (zfsprops(7)).
pub(super) fn bytes(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let text = text.strip_suffix('b').unwrap_or(&text);
    let (digits, shift) = match text.strip_suffix(['k', 'm']) {
        Some(digits) if text.ends_with('k') => (digits, 10),
        Some(digits) => (digits, 20),
        None => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn record(name: &str, properties: &Properties) -> Option<VolumeRecord> {
    let local = &properties.local;
    let text = |property: &str| properties.text(property);
    let number = |property: &str| properties.number(property).unwrap_or(0);
    let dataset = name.parse().ok()?;
    let name = local.get(VOLUME)?.clone();
    let owner = local.get(OWNER)?.clone();
    let kind = properties.kind();
    let is_block = kind == VolumeKind::Block;
    let is_mounted = text("mounted") == "yes";
    let mut grants: Vec<_> =
        local.iter().filter_map(|(property, value)| Grant::parse(property, value)).collect();
    grants.sort_by(|a, b| a.node.cmp(&b.node));
    let block_bytes = is_block.then(|| number("volblocksize"));
    let known = local.iter().filter_map(|(name, value)| Some((request_name(name)?, value)));
    let mut properties: BTreeMap<_, _> =
        known.map(|(name, value)| (name.to_owned(), value.clone())).collect();
    properties.extend(block_bytes.map(|bytes| (BLOCK_SIZE.to_owned(), bytes.to_string())));
    Some(VolumeRecord {
        dataset,
        guid: number("guid"),
        name,
        owner,
        kind,
        size_bytes: number(if is_block { "volsize" } else { "refquota" }),
        block_bytes,
        used_bytes: number("used"),
        available_bytes: number("available"),
        read_only: text("readonly") == "on",
        mounted_at: is_mounted.then(|| PathBuf::from(text("mountpoint"))),
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
    Ok(volumes_below(parent, &properties(tool, &["-d", "1"], &[parent.as_str()])?))
}

/// Lists a parent with all datasets below it, and the volumes directly below it, both by name:
/// one command tells the same as [`crate::datasets::list`] and [`list`].
///
/// # Errors
/// The error of `zfs`; [`ToolError::Answer`] if it does not print all properties of a dataset, or
/// a value has lines that look like those of a dataset.
pub fn list_with_datasets(
    tool: &dyn Tool,
    parent: &DatasetName,
) -> Result<(Vec<Dataset>, Vec<VolumeRecord>), ToolError> {
    let arguments = question(&["-r"], &[parent.as_str()]);
    let (found, is_clear) = parsed(&tool.run("zfs", &arguments)?);
    let datasets = found.iter().map(|(name, properties)| Dataset::of_all(name, &properties.all));
    let mut datasets = datasets.collect::<Result<Vec<_>, _>>()?;
    if !(is_clear && datasets.iter().all(|one| one.name.is_within(parent))) {
        return Err(ToolError::Answer {
            command: command_line("zfs", &arguments),
            reason: "a value has lines like those of a dataset".to_owned(),
        });
    }
    datasets.sort_by(|a, b| a.name.cmp(&b.name));
    Ok((datasets, volumes_below(parent, &found)))
}

/// Returns the volumes directly below a parent, by name.
fn volumes_below(parent: &DatasetName, found: &AllProperties) -> Vec<VolumeRecord> {
    let is_below = |name: &str| name.rsplit_once('/').is_some_and(|(of, _)| of == parent.as_str());
    let below = found.iter().filter(|(name, _)| is_below(name));
    let mut records: Vec<_> =
        below.filter_map(|(name, properties)| record(name, properties)).collect();
    records.sort_by(|a, b| a.dataset.cmp(&b.dataset));
    records
}

/// Reads one volume; none if there is no such dataset, and its parent is there.
///
/// # Errors
/// [`Fault::Forbidden`] if the dataset is no volume; others see [`look`].
pub fn read(tool: &dyn Tool, dataset: &DatasetName) -> Result<Option<VolumeRecord>, VolumeError> {
    match look(tool, dataset)? {
        Found::Nothing(_) => Ok(None),
        Found::Volume(record) => Ok(Some(*record)),
        Found::Unmarked(_) => Err(foreign(dataset)),
    }
}

/// Reads volumes, in the order of their names here.
///
/// # Errors
/// [`Fault::NotFound`] if one of the datasets does not exist, [`Fault::Forbidden`] if one is
/// no volume; the error of `zfs`.
pub fn read_all(
    tool: &dyn Tool,
    datasets: &[DatasetName],
) -> Result<Vec<VolumeRecord>, VolumeError> {
    let mut all = Vec::new();
    for some in datasets.chunks(MAX_ASKED_AT_ONCE) {
        let names: Vec<&str> = some.iter().map(DatasetName::as_str).collect();
        let found = properties(tool, &["-d", "0"], &names)?;
        for dataset in some {
            let properties = found.get(dataset.as_str());
            let volume = properties.and_then(|properties| record(dataset.as_str(), properties));
            all.push(volume.ok_or_else(|| foreign(dataset))?);
        }
    }
    Ok(all)
}

/// Returns what has the name of a volume. The same command asks for its parent: without it the
/// pool is elsewhere, and comes back with the volume and its access; and it tells the space for a
/// volume that is to be made.
///
/// # Errors
/// [`Fault::Storage`] if neither is there; the error of `zfs`, which never says that there is
/// no such thing.
pub fn look(tool: &dyn Tool, dataset: &DatasetName) -> Result<Found, VolumeError> {
    let parent = dataset.parent();
    // The parent is asked for behind the volume, because of a pool that is just being exported:
    // `zfs get` opens them in this order (zfs_for_each in cmd/zfs/zfs_iter.c of OpenZFS), goes
    // on behind one that is not there, complains of each, and fails at the end.
    let names = [Some(dataset), parent.as_ref()].into_iter().flatten().map(DatasetName::as_str);
    let arguments = question(&["-d", "0"], &names.collect::<Vec<_>>());
    let (text, failed) = tool.run_in_part("zfs", &arguments);
    let (mut found, _) = parsed(&text);
    let of_parent = parent.as_ref().and_then(|parent| found.get(parent.as_str()));
    let space = of_parent.and_then(Properties::space);
    if let Some(error) = failed {
        complained(error, dataset, parent.as_ref())?;
        return Ok(Found::Nothing(space));
    }
    let Some(properties) = found.remove(dataset.as_str()) else { return Ok(Found::Nothing(space)) };
    Ok(match record(dataset.as_str(), &properties) {
        Some(record) => Found::Volume(Box::new(record)),
        None => Found::Unmarked(properties),
    })
}

/// Reads the complaints of [`look`]: only one of the volume alone says that there is none.
fn complained(
    error: ToolError,
    dataset: &DatasetName,
    parent: Option<&DatasetName>,
) -> Result<(), VolumeError> {
    let (command, status, said) = match error {
        ToolError::Failed { command, status, said } => (command, status, said),
        error => return Err(error.into()),
    };
    let complaint = |name: &DatasetName| format!("cannot open '{name}': dataset does not exist");
    let (own, of_parent) = (complaint(dataset), parent.map(complaint));
    let is_of_parent = |line: &str| of_parent.as_deref() == Some(line);
    let (absent, others): (Vec<&str>, Vec<&str>) =
        said.lines().partition(|line| *line == own || is_of_parent(line));
    if absent.is_empty() || !others.is_empty() {
        let mut failed: VolumeError =
            ToolError::Failed { command, status, said: others.join("\n") }.into();
        if failed.fault == Fault::NotFound {
            failed.fault = Fault::Storage;
        }
        return Err(failed);
    }
    match parent {
        Some(parent) if absent.iter().any(|line| is_of_parent(line)) => Err(away(parent)),
        _ => Ok(()),
    }
}

/// The parent of a volume is not there: nobody can tell what is below it.
#[must_use]
pub fn away(parent: &DatasetName) -> VolumeError {
    VolumeError::new(
        Fault::Storage,
        format!("dataset {parent} is not there; its pool may not be imported"),
        "import the pool, then send the same request again",
    )
}

/// The dataset is not one of those that are made here.
pub(super) fn foreign(dataset: &DatasetName) -> VolumeError {
    VolumeError::new(
        Fault::Forbidden,
        format!("dataset {dataset} was not made as a volume"),
        "choose another name, or destroy it if it is an empty rest of a power failure; nothing is done to it",
    )
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::Recorded;

    #[test]
    fn only_a_complaint_of_the_volume_alone_says_that_there_is_none() {
        const LOOK: &str = "zfs get -Hp -d 0 -t filesystem,volume -o name,property,value,source \
            all tank/k8s/v tank/k8s";
        const ABSENT: &str = "cannot open 'tank/k8s/v': dataset does not exist";
        const AWAY: &str = "cannot open 'tank/k8s': dataset does not exist";
        let looked = |lines: &[&str]| {
            let tool = Recorded::default().then_fail(LOOK, 1, &lines.join("\n"));
            read(&tool, &"tank/k8s/v".parse().unwrap()).map_err(|error| error.fault)
        };
        assert_eq!(looked(&[ABSENT]), Ok(None));
        for lines in [
            &[ABSENT, AWAY][..],
            &[AWAY],
            &[ABSENT, "cannot open 'tank/k8s': I/O error"],
            &["cannot open 'tank/k8s/v': I/O error", AWAY],
            &[ABSENT, "internal error: out of memory"],
            &["the module does not exist"],
            &[],
        ] {
            assert_eq!(looked(lines), Err(Fault::Storage), "{lines:?}");
        }
        let long = "cannot open 'tank/k8s/v': name is too long";
        assert_eq!(looked(&[long, AWAY]), Err(Fault::Invalid));
    }
}
