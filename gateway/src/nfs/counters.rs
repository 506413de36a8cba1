//! Counters of the data path: relaxed atomics, in shards of the threads; read on demand.

use crate::observe::data_path::DataPath;
use crate::observe::latency::LATENCY_BOUNDS_SECONDS;
use crate::observe::latency::{LATENCY_BUCKETS as BUCKETS, LatencyCounts};
use crate::observe::sharded::Sharded;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use zgate_nfs::v4::server::Observer;
use zgate_nfs_wire::v4::OpNum;
use zgate_nfs_wire::v4::Status;

/// Number of operations: 0 to 75; OP_ILLEGAL is counted as 0.
const OPS: usize = 76;

/// Counters of one operation.
#[derive(Debug, Default)]
struct OpCounters {
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

/// Counters of one shard of the threads.
#[derive(Debug)]
struct Shard {
    ops: [OpCounters; OPS],
    /// Errors by status number below 100, then by number minus 10 000.
    statuses: [AtomicU64; STATUSES],
    /// NFSv3 procedures by number.
    procedures: [OpCounters; PROCEDURES],
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
}

/// All counters.
#[derive(Debug)]
pub(crate) struct Counters {
    started: Instant,
    shards: Sharded<Shard>,
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

impl Default for Shard {
    fn default() -> Self {
        Self {
            ops: std::array::from_fn(|_| OpCounters::default()),
            statuses: [const { AtomicU64::new(0) }; STATUSES],
            procedures: std::array::from_fn(|_| OpCounters::default()),
            received_bytes: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
        }
    }
}

impl Default for Counters {
    fn default() -> Self {
        Self { started: Instant::now(), shards: Sharded::default(), data: Arc::default() }
    }
}

impl OpCounters {
    fn record(&self, nanos: u64) {
        let seconds = nanos as f64 / 1e9;
        let bucket = LATENCY_BOUNDS_SECONDS.partition_point(|bound| *bound < seconds);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Counts one that took no time that was measured.
    fn record_at_once(&self) {
        self.buckets[0].fetch_add(1, Ordering::Relaxed);
    }
}

impl Counters {
    /// Creates counters that count data in `data`. `started` is the origin of
    /// [`Now::monotonic_nanos`](zgate_nfs::Now).
    pub(crate) fn counting_data(data: Arc<DataPath>, started: Instant) -> Self {
        Self { data, started, ..Self::default() }
    }

