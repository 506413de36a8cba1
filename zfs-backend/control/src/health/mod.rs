//! Health of pools: state, errors, scans, space, latencies and caches, and the
//! warnings that follow from them.
//!
//! [`sample`] runs `zpool` once and assembles a [`PoolHealth`]: the pool and
//! its space come from [`crate::discovery`], the rest from separate parsers.
//! [`status`] reads `zpool status -j -p` (OpenZFS 2.3 and newer),
//! [`status_text`] `zpool status -p` of versions before, [`latency`]
//! `zpool iostat -Hplvy`, [`kstat`] the counters in `/proc/spl/kstat/zfs`.
//! [`watch`] turns successive samples into warnings, one each time a threshold
//! is crossed.

pub mod kstat;
pub mod latency;
#[cfg(test)]
mod recorded;
pub mod sample;
pub mod scan;
pub mod status;
pub mod status_text;
pub mod watch;

use serde::Serialize;
use std::fmt;

pub use kstat::{ArcStats, Kstat, ZilStats};
pub use latency::{VdevLatency, Wait};
pub use sample::PoolHealth;
pub use scan::{Scan, ScanKind, ScanState};
pub use status::{Device, PoolStatus};
pub use watch::{Change, Warning, WarningKind, Watch};

/// State of a pool or a vdev. The numbers are those of the well-known exporters
/// (`zfs_pool_health`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum PoolState {
    /// Everything works.
    Online,
    /// A device is missing or has failed; data is served.
    Degraded,
    /// Damaged and unusable.
    Faulted,
    /// Taken offline by an administrator.
    Offline,
    /// Unusable because devices are missing.
    Unavail,
    /// Physically removed.
    Removed,
    /// I/O has failed and waits for `zpool clear`.
    Suspended,
    /// A state unknown to this version.
    Unknown,
}

/// States and their names, in the order of their numbers.
const STATES: [(PoolState, &str); 7] = [
    (PoolState::Online, "ONLINE"),
    (PoolState::Degraded, "DEGRADED"),
    (PoolState::Faulted, "FAULTED"),
    (PoolState::Offline, "OFFLINE"),
    (PoolState::Unavail, "UNAVAIL"),
    (PoolState::Removed, "REMOVED"),
    (PoolState::Suspended, "SUSPENDED"),
];

impl PoolState {
    /// Parses the state name that `zpool` prints.
    #[must_use]
    pub fn from_word(word: &str) -> Self {
        let word = word.trim();
        // Healthy spares and cache devices have state names of their own.
        if matches!(word, "AVAIL" | "INUSE") {
            return Self::Online;
        }
        let found = STATES.iter().find(|(_, known)| known.eq_ignore_ascii_case(word));
        found.map_or(Self::Unknown, |(state, _)| *state)
    }

    /// Returns the number in `zfs_pool_health`; 7 for an unknown state.
    #[must_use]
    pub fn code(self) -> usize {
        STATES.iter().position(|(state, _)| *state == self).unwrap_or(STATES.len())
    }

    /// Returns the state name.
    #[must_use]
    pub fn word(self) -> &'static str {
        STATES.get(self.code()).map_or("UNKNOWN", |(_, word)| word)
    }
}

impl fmt::Display for PoolState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_numbers_of_states() {
        for (code, word) in ["ONLINE", "DEGRADED", "FAULTED", "OFFLINE", "UNAVAIL", "REMOVED"]
            .into_iter()
            .enumerate()
        {
            let state = PoolState::from_word(word);
            assert_eq!((state.code(), state.word()), (code, word));
        }
        assert_eq!(PoolState::from_word("SUSPENDED").code(), 6);
        assert_eq!(PoolState::from_word("AVAIL"), PoolState::Online);
        assert_eq!(PoolState::from_word("MELTED").to_string(), "UNKNOWN");
    }
}
