//! `zpool status -j -p`, the structured format since OpenZFS 2.3.

use super::{PoolState, Scan, ScanKind, ScanState};
use crate::pools::VdevClass;
use crate::tool::ToolError;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// Status of a pool as reported by `zpool status`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// State of the pool.
    pub state: PoolState,
    /// Fault as described by ZFS; empty if there is none.
    pub problem: String,
    /// Remedy as described by ZFS.
    pub action: String,
    /// Latest scrub or resilver.
    pub scan: Option<Scan>,
    /// Number of blocks damaged beyond repair.
    pub data_errors: u64,
    /// All vdevs below the pool, parents before their children.
    pub devices: Vec<Device>,
}

/// A device, or a group of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Device {
    /// Its name, as `zpool` takes it.
    pub name: String,
    /// State of the device.
    pub state: PoolState,
    /// Purpose of the device.
    pub class: VdevClass,
    /// Depth in the tree: 1 directly below the pool.
    pub depth: usize,
    /// Set if it contains other devices.
    pub is_group: bool,
    /// Failed reads since the last `zpool clear`.
    pub read_errors: u64,
    /// Failed writes.
    pub write_errors: u64,
    /// Reads with a wrong checksum.
    pub checksum_errors: u64,
}

impl Device {
    /// Returns the sum of all errors.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.read_errors.saturating_add(self.write_errors).saturating_add(self.checksum_errors)
    }
}

impl PoolStatus {
    /// Returns whether the pool has a device of this class.
    #[must_use]
    pub fn has_class(&self, class: VdevClass) -> bool {
        self.devices.iter().any(|vdev| vdev.class == class)
    }

    /// Lists devices, without groups, that are not in a healthy state.
    pub fn failed_devices(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter().filter(|vdev| !vdev.is_group && vdev.state != PoolState::Online)
    }

    /// Lists devices with counted errors.
    pub fn devices_with_errors(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter().filter(|vdev| !vdev.is_group && vdev.errors() > 0)
    }
}

/// Reads a number, or a string that holds one. `-p` prints all numbers as
/// strings, which are exact; `-` and other text count as 0.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Ok(match serde_json::Value::deserialize(deserializer)? {
        serde_json::Value::Number(number) => number.as_u64().unwrap_or(0),
        serde_json::Value::String(text) => text.parse().unwrap_or(0),
        _ => 0,
    })
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    pools: BTreeMap<String, RawPool>,
}

#[derive(Deserialize)]
struct RawPool {
    name: String,
    state: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    action: String,
    #[serde(default)]
    scan_stats: Option<RawScan>,
    #[serde(default, deserialize_with = "number")]
    error_count: u64,
    #[serde(default)]
    vdevs: BTreeMap<String, RawVdev>,
    #[serde(default)]
    special: BTreeMap<String, RawVdev>,
    #[serde(default)]
    dedup: BTreeMap<String, RawVdev>,
    #[serde(default)]
    logs: BTreeMap<String, RawVdev>,
    #[serde(default)]
    l2cache: BTreeMap<String, RawVdev>,
    #[serde(default)]
    spares: BTreeMap<String, RawVdev>,
}

#[derive(Deserialize)]
struct RawVdev {
    name: String,
    #[serde(default)]
    state: String,
    #[serde(default, deserialize_with = "number")]
    read_errors: u64,
    #[serde(default, deserialize_with = "number")]
    write_errors: u64,
    #[serde(default, deserialize_with = "number")]
    checksum_errors: u64,
    #[serde(default)]
    vdevs: BTreeMap<String, RawVdev>,
}

