//! Keys of a layout. Unknown keys are errors.

use super::size::Bytes;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Value of a property in the file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Setting {
    /// A boolean: refused with a hint, because ZFS takes `on` as text.
    Truth(bool),
    /// `ashift = 12`
    Number(u64),
    /// `compression = "lz4"`
    Text(String),
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truth(truth) => write!(f, "{truth}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// Properties and their values, by name.
pub(super) type Settings = BTreeMap<String, Setting>;

/// Redundancy required of vdevs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Redundancy {
    /// One device may fail without data loss.
    #[default]
    Required,
    /// The pool is lost with its first device; stated explicitly.
    None,
}

/// `[pool]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolLayout {
    /// Its name.
    pub name: String,
    /// Mount point of its root dataset.
    pub mountpoint: String,
    /// Required redundancy; `"none"` allows vdevs without any.
    #[serde(default)]
    pub redundancy: Redundancy,
    /// Properties of the pool: zpoolprops(7).
    pub properties: Settings,
    /// Properties of its root dataset, which the others inherit: zfsprops(7).
    pub filesystem: Settings,
}

/// Size of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Exact size.
    Exactly(Bytes),
    /// Remaining space; only for the last partition.
    Rest,
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Raw {
            Number(u64),
            Text(String),
        }
        match Raw::deserialize(deserializer)? {
            Raw::Number(number) => Ok(Self::Exactly(Bytes(number))),
            Raw::Text(text) if text == "rest" => Ok(Self::Rest),
            Raw::Text(text) => text.parse().map(Self::Exactly).map_err(serde::de::Error::custom),
        }
    }
}

/// A part of a device.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Partition {
    /// Name in the partition table, and in this file behind the device's name.
    pub name: String,
    /// Size of the partition.
    pub size: Share,
}

/// `[[device]]`: a disk of the machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Name in this file.
    pub name: String,
    /// `/dev/disk/by-id/...`, the whole disk.
    pub path: PathBuf,
    /// Exact size.
    pub size: Bytes,
    /// Physical sector size in bytes.
    pub sector_bytes: u64,
    /// Partitions, if the disk is not used whole.
    #[serde(default)]
    pub partitions: Vec<Partition>,
}

/// Purpose of a vdev.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Data.
    #[default]
    Data,
    /// Metadata and small blocks.
    Special,
    /// Intent log.
    Log,
    /// Second level cache.
    Cache,
    /// Spare that replaces a failed device.
    Spare,
}

impl Class {
    /// Returns the keyword of `zpool create`; none for data.
    pub(super) const fn word(self) -> Option<&'static str> {
        match self {
            Self::Data => None,
            Self::Special => Some("special"),
            Self::Log => Some("log"),
            Self::Cache => Some("cache"),
            Self::Spare => Some("spare"),
        }
    }
}

/// Arrangement of a vdev's devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Grouping {
    /// Each device holds all data.
    Mirror,
    /// One device may fail.
    Raidz1,
    /// Two devices may fail.
    Raidz2,
    /// Three devices may fail.
    Raidz3,
    /// No device may fail.
    Stripe,
}

impl Grouping {
    /// Returns the keyword of `zpool create`; none for single devices.
    pub(super) const fn word(self) -> Option<&'static str> {
        match self {
            Self::Mirror => Some("mirror"),
            Self::Raidz1 => Some("raidz1"),
            Self::Raidz2 => Some("raidz2"),
            Self::Raidz3 => Some("raidz3"),
            Self::Stripe => None,
        }
    }

    /// Returns how many of `devices` may fail.
    pub(super) const fn tolerates(self, devices: usize) -> usize {
        match self {
            Self::Mirror => devices.saturating_sub(1),
            Self::Raidz1 => 1,
            Self::Raidz2 => 2,
            Self::Raidz3 => 3,
            Self::Stripe => 0,
        }
    }

    /// Returns the smallest sensible number of devices.
    pub(super) const fn fewest(self) -> usize {
        match self {
            Self::Stripe => 1,
            Self::Mirror => 2,
            Self::Raidz1 => 3,
            Self::Raidz2 => 4,
            Self::Raidz3 => 5,
        }
    }
}

/// `[[vdev]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vdev {
    /// Purpose of the vdev.
    #[serde(default)]
    pub class: Class,
    /// Arrangement of its devices.
    #[serde(rename = "type")]
    pub grouping: Grouping,
    /// Members: `device` or `device.partition`.
    pub devices: Vec<String>,
}

/// `[[dataset]]`: a file system, or with `size` a volume.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dataset {
    /// Name below the pool.
    pub name: String,
    /// Size of a volume.
    #[serde(default)]
    pub size: Option<Bytes>,
    /// Set if the volume reserves no space.
    #[serde(default)]
    pub sparse: Option<bool>,
    /// Properties that differ from its parent's: zfsprops(7).
    #[serde(default)]
    pub properties: Settings,
}

/// A whole layout file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    /// `[pool]`
    pub pool: PoolLayout,
    /// `[[device]]`
    #[serde(rename = "device", default)]
    pub devices: Vec<Device>,
    /// `[[vdev]]`
    #[serde(rename = "vdev", default)]
    pub vdevs: Vec<Vdev>,
    /// `[[dataset]]`
    #[serde(rename = "dataset", default)]
    pub datasets: Vec<Dataset>,
}

impl Layout {
    /// Parses a layout.
    ///
    /// # Errors
    /// A message with the line and what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let line = text.get(..at).unwrap_or(text).matches('\n').count() + 1;
            format!("line {line}: {}", error.message())
        })
    }
}
