//! Properties that a request may set: native ones, and limits of the gateway, which
//! are user properties in ZFS.

use super::fault::VolumeError;
use super::kind::VolumeKind;
use super::limits::{
    MAX_BYTES_PER_SECOND, MAX_IOPS, MAX_VALUE_BYTES, MIN_BYTES_PER_SECOND, MIN_IOPS,
};
use std::collections::BTreeMap;

/// A property and the volumes it is for.
struct Settable {
    name: &'static str,
    filesystem: bool,
    block: bool,
    /// Set if it may be changed later.
    later: bool,
}

const fn settable(name: &'static str, filesystem: bool, block: bool, later: bool) -> Settable {
    Settable { name, filesystem, block, later }
}

/// No property that leads out of the parent (`mountpoint`), changes who may do
/// what (`setuid`, `sharenfs`), or takes space from others (`reservation`).
const SETTABLE: &[Settable] = &[
    settable("compression", true, true, true),
    settable("recordsize", true, false, true),
    settable("volblocksize", false, true, false),
    settable("sync", true, true, true),
    settable("logbias", true, true, true),
    settable("primarycache", true, true, true),
    settable("secondarycache", true, true, true),
    settable("atime", true, false, true),
    settable("checksum", true, true, true),
    settable("special_small_blocks", true, false, true),
];

/// A limit of the gateway: its name in requests and in ZFS, and its bounds.
struct Limit {
    name: &'static str,
    property: &'static str,
    least: u64,
    most: u64,
}

const LIMITS: [Limit; 2] = [
    Limit { name: "iops_max", property: "zgate:iops_max", least: MIN_IOPS, most: MAX_IOPS },
    Limit {
        name: "bytes_per_second_max",
        property: "zgate:bytes_per_second_max",
        least: MIN_BYTES_PER_SECOND,
        most: MAX_BYTES_PER_SECOND,
    },
];

/// Value of a limit that does not hold.
const NO_LIMIT: &str = "none";
/// Units of a limit in bytes.
const UNITS: [(&str, u32); 6] =
    [("KiB", 10), ("MiB", 20), ("GiB", 30), ("Ki", 10), ("Mi", 20), ("Gi", 30)];

/// Reads a limit: a number, of bytes also with a unit.
fn number(text: &str) -> Option<u64> {
    let unit = UNITS.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)));
    let (digits, shift) = unit.unwrap_or((text, 0));
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Limits on the reads and writes of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimits {
    /// Most requests per second.
    pub iops_max: Option<u64>,
    /// Most bytes per second.
    pub bytes_per_second_max: Option<u64>,
}

impl RateLimits {
    /// Reads the limits among the properties of a volume. One out of its bounds, which
    /// somebody set by hand, holds as the bound.
    pub(super) fn of(properties: &BTreeMap<String, String>) -> Self {
        let [iops_max, bytes_per_second_max] = LIMITS.map(|limit| {
            let value = number(properties.get(limit.name)?)?;
            Some(value.clamp(limit.least, limit.most))
        });
        Self { iops_max, bytes_per_second_max }
    }

    /// Returns whether any property is a limit of the gateway.
    #[must_use]
    pub fn are_among(properties: &BTreeMap<String, String>) -> bool {
        LIMITS.iter().any(|limit| properties.contains_key(limit.name))
    }
}

/// Returns the name in ZFS of a property of a request.
pub(super) fn zfs_name(name: &str) -> &str {
    LIMITS.iter().find(|limit| limit.name == name).map_or(name, |limit| limit.property)
}

/// Returns the name in requests of a property in ZFS; none if requests cannot set it.
pub(super) fn request_name(property: &str) -> Option<&str> {
    match LIMITS.iter().find(|limit| limit.property == property) {
        Some(limit) => Some(limit.name),
        None => SETTABLE.iter().any(|one| one.name == property).then_some(property),
    }
}

/// Checks names and values of properties.
///
/// # Errors
/// The property that cannot be set, and those that can.
pub fn check_properties<'a>(
    properties: impl IntoIterator<Item = (&'a str, &'a str)>,
    kind: VolumeKind,
    is_new: bool,
) -> Result<(), VolumeError> {
    let applies = |one: &&Settable| {
        (is_new || one.later)
            && match kind {
                VolumeKind::Filesystem => one.filesystem,
                VolumeKind::Block => one.block,
            }
    };
    for (name, value) in properties {
        if let Some(limit) = LIMITS.iter().find(|limit| limit.name == name) {
            limit.check(value)?;
            continue;
        }
        if !SETTABLE.iter().filter(applies).any(|one| one.name == name) {
            let native = SETTABLE.iter().filter(applies).map(|one| one.name);
            let all: Vec<_> = native.chain(LIMITS.iter().map(|limit| limit.name)).collect();
            return Err(VolumeError::invalid(
                format!("property {name:?} cannot be set"),
                format!("set {}", all.join(", ")),
            ));
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if value.is_empty() || value.len() > MAX_VALUE_BYTES || !value.chars().all(allowed) {
            return Err(VolumeError::invalid(
                format!("property {name}: {value:?} is not a value"),
                "see zfsprops(7)",
            ));
        }
    }
    Ok(())
}

impl Limit {
    fn check(&self, value: &str) -> Result<(), VolumeError> {
        let holds = |number| (self.least..=self.most).contains(&number);
        if value == NO_LIMIT || number(value).is_some_and(holds) {
            return Ok(());
        }
        Err(VolumeError::invalid(
            format!("property {}: {value:?} is not a limit", self.name),
            format!("write {NO_LIMIT}, or a number from {} to {}", self.least, self.most),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_checked_and_read() {
        let check = |name, value| {
            check_properties([(name, value)], VolumeKind::Block, false).map_err(|e| e.to_string())
        };
        for (name, value) in [
            ("iops_max", "10"),
            ("iops_max", "none"),
            ("bytes_per_second_max", "1048576"),
            ("bytes_per_second_max", "200Mi"),
        ] {
            assert_eq!(check(name, value), Ok(()), "{name}={value}");
        }
        for (name, value) in [
            ("iops_max", "9"),
            ("iops_max", "-1"),
            ("iops_max", ""),
            ("bytes_per_second_max", "1Ki"),
            ("bytes_per_second_max", "99999999999999Gi"),
        ] {
            assert!(check(name, value).unwrap_err().contains("none"), "{name}={value}");
        }
        let read = |value: &str| {
            RateLimits::of(&BTreeMap::from([("iops_max".to_owned(), value.to_owned())])).iops_max
        };
        assert_eq!([read("500"), read("1"), read("none")], [Some(500), Some(MIN_IOPS), None]);
    }
}
