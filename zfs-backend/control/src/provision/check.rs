//! Checks of a layout's devices and vdevs for ambiguity and data loss. All
//! problems are collected before any is reported.

use super::datasets;
use super::disks::BY_ID;
use super::layout::{Class, Device, Grouping, Layout, Redundancy, Setting, Share, Vdev};
use super::properties::{self, Owner};
use super::size::MIB;
use crate::name::PoolName;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Reasons for which there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("refused:\n  {}", .0.join("\n  "))]
pub struct Refused(pub Vec<String>);

/// Member of a vdev: a whole device, or a partition of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Name in the layout.
    pub name: String,
    /// Path of the device or partition.
    pub path: PathBuf,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Physical sector size in bytes.
    pub sector_bytes: u64,
    /// Index of its device in the layout.
    pub device: usize,
    /// Start of a partition, in MiB.
    pub start_mib: Option<u64>,
}

/// Checks a layout and returns its members by name.
pub(super) fn check(layout: &Layout, files: bool) -> Result<HashMap<String, Leaf>, Refused> {
    let mut found = Vec::new();
    if let Err(error) = layout.pool.name.parse::<PoolName>() {
        found.push(format!("pool: name {error}"));
    }
    let root = &layout.pool.mountpoint;
    if !root.starts_with('/') && root != "none" && root != "legacy" {
        found.push(format!("pool: mountpoint \"{root}\": must be absolute, none or legacy"));
    }
    properties::problems("pool", Owner::Pool, &layout.pool.properties, &mut found);
    let leaves = leaves(layout, files, &mut found);
    vdevs(layout, &leaves, &mut found);
    ashift(layout, &mut found);
    datasets::check(layout, capacity_bytes(layout, &leaves), &mut found);
    if found.is_empty() { Ok(leaves) } else { Err(Refused(found)) }
}

fn leaves(layout: &Layout, files: bool, found: &mut Vec<String>) -> HashMap<String, Leaf> {
    let mut leaves = HashMap::new();
    let mut paths: HashMap<&Path, &str> = HashMap::new();
    let mut names = HashSet::new();
    for (index, device) in layout.devices.iter().enumerate() {
        let place = format!("device {}", device.name);
        if !names.insert(&device.name) {
            found.push(format!("{place}: the name is used twice"));
        }
        if let Some(other) = paths.insert(&device.path, &device.name) {
            found.push(format!("{place}: its path is device {other} already"));
        }
        check_device(device, &place, files, found);
        for leaf in parts(device, index, &place, found) {
            leaves.insert(leaf.name.clone(), leaf);
        }
    }
    leaves
}

