//! `zpool iostat -HplvyP SECONDS 1`: how long requests to each vdev took within
//! that time.

use serde::Serialize;

/// How long requests of one kind took on average, in nanoseconds; none when
/// there were none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Wait {
    /// Reads.
    pub read_nanoseconds: Option<u64>,
    /// Writes.
    pub write_nanoseconds: Option<u64>,
}

/// A pool's or a vdev's latencies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VdevLatency {
    /// The pool.
    pub pool: String,
    /// The vdev; the pool's own name for all of it.
    pub vdev: String,
    /// Reads within the measured time, per second.
    pub read_operations: u64,
    /// Writes within the measured time, per second.
    pub write_operations: u64,
    /// From queueing to the end.
    pub total: Wait,
    /// At the disk.
    pub disk: Wait,
    /// In the queue of those somebody waits for.
    pub sync_queue: Wait,
    /// In the queue of those nobody waits for.
    pub async_queue: Wait,
}

/// Columns: name alloc free, operations, bandwidth, then pairs of waits.
const OPERATIONS: usize = 3;
const TOTAL: usize = 7;
const DISK: usize = 9;
const SYNC_QUEUE: usize = 11;
const ASYNC_QUEUE: usize = 13;
/// The least columns a line with waits has.
const COLUMNS: usize = 15;

/// Reads what it prints about these pools, in this order.
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
