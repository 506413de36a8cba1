//! Counters of the data path: relaxed atomics, one cache line per operation;
//! read on demand.

use crate::observe::data_path::DataPath;
use crate::observe::latency::LATENCY_BOUNDS_SECONDS;
use crate::observe::latency::{LATENCY_BUCKETS as BUCKETS, LatencyCounts};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use zgate_nfs::v4::server::Observer;
use zgate_nfs_wire::v4::OpNum;
use zgate_nfs_wire::v4::Status;

/// Number of operations: 0 to 75; OP_ILLEGAL is counted as 0.
const OPS: usize = 76;

/// Counters of one operation.
#[derive(Debug)]
pub(crate) struct OpCounters {
    buckets: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
    errors: AtomicU64,
}

/// Snapshot of one operation's counters.
#[derive(Clone, Debug)]
pub(crate) struct OpFigures {
    pub op: OpNum,
    /// Buckets, not cumulative.
    pub buckets: [u64; BUCKETS],
    pub seconds: f64,
    pub errors: u64,
}

/// All counters.
#[derive(Debug)]
pub(crate) struct Counters {
    started: Instant,
    ops: Box<[OpCounters]>,
    /// Errors by status number below 100, then by number minus 10 000.
    statuses: Box<[AtomicU64]>,
    /// NFSv3 procedures by number.
    procedures: Box<[OpCounters]>,
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
    /// Bytes carried and copied.
    pub data: Arc<DataPath>,
}

/// Snapshot of one NFSv3 procedure's counters.
#[derive(Clone, Debug)]
pub(crate) struct ProcedureFigures {
    pub name: &'static str,
    /// Buckets, not cumulative.
    pub buckets: [u64; BUCKETS],
    pub seconds: f64,
}

/// Number of NFSv3 procedures: 0 to 21.
const PROCEDURES: usize = 22;

/// Numbers of the NFSv3 procedures READ and WRITE (RFC 1813 §3).
const READ3: usize = 6;
const WRITE3: usize = 7;

const STATUSES: usize = 256;

/// Statuses that are shown before one of them is sent: alerts count them, and
/// Prometheus sees no increase in a series that begins with its first error.
const ALWAYS_SHOWN: [Status; 5] =
    [Status::Io, Status::Nospc, Status::Dquot, Status::Stale, Status::Serverfault];

fn status_slot(status: Status) -> usize {
    let number = status as u32 as usize;
    if number >= 10_000 { (number - 10_000 + 100).min(STATUSES - 1) } else { number.min(99) }
}

impl Default for Counters {
    fn default() -> Self {
        let op = || OpCounters {
            buckets: Default::default(),
            nanos: AtomicU64::new(0),
            errors: AtomicU64::new(0),
        };
        Self {
            started: Instant::now(),
            ops: (0..OPS).map(|_| op()).collect(),
            statuses: (0..STATUSES).map(|_| AtomicU64::new(0)).collect(),
            procedures: (0..PROCEDURES).map(|_| op()).collect(),
            received_bytes: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            data: Arc::default(),
        }
    }
}

impl OpCounters {
    fn record(&self, nanos: u64) {
        let seconds = nanos as f64 / 1e9;
        let bucket = LATENCY_BOUNDS_SECONDS.partition_point(|bound| *bound < seconds);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }
}

impl Counters {
    /// Creates counters that count data in `data`. `started` is the origin of
    /// [`Now::monotonic_nanos`](zgate_nfs::Now).
    pub(crate) fn counting_data(data: Arc<DataPath>, started: Instant) -> Self {
        Self { data, started, ..Self::default() }
    }

    pub(crate) fn bytes_in(&self, bytes: usize) {
        self.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn bytes_out(&self, bytes: usize) {
        self.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the bytes received and sent.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.received_bytes.load(Ordering::Relaxed), self.sent_bytes.load(Ordering::Relaxed))
    }

