//! Throughput and latency of the last seconds and the last hour: the counters,
//! sampled once a second.

use super::limits::HISTORY_STEP;
use super::shared::Shared;
use super::throughput::{History, HistoryPoint, Throughput, Transfers};
use crate::observe::data_path::DataPath;
use crate::observe::latency::{LatencyCounts, quantile};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Number of samples kept, one second apart.
const SAMPLES: usize = 10;
/// Shortest time over which a rate is computed.
const SHORTEST: Duration = Duration::from_millis(100);

/// Counters at one moment.
#[derive(Clone, Debug)]
struct Sample {
    at: Instant,
    requests: u64,
    /// Reads, then writes.
    bytes: [u64; 2],
    times: [LatencyCounts; 2],
}

/// Samples of the last seconds, and what they show of the last hour.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    samples: Mutex<VecDeque<Sample>>,
    /// Beginning of the next point of the history.
    begun: Mutex<Option<Sample>>,
    pub history: Arc<History>,
}

impl Sample {
    fn take(shared: &Shared) -> Self {
        let [mut reads, mut writes] = shared.nfs.metrics.transfers();
        let (commands, [scsi_reads, scsi_writes]) = shared.iscsi.stats.transfers();
        for (counts, more) in [(&mut reads, scsi_reads), (&mut writes, scsi_writes)] {
            counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
        }
        Self {
            at: Instant::now(),
            requests: shared.nfs.loads.calls() + commands,
            bytes: moved_bytes(&shared.nfs.metrics.data),
            times: [reads, writes],
        }
    }

    fn since(&self, before: &Self) -> Option<Throughput> {
        let elapsed = self.at.saturating_duration_since(before.at);
        if elapsed < SHORTEST {
            return None;
        }
        let seconds = elapsed.as_secs_f64();
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        let transfers = |direction: usize| {
            let (now, then) = (&self.times[direction], &before.times[direction]);
            let times: LatencyCounts =
                std::array::from_fn(|bucket| now[bucket].saturating_sub(then[bucket]));
            Transfers {
                operations_per_second: times.iter().sum::<u64>() as f64 / seconds,
                bytes_per_second: rate(self.bytes[direction], before.bytes[direction]),
                median_seconds: quantile(&times, 0.5),
                percentile_99_seconds: quantile(&times, 0.99),
            }
        };
        Some(Throughput {
            seconds,
            requests_per_second: rate(self.requests, before.requests),
            read: transfers(0),
            write: transfers(1),
        })
    }
}

/// Bytes read and written over all transports.
fn moved_bytes(data: &DataPath) -> [u64; 2] {
    let mut bytes = [0; 2];
    for one in data.figures() {
        bytes[usize::from(one.direction == "write")] += one.moved_bytes;
    }
    bytes
}

impl Recent {
    /// Takes a sample; called once a second.
    pub(crate) fn tick(&self, shared: &Shared) {
        let sample = Sample::take(shared);
        self.add_to_history(&sample, unix_seconds());
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.truncate(SAMPLES - 1);
        samples.push_front(sample);
    }

    /// Adds a point to the history every few seconds. A clock that ticks a
    /// little early does not make it wait for another second.
    fn add_to_history(&self, sample: &Sample, unix_seconds: u64) {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = &*begun {
            let elapsed = sample.at.saturating_duration_since(before.at);
            if elapsed + SHORTEST < HISTORY_STEP {
                return;
            }
            if let Some(throughput) = sample.since(before) {
                self.history.push(HistoryPoint { unix_seconds, throughput });
            }
        }
        *begun = Some(sample.clone());
    }

    /// Returns throughput and latency of the last seconds; none right after the
    /// start.
    pub(crate) fn throughput(&self, shared: &Shared) -> Option<Throughput> {
        let now = Sample::take(shared);
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.back().and_then(|oldest| now.since(oldest))
    }
}

/// Returns the seconds since 1970.
fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::latency::LATENCY_BUCKETS;

    #[test]
    fn rates_are_differences_by_time() {
        let at = Instant::now();
        let idle = [[0; LATENCY_BUCKETS]; 2];
        let first = Sample { at, requests: 100, bytes: [1000, 0], times: idle };
        let mut times = idle;
        times[0][4] = 6;
        let later = at + Duration::from_secs(2);
        let second = Sample { at: later, requests: 110, bytes: [5000, 0], times };
        let found = second.since(&first).unwrap();
        assert_eq!((found.seconds, found.requests_per_second), (2.0, 5.0));
        assert_eq!((found.read.operations_per_second, found.read.bytes_per_second), (3.0, 2000.0));
        assert!(found.read.median_seconds.is_some() && found.write.median_seconds.is_none());
        assert_eq!(first.since(&second), None, "no time has passed");
    }

    #[test]
    fn the_history_has_a_point_every_few_seconds() {
        let recent = Recent::default();
        let start = Instant::now();
        let idle = [[0; LATENCY_BUCKETS]; 2];
        // Ticks are a little early, and requests come at 10 a second.
        for tick in 0..=20_u32 {
            let at =
                start + (Duration::from_secs(1) * tick).saturating_sub(SHORTEST / 2 * (tick % 2));
            let requests = u64::from(tick) * 10;
            let sample = Sample { at, requests, bytes: [0, 0], times: idle };
            recent.add_to_history(&sample, u64::from(tick));
        }
        let points = recent.history.points();
        let at: Vec<_> = points.iter().map(|point| point.unix_seconds).collect();
        assert_eq!(at, [5, 10, 15, 20]);
        let rates = points.iter().map(|point| point.throughput.requests_per_second.round());
        assert!(rates.into_iter().all(|rate| rate == 10.0), "{points:?}");
    }
}
