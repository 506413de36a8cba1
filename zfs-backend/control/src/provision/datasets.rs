//! Checks of a layout's datasets for ambiguity and lack of space.

use super::layout::{Class, Dataset, Layout, Settings};
use super::properties::{self, Owner};
use super::size::{Bytes, zfs_size};
use crate::name::DatasetName;
use std::collections::HashSet;

/// Part of a pool that ZFS reserves (`spa_slop_shift` = 5).
const SLOP_PART: u64 = 32;
/// Default of `recordsize`, in bytes.
const DEFAULT_RECORD_BYTES: u64 = 128 << 10;

pub(super) fn check(layout: &Layout, capacity_bytes: u64, found: &mut Vec<String>) {
    let root = &layout.pool.filesystem;
    properties::problems("pool filesystem", Owner::FileSystem, root, found);
    small_blocks("pool filesystem", layout, "", root, found);
    let mut names = HashSet::new();
    let mut promised: u64 = 0;
    for dataset in &layout.datasets {
        let place = format!("dataset {}", dataset.name);
        let full = format!("{}/{}", layout.pool.name, dataset.name);
        if let Err(error) = full.parse::<DatasetName>() {
            found.push(format!("{place}: name {error}"));
        }
        if let Some((parent, _)) = dataset.name.rsplit_once('/')
            && !names.contains(parent)
        {
            found.push(format!("{place}: its parent {parent} is not described before it"));
        }
        if !names.insert(dataset.name.as_str()) {
            found.push(format!("{place}: the name is used twice"));
        }
        let owner = if dataset.size.is_some() { Owner::Volume } else { Owner::FileSystem };
        properties::problems(&place, owner, &dataset.properties, found);
        small_blocks(&place, layout, &dataset.name, &dataset.properties, found);
        promised = promised.saturating_add(volume(dataset, &place, found));
        for key in ["reservation", "refreservation"] {
            let size = dataset.properties.get(key).and_then(|value| zfs_size(&value.to_string()));
            promised = promised.saturating_add(size.unwrap_or(0));
        }
    }
    let room = capacity_bytes - capacity_bytes / SLOP_PART;
    if promised > room {
        found.push(format!(
            "volumes and reservations need {promised} bytes, and the pool has {room}: make volumes sparse or smaller"
        ));
    }
}

/// Checks a volume; returns the space it reserves, in bytes.
fn volume(dataset: &Dataset, place: &str, found: &mut Vec<String>) -> u64 {
    let Some(Bytes(size)) = dataset.size else {
        if dataset.sparse.is_some() {
            found.push(format!("{place}: sparse is for volumes only, and size is missing"));
        }
        return 0;
    };
    let block = dataset.properties.get("volblocksize");
    match block.map(|value| zfs_size(&value.to_string())) {
        None => found.push(format!(
            "{place}: volblocksize is missing, and cannot be changed later; 16K suits virtual machines"
        )),
        Some(Some(block)) if block > 0 && (size == 0 || !size.is_multiple_of(block)) => {
            found.push(format!("{place}: its size is not a multiple of volblocksize"));
        }
        Some(_) => {}
    }
    match dataset.sparse {
        None => {
            found.push(format!(
                "{place}: sparse is missing: false reserves all its space, true may run out of \
                 space"
            ));
            0
        }
        Some(true) => 0,
        Some(false) => size,
    }
}

/// Returns a property's value in bytes for a dataset: its own or its nearest
/// ancestor's.
fn inherited(layout: &Layout, name: &str, property: &str) -> Option<u64> {
    let value = |settings: &Settings| zfs_size(&settings.get(property)?.to_string());
    let mut at = Some(name);
    while let Some(name) = at.filter(|name| !name.is_empty()) {
        let here = layout.datasets.iter().find(|dataset| dataset.name == name);
        if let Some(found) = here.and_then(|dataset| value(&dataset.properties)) {
            return Some(found);
        }
        at = name.rsplit_once('/').map(|(parent, _)| parent);
    }
    value(&layout.pool.filesystem)
}

/// Checks `special_small_blocks`: blocks up to this size go to the special
/// vdev, and a dataset with only such blocks would fill it.
fn small_blocks(place: &str, layout: &Layout, name: &str, own: &Settings, found: &mut Vec<String>) {
    let small = inherited(layout, name, "special_small_blocks").unwrap_or(0);
    if small == 0 {
        return;
    }
    let special = layout.vdevs.iter().any(|vdev| vdev.class == Class::Special);
    if !special && own.contains_key("special_small_blocks") {
        found.push(format!("{place}: special_small_blocks is set, and there is no special vdev"));
    }
    let volume =
        layout.datasets.iter().any(|dataset| dataset.name == name && dataset.size.is_some());
    if volume {
        let block = own.get("volblocksize").and_then(|value| zfs_size(&value.to_string()));
        if block.is_some_and(|block| block <= small) {
            found.push(format!(
                "{place}: volblocksize is not above the special_small_blocks it inherits: from OpenZFS 2.4 on \
                 all of the volume would go to the special vdev; set special_small_blocks = 0 on its parent"
            ));
        }
        return;
    }
    let record = inherited(layout, name, "recordsize").unwrap_or(DEFAULT_RECORD_BYTES);
    if record <= small {
        found.push(format!(
            "{place}: recordsize is not above special_small_blocks: all its data would go to the special vdev"
        ));
    }
}
