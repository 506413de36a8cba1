//! What is measured.

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
    /// The same, eight under way.
    Read,
    /// Sequential 1 MiB unstable writes, eight under way; COMMIT apart.
    Write,
    /// 4 KiB reads at random places of a cached file, one at a time.
    RandomReadOne,
    /// The same, 32 under way.
    RandomRead,
    /// Create and close empty files, one at a time.
    Create,
    /// The same on other names, 16 under way, each in one COMPOUND.
    CreateMany,
    /// Look a path up and get its attributes, one at a time.
    Stat,
    /// The same, 16 under way.
    StatMany,
    /// Open and close, one at a time.
    Open,
    /// The same, 16 under way, each in one COMPOUND.
    OpenMany,
    /// Remove, one at a time.
    Remove,
    /// The same, 16 under way: what `CreateMany` made.
    RemoveMany,
    /// List a directory with attributes; an operation is an entry.
    Readdir,
}

/// Which figure of a load is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Millions of bytes a second.
    Megabytes,
    /// Operations a second.
    Operations,
}

impl Work {
    /// All, in the order they run: files are created before they are removed.
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

    /// What reports call it.
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

    /// Requests under way.
    pub(crate) fn depth(self) -> u32 {
        match self {
            Self::Read | Self::Write => 8,
            Self::RandomRead => 32,
            Self::CreateMany | Self::StatMany | Self::OpenMany | Self::RemoveMany => 16,
            _ => 1,
        }
    }

    /// What is compared.
    pub(crate) fn unit(self) -> Unit {
        match self {
            Self::ReadOne | Self::Read | Self::Write => Unit::Megabytes,
            _ => Unit::Operations,
        }
    }

    /// The least ratio to the peer's rate, and the largest of its CPU time,
    /// that the project asks of itself.
    pub(crate) fn bars(self) -> (f64, Option<f64>) {
        match self {
            Self::ReadOne | Self::Read | Self::Write => (1.2, Some(0.8)),
            Self::RandomReadOne | Self::RandomRead => (2.5, Some(0.4)),
            _ => (1.5, None),
        }
    }
}

/// What a load process reports.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LoadReport {
    /// Requests (entries, for readdir).
    pub(crate) operations: u64,
    /// Bytes of file data.
    pub(crate) bytes: u64,
    /// From the first request to the last answer.
    pub(crate) seconds: f64,
    /// COMMIT after writes.
    pub(crate) commit_seconds: f64,
    /// Latency in microseconds.
    pub(crate) p50_microseconds: u32,
    /// Latency in microseconds.
    pub(crate) p99_microseconds: u32,
}
