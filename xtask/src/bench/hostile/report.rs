//! Comparison of the runs without and with the attack.

use super::attack::AttackReport;
use super::named::{Latencies, Latency};
use serde_json::{Value, json};
use std::fmt::Write;

/// Largest ratio of the 99th percentile under attack to the one without.
const MOST_TIMES: f64 = 2.0;

/// Resident memory of the gateway, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    /// After the warm-up.
    pub(super) before: u64,
    /// Peak during the attack.
    pub(super) peak: u64,
    /// Some time after the attack.
    pub(super) after: u64,
}

/// Results of a run.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) duration_seconds: u64,
    pub(super) quiet: Latencies,
    pub(super) attacked: Latencies,
    pub(super) memory: Memory,
    pub(super) attack: AttackReport,
}

fn times(quiet: Latency, attacked: Latency) -> f64 {
    f64::from(attacked.p99_microseconds) / f64::from(quiet.p99_microseconds.max(1))
}

impl Report {
    fn rows(&self) -> [(&'static str, Latency, Latency); 2] {
        [
            ("NFS 4 KiB read", self.quiet.nfs, self.attacked.nfs),
            ("iSCSI 4 KiB read", self.quiet.iscsi, self.attacked.iscsi),
        ]
    }

    /// Returns a table for people.
    pub(super) fn table(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(
            out,
            "{:<18} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}   p99, times",
            "named host, µs", "p50", "p99", "longest", "p50", "p99", "longest"
        );
        let _ = writeln!(out, "{:<18} {:>29} {:>29}", "", "quiet", "attacked");
        for (name, quiet, attacked) in self.rows() {
            let times = times(quiet, attacked);
            let word = if times <= MOST_TIMES { "bar met" } else { "BELOW BAR" };
            let _ = writeln!(
                out,
                "{name:<18} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}   {times:.2}  {word}",
                quiet.p50_microseconds,
                quiet.p99_microseconds,
                quiet.longest_microseconds,
                attacked.p50_microseconds,
                attacked.p99_microseconds,
                attacked.longest_microseconds,
            );
        }
        let Memory { before, peak, after } = self.memory;
        let (before, peak, after) = (before >> 20, peak >> 20, after >> 20);
        let _ = writeln!(
            out,
            "resident memory    {before} MiB before, {peak} MiB at most, {after} MiB after"
        );
        let attack = &self.attack;
        let _ = writeln!(
            out,
            "unnamed hosts      {} addresses, {} connections, {} open at most, {} closed by the \
             gateway, {} not made, {} KiB sent",
            attack.addresses,
            attack.connections,
            attack.open_at_most,
            attack.closed_by_gateway,
            attack.failed,
            attack.bytes_sent >> 10,
        );
        out
    }

    /// Returns JSON.
    pub(super) fn to_json(&self) -> Value {
        let rows: Vec<Value> = self
            .rows()
            .into_iter()
            .map(|(name, quiet, attacked)| {
                let times = times(quiet, attacked);
                json!({
                    "load": name, "quiet": quiet, "attacked": attacked,
                    "p99_times": times, "bar_met": times <= MOST_TIMES,
                })
            })
            .collect();
        json!({
            "duration_seconds": self.duration_seconds,
            "loads": rows,
            "resident_bytes": {
                "before": self.memory.before,
                "at_most": self.memory.peak,
                "after": self.memory.after,
            },
            "attack": self.attack,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_the_quiet_99th_percentile_is_the_bar() {
        let latency = |p99_microseconds| Latency {
            reads: 1,
            p50_microseconds: 1,
            p99_microseconds,
            longest_microseconds: 9,
        };
        let report = Report {
            duration_seconds: 1,
            quiet: Latencies { nfs: latency(10), iscsi: latency(10) },
            attacked: Latencies { nfs: latency(20), iscsi: latency(21) },
            memory: Memory { before: 1 << 20, peak: 3 << 20, after: 2 << 20 },
            attack: AttackReport::default(),
        };
        let met: Vec<_> = report.to_json()["loads"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["bar_met"].clone())
            .collect();
        assert_eq!(met, [true, false]);
        assert!(report.table().contains("1 MiB before, 3 MiB at most, 2 MiB after"));
    }
}
