//! What a layout may say. Unknown keys are errors.

use super::size::Bytes;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// A property's value as it stands in the file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Setting {
    /// `on` is text for ZFS: refused, with that hint.
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

/// How much may be lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Redundancy {
    /// One device may fail.
    #[default]
    Required,
    /// The pool is gone with its first device, and that is meant.
    None,
}

/// `[pool]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolLayout {
    /// Its name.
    pub name: String,
    /// Where its root dataset is mounted.
    pub mountpoint: String,
    /// `"none"` allows devices without redundancy.
    #[serde(default)]
    pub redundancy: Redundancy,
    /// Of the pool: zpoolprops(7).
    pub properties: Settings,
    /// Of its root dataset, inherited by the others: zfsprops(7).
    pub filesystem: Settings,
}

/// How large a partition is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// So much.
    Exactly(Bytes),
    /// What the others leave; the last one only.
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
    /// Its name in the partition table, and behind the device's in this file.
    pub name: String,
    /// How large.
    pub size: Share,
}

/// `[[device]]`: a disk of the machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// What this file calls it.
    pub name: String,
    /// `/dev/disk/by-id/...`, the whole disk.
    pub path: PathBuf,
    /// Its size, exactly.
    pub size: Bytes,
    /// Its physical sectors in bytes.
    pub sector_bytes: u64,
    /// Its parts, if it is not used whole.
    #[serde(default)]
    pub partitions: Vec<Partition>,
}

/// What a vdev is for.
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
    /// Takes the place of what fails.
    Spare,
}

impl Class {
    /// Its word on the command line of `zpool create`; none for data.
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

/// How a vdev's devices share the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Grouping {
    /// Each has everything.
    Mirror,
    /// One may fail.
    Raidz1,
    /// Two may fail.
    Raidz2,
    /// Three may fail.
    Raidz3,
    /// None may fail.
    Stripe,
}

impl Grouping {
    /// Its word on the command line; none for single devices.
    pub(super) const fn word(self) -> Option<&'static str> {
        match self {
            Self::Mirror => Some("mirror"),
            Self::Raidz1 => Some("raidz1"),
            Self::Raidz2 => Some("raidz2"),
            Self::Raidz3 => Some("raidz3"),
            Self::Stripe => None,
        }
    }

    /// How many of so many may fail.
    pub(super) const fn tolerates(self, devices: usize) -> usize {
        match self {
            Self::Mirror => devices.saturating_sub(1),
            Self::Raidz1 => 1,
            Self::Raidz2 => 2,
            Self::Raidz3 => 3,
            Self::Stripe => 0,
        }
    }

    /// Fewer make no sense.
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
    /// What it is for.
    #[serde(default)]
    pub class: Class,
    /// How its devices share the work.
    #[serde(rename = "type")]
    pub grouping: Grouping,
    /// `device` or `device.partition`.
    pub devices: Vec<String>,
}

/// `[[dataset]]`: a file system, or with `size` a volume.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dataset {
    /// Below the pool.
    pub name: String,
    /// Of a volume.
    #[serde(default)]
    pub size: Option<Bytes>,
    /// Whether a volume may promise more than there is.
    #[serde(default)]
    pub sparse: Option<bool>,
    /// What differs from its parent: zfsprops(7).
    #[serde(default)]
    pub properties: Settings,
}

/// The whole file.
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
    /// Reads a layout.
    ///
    /// # Errors
    /// With the line, and what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let line = text.get(..at).unwrap_or(text).matches('\n').count() + 1;
            format!("line {line}: {}", error.message())
        })
    }
}
