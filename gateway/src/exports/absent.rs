//! Items of a configuration that are absent on this machine: paths, devices,
//! host names, addresses.

use serde::Serialize;
use std::fmt;
use utoipa::ToSchema;

/// Kind of an absent item; the label of the metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AbsentKind {
    /// An export whose path does not exist or cannot be opened.
    Export,
    /// An export whose dataset does not exist or is not mounted.
    Dataset,
    /// A client entry whose host name has no address.
    Client,
    /// A logical unit whose device or file does not exist or cannot be opened.
    Lun,
    /// An address to listen on that no interface has.
    Listen,
}

impl AbsentKind {
    /// All of them.
    pub(crate) const ALL: [Self; 5] =
        [Self::Export, Self::Dataset, Self::Client, Self::Lun, Self::Listen];

    /// Returns the label of the metric.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Export => "export",
            Self::Dataset => "dataset",
            Self::Client => "client",
            Self::Lun => "lun",
            Self::Listen => "listen",
        }
    }
}

/// An absent item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AbsentItem {
    pub kind: AbsentKind,
    /// Name for people: `export /models`, `client gpu7.lan`.
    pub name: String,
    pub reason: String,
    pub next_step: String,
}

impl AbsentItem {
    pub(crate) fn new(kind: AbsentKind, name: String, fault: Fault) -> Self {
        Self { kind, name, reason: fault.reason, next_step: fault.next_step }
    }
}

impl fmt::Display for AbsentItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.name, self.reason, self.next_step)
    }
}

/// Reason for which something cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub reason: String,
    pub next_step: String,
    /// Set if it can be used as soon as something else changes on this machine;
    /// otherwise the configuration is wrong.
    pub absent: bool,
}

impl Fault {
    /// Creates the fault of something that is absent.
    pub(crate) fn absent(reason: String, next_step: impl Into<String>) -> Self {
        Self { reason, next_step: next_step.into(), absent: true }
    }

    /// Creates the fault of something that never can be used as configured.
    pub(crate) fn wrong(reason: String) -> Self {
        Self { reason, next_step: String::new(), absent: false }
    }

    /// Creates the fault of something that has not been attempted yet.
    pub(crate) fn unknown() -> Self {
        Self::absent("not attempted yet".to_owned(), "wait a moment")
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        if self.next_step.is_empty() { Ok(()) } else { write!(f, "; {}", self.next_step) }
    }
}

/// Returns the error of a start or reload that accepts no absent items.
pub(crate) fn refusal(items: &[AbsentItem]) -> std::io::Error {
    let lines: Vec<_> = items.iter().map(|item| format!("\n  {item}")).collect();
    let reason = format!("absent, and started with --strict:{}", lines.concat());
    std::io::Error::new(std::io::ErrorKind::NotFound, reason)
}
