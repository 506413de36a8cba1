//! Counters of the data path: relaxed atomics, one cache line of work per
//! operation; read when somebody asks.

use crate::serve::data_path::DataPath;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use zgate_nfs::v4::Status;
use zgate_nfs::v4::server::Observer;
use zgate_nfs::v4::wire::OpNum;

/// Upper bounds of the latency buckets in seconds; the last bucket is open.
pub(crate) const LATENCY_BOUNDS_SECONDS: [f64; 20] = [
    5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5,
    1.0, 2.0, 5.0, 10.0,
];
const BUCKETS: usize = LATENCY_BOUNDS_SECONDS.len() + 1;
/// Operation numbers 0 to 75; OP_ILLEGAL is counted as 0.
const OPS: usize = 76;

/// One operation's figures.
#[derive(Debug)]
pub(crate) struct OpCounters {
    buckets: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
    errors: AtomicU64,
}

/// A copy of one operation's figures.
#[derive(Clone, Debug)]
pub(crate) struct OpFigures {
    pub op: OpNum,
    /// Not cumulative.
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
    refused: AtomicU64,
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
    /// Data carried and copied.
    pub data: Arc<DataPath>,
}

/// A copy of one NFSv3 procedure's figures.
#[derive(Clone, Debug)]
pub(crate) struct ProcedureFigures {
    pub name: &'static str,
    /// Not cumulative.
    pub buckets: [u64; BUCKETS],
    pub seconds: f64,
}

/// NFSv3 procedures 0 to 21.
const PROCEDURES: usize = 22;

const STATUSES: usize = 256;

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
            refused: AtomicU64::new(0),
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
    /// Counters that count data into `data`.
    pub(crate) fn counting_data(data: Arc<DataPath>) -> Self {
        Self { data, ..Self::default() }
    }

    pub(crate) fn bytes_in(&self, bytes: usize) {
        self.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn bytes_out(&self, bytes: usize) {
        self.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes received and sent.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.received_bytes.load(Ordering::Relaxed), self.sent_bytes.load(Ordering::Relaxed))
    }

    /// Operations that ran at least once.
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

    /// An NFSv3 procedure that began at `begun` ended.
    pub(crate) fn procedure(&self, number: u32, begun: u64) {
        let Some(cell) = self.procedures.get(number as usize) else { return };
        cell.record((self.started.elapsed().as_nanos() as u64).saturating_sub(begun));
    }

    /// NFSv3 procedures that ran at least once.
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

    /// A connection was refused because there are too many.
    pub(crate) fn connection_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Connections refused so far.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Errors answered, by status.
    pub(crate) fn errors(&self) -> Vec<(Status, u64)> {
        let counts = self.statuses.iter().enumerate().filter_map(|(slot, count)| {
            let count = count.load(Ordering::Relaxed);
            let number = if slot >= 100 { slot - 100 + 10_000 } else { slot };
            (count > 0).then_some((Status::from_u32(number as u32)?, count))
        });
        counts.collect()
    }
}

impl Observer for Counters {
    fn begin(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    fn end(&self, op: OpNum, status: Status, begun: u64) {
        let nanos = (self.started.elapsed().as_nanos() as u64).saturating_sub(begun);
        let number = op as usize;
        let Some(cell) = self.ops.get(if number < OPS { number } else { 0 }) else { return };
        cell.record(nanos);
        if status != Status::Ok {
            cell.errors.fetch_add(1, Ordering::Relaxed);
            self.statuses[status_slot(status)].fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_and_errors_are_counted() {
        let counters = Counters::default();
        counters.end(OpNum::Read, Status::Ok, counters.begin());
        counters.end(OpNum::Illegal, Status::OpIllegal, counters.begin());
        let ops = counters.ops();
        assert_eq!(ops.len(), 2);
        assert_eq!(ops.iter().map(|op| op.errors).sum::<u64>(), 1);
        assert_eq!(counters.errors(), [(Status::OpIllegal, 1)]);
    }
}
