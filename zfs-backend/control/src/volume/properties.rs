//! Native properties that a request may set.

use super::create::VolumeKind;
use super::fault::VolumeError;
use super::limits::MAX_VALUE_BYTES;

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
        if !SETTABLE.iter().filter(applies).any(|one| one.name == name) {
            let all: Vec<_> = SETTABLE.iter().filter(applies).map(|one| one.name).collect();
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

/// Returns whether a property is among those that requests set.
pub(super) fn is_settable(name: &str) -> bool {
    SETTABLE.iter().any(|one| one.name == name)
}
