//! Datasets that were made for a volume, and are not marked as one: ZFS makes a
//! dataset in one transaction, and sets its properties in later ones. Commands of
//! earlier requests may be between the two, and a power failure may have ended one
//! there.

use super::create::{NewVolume, rounded, run, settings};
use super::fault::{Fault, VolumeError};
use super::kind::VolumeKind;
use super::limits::{IN_THE_MAKING_SECONDS, MAX_EMPTY_BYTES};
use super::origin::Origin;
use super::properties::zfs_name;
use super::record::{BLOCK_SIZE, Properties, bytes, foreign};
use super::snapshot::snapshots_of;
use crate::tool::Tool;
use std::time::{SystemTime, UNIX_EPOCH};

/// Marks a dataset as the volume that is asked for, if it can only be the beginning of
/// it. If the command of an earlier request is still at work, both set the same.
///
/// # Errors
/// [`Fault::Storage`] for any other dataset that is so young that it may be in the
/// making, [`Fault::Forbidden`] for one that is older; the error of `zfs`.
pub(super) fn finish(
    tool: &dyn Tool,
    new: &NewVolume,
    found: &Properties,
) -> Result<(), VolumeError> {
    // `written` counts since the latest snapshot: with one it says nothing, and nobody has
    // taken one of what was only begun.
    let has_snapshots = || Ok::<_, VolumeError>(!snapshots_of(tool, &new.dataset)?.is_empty());
    if !is_begun(new, found) || has_snapshots()? {
        return Err(if is_young(found) { in_the_making(new) } else { foreign(&new.dataset) });
    }
    let mut arguments = vec!["set".to_owned()];
    // The size of blocks was there from the beginning.
    let fixed = format!("{BLOCK_SIZE}=");
    arguments.extend(settings(new).into_iter().filter(|setting| !setting.starts_with(&fixed)));
    if new.kind == VolumeKind::Block && new.origin.is_none() && !new.thin {
        arguments.push("refreservation=auto".to_owned());
    }
    arguments.push(new.dataset.to_string());
    Ok(run(tool, &arguments)?)
}

/// Returns whether the dataset is the beginning of this volume: of its kind and size,
/// or a clone of its origin; nothing is set on it but what the request sets; nobody has
/// written to it.
fn is_begun(new: &NewVolume, found: &Properties) -> bool {
    let kind = found.kind();
    let block_bytes = found.number(BLOCK_SIZE);
    let asked_block = new.properties.get(BLOCK_SIZE).and_then(|text| bytes(text));
    let is_its = match (&new.origin, kind) {
        (Some(Origin::Snapshot(snapshot)), _) => found.text("origin") == snapshot.as_str(),
        (Some(Origin::Dataset(dataset)), _) => {
            found.text("origin").split_once('@').is_some_and(|(from, _)| from == dataset.as_str())
        }
        (None, VolumeKind::Filesystem) => {
            found.local.contains_key("refquota") && found.number("refquota") == Some(new.size_bytes)
        }
        (None, VolumeKind::Block) => {
            found.number("volsize") == Some(rounded(new.size_bytes, block_bytes))
        }
    };
    let is_expected = |name: &String| {
        ["refquota", "volsize", "refreservation"].contains(&name.as_str())
            || (name == "readonly" && new.read_only)
            || new.properties.keys().any(|asked| zfs_name(asked) == *name)
    };
    kind == new.kind
        && is_its
        && asked_block.is_none_or(|asked| block_bytes == Some(asked))
        && found.local.keys().all(is_expected)
        && is_empty(found, "written")
        && (new.origin.is_some() || is_empty(found, "referenced"))
}

/// Returns whether a property says that nothing is there yet.
fn is_empty(found: &Properties, space: &str) -> bool {
    found.number(space).is_some_and(|bytes| bytes <= MAX_EMPTY_BYTES)
}

fn is_young(found: &Properties) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let created = found.number("creation").unwrap_or(0);
    now.as_secs().saturating_sub(created) < IN_THE_MAKING_SECONDS
}

fn in_the_making(new: &NewVolume) -> VolumeError {
    VolumeError::new(
        Fault::Storage,
        format!("dataset {} is not marked as a volume yet; it may be in the making", new.dataset),
        "send the same request again",
    )
}
