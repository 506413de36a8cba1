//! Loads of the NFS benchmark.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// One kind of load.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Work {
    /// Sequential 1 MiB reads of a cached file, one at a time.
    ReadOne,
    /// Sequential 1 MiB reads of a cached file, queue depth 8.
    Read,
    /// Sequential 1 MiB unstable writes, queue depth 8; COMMIT is timed
    /// separately.
    Write,
    /// 4 KiB random reads of a cached file, one at a time.
    RandomReadOne,
    /// 4 KiB random reads of a cached file, queue depth 32.
    RandomRead,
    /// Creates and closes empty files, one at a time.
    Create,
    /// Creates files, queue depth 16, each in one COMPOUND.
    CreateMany,
    /// Looks a path up and reads its attributes, one at a time.
    Stat,
    /// Looks paths up, queue depth 16.
    StatMany,
    /// Opens and closes, one at a time.
    Open,
    /// Opens and closes, queue depth 16, each in one COMPOUND.
    OpenMany,
    /// Removes files, one at a time.
    Remove,
    /// Removes the files of `CreateMany`, queue depth 16.
    RemoveMany,
    /// Lists a directory with attributes; an operation is an entry.
    Readdir,
}

/// Unit in which a load is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Millions of bytes per second.
    Megabytes,
    /// Operations per second.
    Operations,
}

impl Work {
    /// All loads, in the order they run: files are created before they are
    /// removed.
    pub(crate) const ALL: [Self; 14] = [
        Self::ReadOne,
        Self::Read,
        Self::Write,
        Self::RandomReadOne,
        Self::RandomRead,
        Self::Create,
        Self::CreateMany,
        Self::Stat,
        Self::StatMany,
        Self::Open,
        Self::OpenMany,
        Self::Readdir,
        Self::Remove,
        Self::RemoveMany,
    ];

    /// Returns the name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ReadOne => "1 MiB read, 1 under way",
            Self::Read => "1 MiB read, 8 under way",
            Self::Write => "1 MiB write, 8 under way",
            Self::RandomReadOne => "4 KiB random read, 1",
            Self::RandomRead => "4 KiB random read, 32",
            Self::Create => "create + close, 1",
            Self::CreateMany => "create + close, 16",
            Self::Stat => "lookup + getattr, 1",
            Self::StatMany => "lookup + getattr, 16",
            Self::Open => "open + close, 1",
            Self::OpenMany => "open + close, 16",
            Self::Remove => "remove, 1",
            Self::RemoveMany => "remove, 16",
            Self::Readdir => "readdir entries",
        }
    }

    /// Returns the queue depth.
    pub(crate) fn depth(self) -> u32 {
        match self {
            Self::Read | Self::Write => 8,
            Self::RandomRead => 32,
            Self::CreateMany | Self::StatMany | Self::OpenMany | Self::RemoveMany => 16,
            _ => 1,
        }
    }

    /// Returns the unit of comparison.
    pub(crate) fn unit(self) -> Unit {
        match self {
            Self::ReadOne | Self::Read | Self::Write => Unit::Megabytes,
            _ => Unit::Operations,
        }
    }

    /// Returns the least ratio to the peer's rate and the largest ratio to its
    /// CPU time that the project requires.
    pub(crate) fn bars(self) -> (f64, Option<f64>) {
        match self {
            Self::ReadOne | Self::Read | Self::Write => (1.2, Some(0.8)),
            Self::RandomReadOne | Self::RandomRead => (2.5, Some(0.4)),
            _ => (1.5, None),
        }
    }
}

/// Report of a load process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LoadReport {
    /// Number of requests (of entries, for readdir).
    pub(crate) operations: u64,
    /// Bytes of file data.
    pub(crate) bytes: u64,
    /// Time from the first request to the last answer.
    pub(crate) seconds: f64,
    /// Time of the COMMIT after writes.
    pub(crate) commit_seconds: f64,
    /// Median latency in microseconds.
    pub(crate) p50_microseconds: u32,
    /// 99th percentile of the latency in microseconds.
    pub(crate) p99_microseconds: u32,
}
