//! `zpool iostat -HplvyP SECONDS 1`: latencies of each vdev within that time.

use serde::Serialize;

/// Average latency of one kind of request, in nanoseconds; none if there were
/// no requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Wait {
    /// Reads.
    pub read_nanoseconds: Option<u64>,
    /// Writes.
    pub write_nanoseconds: Option<u64>,
}

/// Latencies of a pool or a vdev.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VdevLatency {
    /// Name of the pool.
    pub pool: String,
    /// Name of the vdev; the pool's own name for the whole pool.
    pub vdev: String,
    /// Reads within the measured time, per second.
    pub read_operations: u64,
    /// Writes within the measured time, per second.
    pub write_operations: u64,
    /// From queueing to completion.
    pub total: Wait,
    /// At the disk.
    pub disk: Wait,
    /// In the queues of synchronous requests.
    pub sync_queue: Wait,
    /// In the queues of asynchronous requests.
    pub async_queue: Wait,
}

/// Columns: name alloc free, operations, bandwidth, then pairs of waits.
const OPERATIONS: usize = 3;
const TOTAL: usize = 7;
const DISK: usize = 9;
const SYNC_QUEUE: usize = 11;
const ASYNC_QUEUE: usize = 13;
/// Least number of columns in a line with latencies.
const COLUMNS: usize = 15;

/// Parses the output for these pools, in this order.
#[must_use]
pub fn parse(text: &str, pools: &[&str]) -> Vec<VdevLatency> {
    let mut found = Vec::new();
    let mut pool = "";
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(name) = words.first().filter(|_| words.len() >= COLUMNS) else { continue };
        if let Some(known) = pools.iter().find(|known| *known == name) {
            pool = known;
        }
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        let wait = |at: usize| Wait {
            read_nanoseconds: number(at).filter(|nanoseconds| *nanoseconds > 0),
            write_nanoseconds: number(at + 1).filter(|nanoseconds| *nanoseconds > 0),
        };
        let (Some(read_operations), Some(write_operations)) =
            (number(OPERATIONS), number(OPERATIONS + 1))
        else {
            continue;
        };
        found.push(VdevLatency {
            pool: pool.to_owned(),
            vdev: (*name).to_owned(),
            read_operations,
            write_operations,
            total: wait(TOTAL),
            disk: wait(DISK),
            sync_queue: wait(SYNC_QUEUE),
            async_queue: wait(ASYNC_QUEUE),
        });
    }
    found
}