    pub(crate) fn bytes_in(&self, bytes: usize) {
        self.shards.here().received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn bytes_out(&self, bytes: usize) {
        self.shards.here().sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the sum of a counter in all shards.
    fn sum(&self, counter: impl Fn(&Shard) -> &AtomicU64) -> u64 {
        self.shards.sum(|shard| counter(shard).load(Ordering::Relaxed))
    }

    /// Returns the sums of the buckets of an operation or procedure.
    fn buckets(&self, of: impl Fn(&Shard) -> &OpCounters) -> LatencyCounts {
        std::array::from_fn(|at| self.sum(|shard| &of(shard).buckets[at]))
    }

    /// Returns the bytes received and sent.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.sum(|shard| &shard.received_bytes), self.sum(|shard| &shard.sent_bytes))
    }

    /// Returns the operations that ran at least once.
    pub(crate) fn ops(&self) -> Vec<OpFigures> {
        let figures = (0..OPS).filter_map(|number| {
            let buckets = self.buckets(|shard| &shard.ops[number]);
            if buckets.iter().all(|count| *count == 0) {
                return None;
            }
            Some(OpFigures {
                op: OpNum::from_u32(number as u32).unwrap_or(OpNum::Illegal),
                buckets,
                seconds: self.sum(|shard| &shard.ops[number].nanos) as f64 / 1e9,
                errors: self.sum(|shard| &shard.ops[number].errors),
            })
        });
        figures.collect()
    }

    /// Returns the counters of an operation; its status is counted.
    fn counted(&self, op: OpNum, status: Status) -> &OpCounters {
        let (shard, number) = (self.shards.here(), op as usize);
        let cell = &shard.ops[if number < OPS { number } else { 0 }];
        if status != Status::Ok {
            cell.errors.fetch_add(1, Ordering::Relaxed);
            shard.statuses[status_slot(status)].fetch_add(1, Ordering::Relaxed);
        }
        cell
    }

    /// Counts an NFSv3 procedure that began at `begun`.
    pub(crate) fn procedure(&self, number: u32, begun: u64) {
        let Some(cell) = self.shards.here().procedures.get(number as usize) else { return };
        cell.record((self.started.elapsed().as_nanos() as u64).saturating_sub(begun));
    }

    /// Returns the NFSv3 procedures that ran at least once.
    pub(crate) fn procedures(&self) -> Vec<ProcedureFigures> {
        let figures = (0..PROCEDURES).filter_map(|number| {
            let buckets = self.buckets(|shard| &shard.procedures[number]);
            let name = zgate_nfs::v3::row(number as u32)?.name;
            let seconds = self.sum(|shard| &shard.procedures[number].nanos) as f64 / 1e9;
            let ran = buckets.iter().any(|count| *count > 0);
            ran.then_some(ProcedureFigures { name, buckets, seconds })
        });
        figures.collect()
    }

    /// Returns the times of the reads and of the writes of all versions.
    pub(crate) fn transfers(&self) -> [LatencyCounts; 2] {
        let of_v4 = [&[OpNum::Read, OpNum::ReadPlus][..], &[OpNum::Write][..]];
        let of_v3 = [READ3, WRITE3];
        std::array::from_fn(|direction| {
            let mut counts = self.buckets(|shard| &shard.procedures[of_v3[direction]]);
            for op in of_v4[direction] {
                let buckets = self.buckets(|shard| &shard.ops[*op as usize]);
                counts.iter_mut().zip(buckets).for_each(|(count, more)| *count += more);
            }
            counts
        })
    }

    /// Returns the errors sent, by status; those of [`ALWAYS_SHOWN`] also while there
    /// are none.
    pub(crate) fn errors(&self) -> Vec<(Status, u64)> {
        let counts = (0..STATUSES).filter_map(|slot| {
            let count = self.sum(|shard| &shard.statuses[slot]);
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
        self.counted(op, status).record(now.saturating_sub(begun));
        now
    }

    fn end_at_once(&self, op: OpNum, status: Status) {
        self.counted(op, status).record_at_once();
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

    #[test]
    fn what_waits_for_nothing_is_counted_without_a_time() {
        let counters = Counters::default();
        counters.end_at_once(OpNum::Putfh, Status::Ok);
        counters.end_at_once(OpNum::Putfh, Status::Stale);
        let ops = counters.ops();
        let [putfh] = ops.as_slice() else { panic!("one operation has run") };
        assert_eq!((putfh.op, putfh.seconds, putfh.errors), (OpNum::Putfh, 0.0, 1));
        assert_eq!((putfh.buckets[0], putfh.buckets.iter().sum::<u64>()), (2, 2));
        assert!(counters.errors().contains(&(Status::Stale, 1)));
    }

    #[test]
    fn what_all_threads_count_is_shown_as_one() {
        let counters = Counters::default();
        std::thread::scope(|scope| {
            for _ in 0..5 {
                scope.spawn(|| {
                    counters.end(OpNum::Read, Status::Io, 0);
                    counters.procedure(READ3 as u32, 0);
                    counters.bytes_in(100);
                    counters.bytes_out(20);
                });
            }
        });
        let (ops, procedures) = (counters.ops(), counters.procedures());
        assert_eq!((ops.len(), procedures.len()), (1, 1));
        assert_eq!((ops[0].buckets.iter().sum::<u64>(), ops[0].errors), (5, 5));
        let reads = procedures[0].buckets.iter().sum::<u64>();
        assert_eq!((procedures[0].name, reads), ("READ", 5));
        assert!(counters.errors().contains(&(Status::Io, 5)));
        assert_eq!(counters.bytes(), (500, 100));
    }
}