#[derive(Deserialize)]
struct RawScan {
    #[serde(default)]
    function: String,
    #[serde(default)]
    state: String,
    #[serde(default, deserialize_with = "number")]
    start_time: u64,
    #[serde(default, deserialize_with = "number")]
    end_time: u64,
    #[serde(default, deserialize_with = "number")]
    to_examine: u64,
    #[serde(default, deserialize_with = "number")]
    examined: u64,
    #[serde(default, deserialize_with = "number")]
    skipped: u64,
    #[serde(default, deserialize_with = "number")]
    processed: u64,
    #[serde(default, deserialize_with = "number")]
    errors: u64,
    #[serde(default, deserialize_with = "number")]
    issued: u64,
    #[serde(default, deserialize_with = "number")]
    scrub_pause: u64,
}

/// Parses the document.
///
/// # Errors
/// [`ToolError::Answer`] if it is not such a document.
pub fn parse(text: &str) -> Result<Vec<PoolStatus>, ToolError> {
    let document: Document = serde_json::from_str(text).map_err(|error| ToolError::Answer {
        command: "zpool status -j -p".to_owned(),
        reason: error.to_string(),
    })?;
    Ok(document.pools.into_values().map(pool).collect())
}

fn pool(raw: RawPool) -> PoolStatus {
    let mut devices = Vec::new();
    // The pool itself is the single root of the normal vdevs.
    let roots = raw.vdevs.into_values().flat_map(|root| {
        if root.name == raw.name { root.vdevs } else { BTreeMap::from([(root.name.clone(), root)]) }
    });
    add(&mut devices, roots, VdevClass::Data, 1);
    let others = [
        (VdevClass::Special, raw.special),
        (VdevClass::Dedup, raw.dedup),
        (VdevClass::Log, raw.logs),
        (VdevClass::Cache, raw.l2cache),
        (VdevClass::Spare, raw.spares),
    ];
    for (class, found) in others {
        add(&mut devices, found.into_iter(), class, 1);
    }
    PoolStatus {
        name: raw.name,
        state: PoolState::from_word(&raw.state),
        problem: one_line(&raw.status),
        action: one_line(&raw.action),
        scan: raw.scan_stats.and_then(scan),
        data_errors: raw.error_count,
        devices,
    }
}

fn add(
    devices: &mut Vec<Device>,
    found: impl Iterator<Item = (String, RawVdev)>,
    class: VdevClass,
    depth: usize,
) {
    for (_, raw) in found {
        devices.push(Device {
            name: raw.name,
            state: PoolState::from_word(&raw.state),
            class,
            depth,
            is_group: !raw.vdevs.is_empty(),
            read_errors: raw.read_errors,
            write_errors: raw.write_errors,
            checksum_errors: raw.checksum_errors,
        });
        add(devices, raw.vdevs.into_iter(), class, depth + 1);
    }
}

fn scan(raw: RawScan) -> Option<Scan> {
    let kind = match raw.function.as_str() {
        "SCRUB" | "ERRORSCRUB" => ScanKind::Scrub,
        "RESILVER" | "REBUILD" => ScanKind::Resilver,
        _ => return None,
    };
    let state = match raw.state.as_str() {
        "SCANNING" if raw.scrub_pause > 0 => ScanState::Paused,
        "SCANNING" => ScanState::Running,
        "FINISHED" => ScanState::Finished,
        "CANCELED" => ScanState::Canceled,
        _ => return None,
    };
    let mut scan = Scan::new(kind, state);
    scan.started_unix_seconds = (raw.start_time > 0).then_some(raw.start_time);
    scan.ended_unix_seconds = (raw.end_time > 0 && !scan.is_open()).then_some(raw.end_time);
    scan.total_bytes = raw.to_examine;
    scan.scanned_bytes = raw.examined;
    scan.issued_bytes = raw.issued;
    scan.repaired_bytes = raw.processed;
    scan.errors = raw.errors;
    let total = raw.to_examine.saturating_sub(raw.skipped);
    scan.done_ratio = match state {
        ScanState::Finished => Some(1.0),
        _ if total == 0 => None,
        _ => Some((raw.issued as f64 / total as f64).min(1.0)),
    };
    Some(scan)
}

/// Joins text that `zpool` wraps into one line.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
