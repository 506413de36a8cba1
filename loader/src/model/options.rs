//! Options and progress of a load.

use super::checksum::Verify;
use super::share::Share;
use std::sync::atomic::{AtomicU64, Ordering};

/// Options of a load.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Most bytes being read or waiting to be taken; if a single region is
    /// larger, that region.
    pub inflight_bytes: u64,
    /// Most requests in flight.
    pub depth: usize,
    /// Checksums to compare.
    pub verify: Verify,
    /// Ranks of this host that share the reads.
    pub share: Option<Share>,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self { inflight_bytes: 256 << 20, depth: 16, verify: Verify::Off, share: None }
    }
}

/// Progress of a load.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
}

impl Progress {
    /// Returns the bytes read.
    #[must_use]
    pub fn done_bytes(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }
}
