//! Scrubs and resilvers.

use serde::Serialize;

/// Kind of scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ScanKind {
    /// Reads everything and verifies its checksum.
    Scrub,
    /// Writes missing data to a replaced or returned device.
    Resilver,
}

/// Progress of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ScanState {
    /// Running.
    Running,
    /// Paused by an administrator.
    Paused,
    /// Finished.
    Finished,
    /// Cancelled by an administrator.
    Canceled,
}

/// Latest scrub or resilver of a pool; ZFS remembers no other.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scan {
    /// Scrub or resilver.
    pub kind: ScanKind,
    /// Progress.
    pub state: ScanState,
    /// Start, in seconds since 1970; none if not reported.
    pub started_unix_seconds: Option<u64>,
    /// End, in seconds since 1970; none while the scan runs.
    pub ended_unix_seconds: Option<u64>,
    /// Bytes to be read; 0 if not reported.
    pub total_bytes: u64,
    /// Bytes found so far.
    pub scanned_bytes: u64,
    /// Bytes verified so far.
    pub issued_bytes: u64,
    /// Bytes repaired.
    pub repaired_bytes: u64,
    /// Number of errors found.
    pub errors: u64,
    /// Share that is done, 0 to 1; none if not reported.
    pub done_ratio: Option<f64>,
}

impl Scan {
    /// Creates a scan of which nothing else is known yet.
    #[must_use]
    pub fn new(kind: ScanKind, state: ScanState) -> Self {
        Self {
            kind,
            state,
            started_unix_seconds: None,
            ended_unix_seconds: None,
            total_bytes: 0,
            scanned_bytes: 0,
            issued_bytes: 0,
            repaired_bytes: 0,
            errors: 0,
            done_ratio: None,
        }
    }

    /// Returns whether the scan runs or is paused.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.state, ScanState::Running | ScanState::Paused)
    }

    /// Returns the number in `zfs_pool_scrub_state`, as defined by the
    /// well-known exporter: 1 to 4 for a scrub that runs, finished, was
    /// cancelled, is paused; 5 and 6 for a resilver that runs, finished. The
    /// caller supplies 0 for no scan at all.
    #[must_use]
    pub fn code(&self) -> u8 {
        match (self.kind, self.state) {
            (ScanKind::Scrub, ScanState::Running) => 1,
            (ScanKind::Scrub, ScanState::Finished) => 2,
            (ScanKind::Scrub, ScanState::Canceled) => 3,
            (ScanKind::Scrub, ScanState::Paused) => 4,
            (ScanKind::Resilver, ScanState::Running | ScanState::Paused) => 5,
            (ScanKind::Resilver, ScanState::Finished | ScanState::Canceled) => 6,
        }
    }

    /// Returns the whole days since the scan ended; none while it runs.
    #[must_use]
    pub fn age_days(&self, now_unix_seconds: u64) -> Option<u64> {
        let ended = self.ended_unix_seconds?;
        Some(now_unix_seconds.saturating_sub(ended) / 86_400)
    }
}
