//! Space behind a thin logical unit.

/// Space behind a thin logical unit: the values of the Logical Block
/// Provisioning log and mode pages, and the threshold of warnings (SBC-4
/// §4.7.3.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThinSpace {
    /// Bytes the store can still allocate for this logical unit.
    pub available_bytes: u64,
    /// Bytes it has allocated.
    pub used_bytes: u64,
    /// Threshold in bytes: initiators are warned when no more than this is
    /// available; 0: never.
    pub threshold_bytes: u64,
}

impl ThinSpace {
    /// Returns whether the available space has reached the threshold.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.threshold_bytes > 0 && self.available_bytes <= self.threshold_bytes
    }

    /// Returns whether enough space is available again to arm another warning:
    /// a tenth above the threshold, so that a store near the threshold does not
    /// warn repeatedly.
    pub(super) fn is_relaxed(&self) -> bool {
        self.available_bytes > self.threshold_bytes.saturating_add(self.threshold_bytes / 10)
    }
}