fn check_device(device: &Device, place: &str, files: bool, found: &mut Vec<String>) {
    let path = device.path.display();
    if !is_word(&device.name) {
        found.push(format!("{place}: its name must be letters, digits, - and _"));
    }
    let by_id = device.path.strip_prefix(BY_ID).ok();
    let by_id = by_id.and_then(Path::to_str).filter(|id| !id.is_empty() && !id.contains('/'));
    match (files, by_id) {
        (false, None) => found.push(format!(
            "{place}: path {path}: must be in /dev/disk/by-id/, as other names change between boots"
        )),
        (false, Some(id)) if is_partition(id) => found.push(format!(
            "{place}: path {path}: is a partition; name the whole disk and its partitions"
        )),
        (true, _) if !device.path.is_absolute() || device.path.starts_with("/dev") => {
            found.push(format!("{place}: path {path}: with --allow-files it must name a file"));
        }
        _ => {}
    }
    if !matches!(device.sector_bytes, 512 | 4096 | 8192 | 16384) {
        found.push(format!(
            "{place}: sector_bytes = {}: must be 512, 4096, 8192 or 16384",
            device.sector_bytes
        ));
    } else if device.size.0 == 0 || !device.size.0.is_multiple_of(device.sector_bytes) {
        found.push(format!("{place}: size {} is not a multiple of the sector size", device.size.0));
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

/// `...-part3`
pub(super) fn is_partition(id: &str) -> bool {
    let number = id.rsplit_once("-part").map(|(_, number)| number);
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// Returns the whole device, or its partitions: each begins at a mebibyte, and
/// the last mebibyte is reserved for the backup partition table.
fn parts(device: &Device, index: usize, place: &str, found: &mut Vec<String>) -> Vec<Leaf> {
    let leaf = |name: String, path: PathBuf, size_bytes, start_mib| Leaf {
        name,
        path,
        size_bytes,
        sector_bytes: device.sector_bytes,
        device: index,
        start_mib,
    };
    if device.partitions.is_empty() {
        return vec![leaf(device.name.clone(), device.path.clone(), device.size.0, None)];
    }
    let mut leaves = Vec::new();
    let end_mib = (device.size.0 / MIB).saturating_sub(1);
    let mut at_mib = 1;
    let mut names = HashSet::new();
    for (number, partition) in device.partitions.iter().enumerate() {
        let named = format!("{}.{}", device.name, partition.name);
        if !is_word(&partition.name) || !names.insert(&partition.name) {
            found.push(format!(
                "{place}: partition \"{}\": needs a name of its own",
                partition.name
            ));
        }
        let size_mib = match partition.size {
            Share::Rest if number + 1 < device.partitions.len() => {
                found.push(format!("{place}: only the last partition can have size \"rest\""));
                0
            }
            Share::Rest => end_mib.saturating_sub(at_mib),
            Share::Exactly(bytes) if !bytes.0.is_multiple_of(MIB) => {
                found.push(format!("{named}: size {bytes} is not a multiple of 1 MiB"));
                0
            }
            Share::Exactly(bytes) => bytes.0 / MIB,
        };
        if size_mib < 64 {
            found.push(format!("{named}: {size_mib} MiB: ZFS needs at least 64 MiB"));
        }
        if at_mib.saturating_add(size_mib) > end_mib {
            found.push(format!(
                "{named}: does not fit: {size_mib} MiB from {at_mib} MiB on, and the device ends at {end_mib} MiB"
            ));
        }
        let mut path = device.path.clone().into_os_string();
        path.push(format!("-part{}", number + 1));
        leaves.push(leaf(named, path.into(), size_mib.saturating_mul(MIB), Some(at_mib)));
        at_mib = at_mib.saturating_add(size_mib);
    }
    leaves
}

fn vdevs(layout: &Layout, leaves: &HashMap<String, Leaf>, found: &mut Vec<String>) {
    let mut used: HashMap<&str, usize> = HashMap::new();
    for (index, vdev) in layout.vdevs.iter().enumerate() {
        let place = format!("vdev {} ({})", index + 1, vdev.class.word().unwrap_or("data"));
        let mut own = Vec::new();
        for name in &vdev.devices {
            match leaves.get(name) {
                None => found.push(format!("{place}: there is no device or partition {name}")),
                Some(leaf) => own.push(leaf),
            }
            if let Some(before) = used.insert(name, index) {
                found.push(format!("{place}: {name} is used in vdev {} already", before + 1));
            }
        }
        check_vdev(vdev, &own, &place, found);
    }
    let mut unused: Vec<_> =
        leaves.keys().filter(|name| !used.contains_key(name.as_str())).collect();
    unused.sort();
    found.extend(unused.into_iter().map(|name| format!("{name} is described but not used")));
    check_classes(layout, leaves, found);
}

fn check_vdev(vdev: &Vdev, own: &[&Leaf], place: &str, found: &mut Vec<String>) {
    let fewest = vdev.grouping.fewest();
    if vdev.devices.len() < fewest {
        found.push(format!("{place}: needs at least {fewest} devices"));
    }
    let legal = match vdev.class {
        Class::Data => true,
        Class::Special | Class::Log => {
            matches!(vdev.grouping, Grouping::Mirror | Grouping::Stripe)
        }
        Class::Cache | Class::Spare => vdev.grouping == Grouping::Stripe,
    };
    if !legal {
        found.push(format!("{place}: cannot be of this type"));
    }
    if vdev.grouping == Grouping::Stripe {
        return;
    }
    let Some(first) = own.first() else { return };
    for leaf in &own[1..] {
        if leaf.size_bytes != first.size_bytes {
            found.push(format!(
                "{place}: {} has {} bytes, {} has {}: ZFS only uses the size of the smallest",
                first.name, first.size_bytes, leaf.name, leaf.size_bytes
            ));
        }
        if leaf.sector_bytes != first.sector_bytes {
            found.push(format!(
                "{place}: {} has sectors of {} bytes, {} of {}",
                first.name, first.sector_bytes, leaf.name, leaf.sector_bytes
            ));
        }
    }
    let devices: HashSet<_> = own.iter().map(|leaf| leaf.device).collect();
    if devices.len() < own.len() {
        found.push(format!("{place}: two of its members are on one device and fail together"));
    }
}

/// Checks rules between vdevs: types, redundancy, sector sizes.
fn check_classes(layout: &Layout, leaves: &HashMap<String, Leaf>, found: &mut Vec<String>) {
    let of = |class: Class| layout.vdevs.iter().filter(move |vdev| vdev.class == class);
    let tolerance = |vdev: &Vdev| vdev.grouping.tolerates(vdev.devices.len());
    let Some(first) = of(Class::Data).next() else {
        found.push("there is no data vdev".into());
        return;
    };
    if of(Class::Data)
        .any(|vdev| (vdev.grouping, tolerance(vdev)) != (first.grouping, tolerance(first)))
    {
        found.push("the data vdevs are not of one type and width".into());
    }
    let data = of(Class::Data).map(tolerance).min().unwrap_or(0);
    if data == 0 && layout.pool.redundancy == Redundancy::Required {
        found.push(
            "the data has no redundancy: the pool is lost with its first device; \
             set redundancy = \"none\" in [pool] if that is intended"
                .into(),
        );
    }
    for special in of(Class::Special).filter(|vdev| tolerance(vdev) < data) {
        found.push(format!(
            "the special vdev {} tolerates {} failures and the data {data}: the pool is lost with it",
            special.devices.join(", "),
            tolerance(special)
        ));
    }
    let data_leaves: Vec<&Leaf> = of(Class::Data)
        .flat_map(|vdev| &vdev.devices)
        .filter_map(|name| leaves.get(name))
        .collect();
    let sectors: HashSet<_> = data_leaves.iter().map(|leaf| leaf.sector_bytes).collect();
    if sectors.len() > 1 {
        found.push("the data devices have sectors of different sizes".into());
    }
    let largest = data_leaves.iter().map(|leaf| leaf.size_bytes).max().unwrap_or(0);
    for name in of(Class::Spare).flat_map(|vdev| &vdev.devices) {
        if leaves.get(name).is_some_and(|leaf| leaf.size_bytes < largest) {
            found.push(format!("spare {name} is smaller than a data device"));
        }
    }
}

fn ashift(layout: &Layout, found: &mut Vec<String>) {
    let sector = layout.devices.iter().map(|device| device.sector_bytes).max().unwrap_or(512);
    match layout.pool.properties.get("ashift") {
        None => found.push(
            "pool: ashift is missing and ZFS would guess it; use 12 for sectors of 4096 bytes"
                .into(),
        ),
        Some(Setting::Number(shift)) if *shift < 17 && 1_u64 << shift < sector => {
            found.push(format!(
                "pool: ashift = {shift} means {} bytes, but there are sectors of {sector}",
                1_u64 << shift
            ))
        }
        Some(_) => {}
    }
}

/// Returns the capacity of the data vdevs, in bytes.
fn capacity_bytes(layout: &Layout, leaves: &HashMap<String, Leaf>) -> u64 {
    let data = layout.vdevs.iter().filter(|vdev| vdev.class == Class::Data);
    data.map(|vdev| {
        let sizes = vdev.devices.iter().filter_map(|name| leaves.get(name));
        let smallest = sizes.map(|leaf| leaf.size_bytes).min().unwrap_or(0);
        let count = vdev.devices.len();
        smallest.saturating_mul((count - vdev.grouping.tolerates(count).min(count)) as u64)
    })
    .fold(0, u64::saturating_add)
}
