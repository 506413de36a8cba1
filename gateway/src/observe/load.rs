//! Load of one client, export, session or logical unit: requests, bytes and
//! time, as relaxed atomics that are read on demand.

use serde::Serialize;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one load, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Load {
    requests: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    busy_nanos: AtomicU64,
    running: AtomicU64,
}

/// Snapshot of a load since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct LoadFigures {
    pub requests: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Sum of the times that the requests took, in nanoseconds.
    pub busy_nanoseconds: u64,
    /// Requests in progress.
    pub running: u64,
}

impl AddAssign for LoadFigures {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.busy_nanoseconds += other.busy_nanoseconds;
        self.running += other.running;
    }
}

/// A finished request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FinishedRequest {
    pub nanos: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

impl Load {
    /// Counts a request that begins; [`Self::end`] must follow.
    pub(crate) fn begin(&self) {
        self.running.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of a request that began.
    pub(crate) fn end(&self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a finished request.
    pub(crate) fn finish(&self, request: FinishedRequest) {
        let FinishedRequest { nanos, read_bytes, written_bytes } = request;
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.busy_nanos.fetch_add(nanos, Ordering::Relaxed);
        if read_bytes > 0 {
            self.read_bytes.fetch_add(read_bytes, Ordering::Relaxed);
        }
        if written_bytes > 0 {
            self.written_bytes.fetch_add(written_bytes, Ordering::Relaxed);
        }
    }

    /// Returns the figures.
    pub(crate) fn figures(&self) -> LoadFigures {
        let load = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        LoadFigures {
            requests: load(&self.requests),
            read_bytes: load(&self.read_bytes),
            written_bytes: load(&self.written_bytes),
            busy_nanoseconds: load(&self.busy_nanos),
            running: load(&self.running),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_counts_requests_bytes_and_time() {
        let one = FinishedRequest { nanos: 5, read_bytes: 4096, written_bytes: 0 };
        let load = Load::default();
        load.begin();
        load.finish(one);
        assert_eq!(load.figures().running, 1);
        load.end();
        let mut sum = load.figures();
        sum += load.figures();
        assert_eq!((sum.requests, sum.read_bytes, sum.busy_nanoseconds), (2, 8192, 10));
        assert_eq!((sum.written_bytes, sum.running), (0, 0));
    }
}