    /// Returns the operations that ran at least once.
    pub(crate) fn ops(&self) -> Vec<OpFigures> {
        let load = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        let figures = self.ops.iter().enumerate().filter_map(|(number, op)| {
            let buckets: [u64; BUCKETS] = std::array::from_fn(|at| load(&op.buckets[at]));
            if buckets.iter().all(|count| *count == 0) {
                return None;
            }
            let op_num = OpNum::from_u32(number as u32).unwrap_or(OpNum::Illegal);
            Some(OpFigures {
                op: op_num,
                buckets,
                seconds: load(&op.nanos) as f64 / 1e9,
                errors: load(&op.errors),
            })
        });
        figures.collect()
    }

    /// Counts an NFSv3 procedure that began at `begun`.
    pub(crate) fn procedure(&self, number: u32, begun: u64) {
        let Some(cell) = self.procedures.get(number as usize) else { return };
        cell.record((self.started.elapsed().as_nanos() as u64).saturating_sub(begun));
    }

    /// Returns the NFSv3 procedures that ran at least once.
    pub(crate) fn procedures(&self) -> Vec<ProcedureFigures> {
        let load = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        let figures = self.procedures.iter().enumerate().filter_map(|(number, cell)| {
            let buckets: [u64; BUCKETS] = std::array::from_fn(|at| load(&cell.buckets[at]));
            let name = zgate_nfs::v3::row(number as u32)?.name;
            let ran = buckets.iter().any(|count| *count > 0);
            ran.then(|| ProcedureFigures { name, buckets, seconds: load(&cell.nanos) as f64 / 1e9 })
        });
        figures.collect()
    }

    /// Returns the times of the reads and of the writes of all versions.
    pub(crate) fn transfers(&self) -> [LatencyCounts; 2] {
        let of_v4 = [&[OpNum::Read, OpNum::ReadPlus][..], &[OpNum::Write][..]];
        let of_v3 = [READ3, WRITE3];
        std::array::from_fn(|direction| {
            let v4 = of_v4[direction].iter().filter_map(|op| self.ops.get(*op as usize));
            let v3 = self.procedures.get(of_v3[direction]);
            let mut counts = [0; BUCKETS];
            for cell in v4.chain(v3) {
                for (count, bucket) in counts.iter_mut().zip(&cell.buckets) {
                    *count += bucket.load(Ordering::Relaxed);
                }
            }
            counts
        })
    }

    /// Returns the errors sent, by status; those of [`ALWAYS_SHOWN`] also while there
    /// are none.
    pub(crate) fn errors(&self) -> Vec<(Status, u64)> {
        let counts = self.statuses.iter().enumerate().filter_map(|(slot, count)| {
            let count = count.load(Ordering::Relaxed);
            let number = if slot >= 100 { slot - 100 + 10_000 } else { slot };
            let status = Status::from_u32(number as u32)?;
            (count > 0 || ALWAYS_SHOWN.contains(&status)).then_some((status, count))
        });
        counts.collect()
    }
}

impl Observer for Counters {
    fn end(&self, op: OpNum, status: Status, begun: u64) -> u64 {
        let now = self.started.elapsed().as_nanos() as u64;
        let number = op as usize;
        let cell = &self.ops[if number < OPS { number } else { 0 }];
        cell.record(now.saturating_sub(begun));
        if status != Status::Ok {
            cell.errors.fetch_add(1, Ordering::Relaxed);
            self.statuses[status_slot(status)].fetch_add(1, Ordering::Relaxed);
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_and_errors_are_counted() {
        let counters = Counters::default();
        assert_eq!(counters.errors(), ALWAYS_SHOWN.map(|status| (status, 0)));
        counters.end(OpNum::Read, Status::Ok, 0);
        counters.end(OpNum::Illegal, Status::OpIllegal, 0);
        let ops = counters.ops();
        assert_eq!(ops.len(), 2);
        assert_eq!(ops.iter().map(|op| op.errors).sum::<u64>(), 1);
        let errors = counters.errors();
        let sent: Vec<_> = errors.into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(sent, [(Status::OpIllegal, 1)]);
        counters.procedure(WRITE3 as u32, 0);
        let sums = counters.transfers().map(|counts| counts.iter().sum::<u64>());
        assert_eq!(sums, [1, 1], "a READ of version 4, a WRITE of version 3");
    }
}
