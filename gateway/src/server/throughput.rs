//! Throughput and latency, of the last seconds and of the last hour.

use super::limits::HISTORY_POINTS;
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use utoipa::ToSchema;

/// Throughput and latency in `zgate status`.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Throughput {
    /// Time over which the figures were measured.
    pub seconds: f64,
    /// NFS calls to exports, and SCSI commands.
    pub requests_per_second: f64,
    pub read: Transfers,
    pub write: Transfers,
}

/// Reads or writes within a time.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Transfers {
    pub operations_per_second: f64,
    pub bytes_per_second: f64,
    /// Absent if there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub median_seconds: Option<f64>,
    /// Absent if there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percentile_99_seconds: Option<f64>,
}

/// Throughput and latency of a few seconds that have passed.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct HistoryPoint {
    /// End of the measurement, in seconds since 1970.
    pub unix_seconds: u64,
    #[serde(flatten)]
    pub throughput: Throughput,
}

/// Points of the last hour, in memory only.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<VecDeque<HistoryPoint>>);

impl History {
    fn locked(&self) -> MutexGuard<'_, VecDeque<HistoryPoint>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a point; the oldest leaves.
    pub(crate) fn push(&self, point: HistoryPoint) {
        let mut points = self.locked();
        while points.len() >= HISTORY_POINTS {
            points.pop_front();
        }
        points.push_back(point);
    }

    /// Returns all points, the oldest first.
    pub(crate) fn points(&self) -> Vec<HistoryPoint> {
        self.locked().iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_kept_and_no_more() {
        let idle = Transfers {
            operations_per_second: 0.0,
            bytes_per_second: 0.0,
            median_seconds: None,
            percentile_99_seconds: None,
        };
        let throughput =
            Throughput { seconds: 5.0, requests_per_second: 0.0, read: idle.clone(), write: idle };
        let history = History::default();
        for unix_seconds in 0..3 * HISTORY_POINTS as u64 {
            history.push(HistoryPoint { unix_seconds, throughput: throughput.clone() });
        }
        let points = history.points();
        assert_eq!(points.len(), HISTORY_POINTS);
        assert_eq!(points[0].unix_seconds, 2 * HISTORY_POINTS as u64);
        assert_eq!(points[HISTORY_POINTS - 1].unix_seconds, 3 * HISTORY_POINTS as u64 - 1);
        let json = serde_json::to_value(&points[0]).unwrap();
        assert_eq!((&json["seconds"], json.get("throughput")), (&5.0.into(), None));
    }
}
