//! Growth and properties of a volume.

use super::fault::{Fault, VolumeError};
use super::kind::VolumeKind;
use super::properties::{check_properties, zfs_name};
use super::record::VolumeRecord;
use crate::tool::Tool;
use std::collections::BTreeMap;

/// A change of a volume.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// New size in bytes.
    pub size_bytes: Option<u64>,
    /// Properties to set.
    pub properties: BTreeMap<String, String>,
}

/// Changes a volume. What it has already is not set again. All is set by one
/// command, so that none or all of it takes effect. False: it had all of it.
///
/// # Errors
/// [`Fault::InUse`] for a smaller size; others see [`Fault`].
pub fn change(
    tool: &dyn Tool,
    volume: &VolumeRecord,
    wanted: &Change,
) -> Result<bool, VolumeError> {
    let properties = wanted.properties.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    check_properties(properties, volume.kind, false)?;
    let mut settings: Vec<String> = wanted
        .properties
        .iter()
        .filter(|(name, value)| volume.properties.get(*name) != Some(value))
        .map(|(name, value)| format!("{}={value}", zfs_name(name)))
        .collect();
    if let Some(size) = wanted.size_bytes {
        settings.extend(growth(volume, size)?);
    }
    if settings.is_empty() {
        return Ok(false);
    }
    let mut arguments = vec!["set"];
    arguments.extend(settings.iter().map(String::as_str));
    arguments.push(volume.dataset.as_str());
    tool.run("zfs", &arguments)?;
    Ok(true)
}

fn growth(volume: &VolumeRecord, size_bytes: u64) -> Result<Option<String>, VolumeError> {
    let block = volume.block_bytes.unwrap_or(1).max(1);
    let size = size_bytes.checked_next_multiple_of(block).unwrap_or(size_bytes);
    if i64::try_from(size).is_err() {
        return Err(VolumeError::invalid(format!("{size_bytes} bytes is no size"), "ask for less"));
    }
    if size < volume.size_bytes {
        return Err(VolumeError::new(
            Fault::InUse,
            format!(
                "volume {} has {} bytes, and {size_bytes} are asked for: it would lose data",
                volume.dataset, volume.size_bytes
            ),
            "make a smaller volume and copy the data",
        ));
    }
    let property = match volume.kind {
        VolumeKind::Filesystem => "refquota",
        VolumeKind::Block => "volsize",
    };
    Ok((size > volume.size_bytes).then(|| format!("{property}={size}")))
}
