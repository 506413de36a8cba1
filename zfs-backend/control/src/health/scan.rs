//! Scrubs and resilvers.

use serde::Serialize;

/// What is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ScanKind {
    /// Everything is read and compared with its checksum.
    Scrub,
    /// What a device lacks is written to it.
    Resilver,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ScanState {
    /// It runs.
    Running,
    /// It was paused by hand.
    Paused,
    /// It came to its end.
    Finished,
    /// It was stopped by hand.
    Canceled,
}

/// The latest scrub or resilver of a pool; ZFS remembers no other.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scan {
    /// Which.
    pub kind: ScanKind,
    /// How far.
    pub state: ScanState,
    /// Its begin, in seconds since 1970; none when it is not told.
    pub started_unix_seconds: Option<u64>,
    /// Its end, in seconds since 1970; none while it runs.
    pub ended_unix_seconds: Option<u64>,
    /// What is to be read, in bytes; 0 when it is not told.
    pub total_bytes: u64,
    /// What has been found so far, in bytes.
    pub scanned_bytes: u64,
    /// What has been verified so far, in bytes.
    pub issued_bytes: u64,
    /// What was repaired, in bytes.
    pub repaired_bytes: u64,
    /// Errors it found.
    pub errors: u64,
    /// How much is done, 0 to 1; none when it is not told.
    pub done_ratio: Option<f64>,
}

impl Scan {
    /// One of which nothing else is known yet.
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

    /// Whether it runs or is paused.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.state, ScanState::Running | ScanState::Paused)
    }

    /// The number in `zfs_pool_scrub_state`, as the well-known exporter has it:
    /// 1 to 4 a scrub that runs, finished, was canceled, is paused; 5 and 6 a
    /// resilver that runs, finished. 0, no scan at all, is the caller's.
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

    /// Whole days since it ended; none while it runs.
    #[must_use]
    pub fn age_days(&self, now_unix_seconds: u64) -> Option<u64> {
        let ended = self.ended_unix_seconds?;
        Some(now_unix_seconds.saturating_sub(ended) / 86_400)
    }
}
