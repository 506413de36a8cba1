//! Medians, ratios, and required ratios.

use super::medians;
use super::work::{LoadReport, Unit, Work};
use crate::bench::stats::median;
use crate::bench::{BEFORE, LEAST_OF_BEFORE};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

const OURS: &str = "zgate";

/// One measurement.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    pub(super) load: LoadReport,
    cpu_seconds: f64,
}

impl Figure {
    pub(crate) fn new(load: LoadReport, cpu_seconds: f64) -> Self {
        Self { load, cpu_seconds }
    }

    fn megabytes(&self) -> f64 {
        self.load.bytes as f64 / 1e6 / self.load.seconds
    }

    pub(super) fn rate(&self, unit: Unit) -> f64 {
        match unit {
            Unit::Megabytes => self.megabytes(),
            Unit::Operations => self.load.operations as f64 / self.load.seconds,
        }
    }

    /// Returns the server CPU: seconds per GiB, or microseconds per operation.
    pub(super) fn cost(&self, unit: Unit) -> f64 {
        match unit {
            Unit::Megabytes => self.cpu_seconds / (self.load.bytes as f64 / (1u64 << 30) as f64),
            Unit::Operations => self.cpu_seconds * 1e6 / self.load.operations as f64,
        }
    }
}

/// All measurements of a run.
#[derive(Debug)]
pub(crate) struct Report {
    rounds: usize,
    size_mib: u64,
    peer: &'static str,
    sync_names: bool,
    figures: BTreeMap<(Work, &'static str), Vec<Figure>>,
    cross_checks: BTreeMap<&'static str, Vec<f64>>,
    /// Peak memory of each server, in bytes.
    pub(crate) peak_memory: BTreeMap<&'static str, u64>,
}

impl Report {
    pub(crate) fn new(
        rounds: usize,
        size_mib: u64,
        (peer, sync_names): (&'static str, bool),
    ) -> Self {
        Self {
            rounds,
            size_mib,
            peer,
            sync_names,
            figures: BTreeMap::new(),
            cross_checks: BTreeMap::new(),
            peak_memory: BTreeMap::new(),
        }
    }

    pub(crate) fn add(&mut self, work: Work, server: &'static str, figure: Figure) {
        self.figures.entry((work, server)).or_default().push(figure);
    }

    pub(crate) fn add_cross_check(&mut self, server: &'static str, megabytes: f64) {
        self.cross_checks.entry(server).or_default().push(megabytes);
    }

    fn rate(&self, work: Work, server: &'static str) -> Option<f64> {
        self.figures.get(&(work, server)).map(|all| medians(all, |f| f.rate(work.unit())))
    }

    fn cost(&self, work: Work, server: &'static str) -> Option<f64> {
        self.figures.get(&(work, server)).map(|all| medians(all, |f| f.cost(work.unit())))
    }

    /// Returns the ratios of rate and cost to the peer's, and whether both meet
    /// the requirement.
    fn compared(&self, work: Work) -> Option<(f64, f64, bool)> {
        let rate = self.rate(work, OURS)? / self.rate(work, self.peer)?;
        let cost = self.cost(work, OURS)? / self.cost(work, self.peer)?;
        let (least, most) = if self.peer == BEFORE { (LEAST_OF_BEFORE, None) } else { work.bars() };
        Some((rate, cost, rate >= least && most.is_none_or(|most| cost <= most)))
    }

    /// Returns the stability of each server's name changes. NFS-Ganesha's VFS
    /// back end does not sync them and has no setting for it.
    fn names(&self) -> [(&'static str, &'static str); 2] {
        const SYNCED: &str = "on stable storage before the reply";
        const NOT_SYNCED: &str = "in memory at the reply";
        let ours = if self.sync_names { SYNCED } else { NOT_SYNCED };
        [(OURS, ours), (self.peer, if self.peer == BEFORE { ours } else { NOT_SYNCED })]
    }

    /// Returns a table for people.
    pub(crate) fn table(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(
            out,
            "medians of {} rounds, {} MiB file; CPU is the server's: s/GiB for MB/s, µs/op for op/s",
            self.rounds, self.size_mib
        );
        for (server, way) in self.names() {
            let _ = writeln!(out, "names of {server}: {way}");
        }
        let _ = writeln!(
            out,
            "{:<24} {:>12} {:>10} {:>8} {:>9} {:>9}   vs {}",
            "load", "server", "rate", "CPU", "p50 µs", "p99 µs", self.peer
        );
        for ((work, server), figures) in &self.figures {
            let unit = if work.unit() == Unit::Megabytes { "MB/s" } else { "op/s" };
            let versus = match self.compared(*work) {
                Some((rate, cost, met)) if *server == OURS => {
                    let word = if met { "bar met" } else { "BELOW BAR" };
                    format!("{rate:.2}× rate, {cost:.2}× CPU  {word}")
                }
                _ => String::new(),
            };
            let _ = writeln!(
                out,
                "{:<24} {:>12} {:>6.0} {unit} {:>7.2} {:>9.0} {:>9.0}   {versus}",
                work.name(),
                server,
                medians(figures, |f| f.rate(work.unit())),
                medians(figures, |f| f.cost(work.unit())),
                medians(figures, |f| f64::from(f.load.p50_microseconds)),
                medians(figures, |f| f64::from(f.load.p99_microseconds)),
            );
        }
        for (server, all) in &self.cross_checks {
            let _ =
                writeln!(out, "nfs-cat (v4.0)           {server:>12} {:>6.0} MB/s", median(all));
        }
        for (server, bytes) in &self.peak_memory {
            let _ = writeln!(out, "peak memory              {server:>12} {:>6} MiB", bytes >> 20);
        }
        out
    }

    /// Returns JSON.
    pub(crate) fn to_json(&self) -> Value {
        let loads: Vec<Value> = self
            .figures
            .iter()
            .map(|((work, server), figures)| {
                let compared = self.compared(*work).filter(|_| *server == OURS);
                json!({
                    "load": work.name(),
                    "server": server,
                    "unit": if work.unit() == Unit::Megabytes { "MB/s" } else { "op/s" },
                    "rate": medians(figures, |f| f.rate(work.unit())),
                    "rates": figures.iter().map(|f| f.rate(work.unit())).collect::<Vec<_>>(),
                    "cpu_unit": if work.unit() == Unit::Megabytes { "s/GiB" } else { "µs/op" },
                    "cpu": medians(figures, |f| f.cost(work.unit())),
                    "p50_microseconds": medians(figures, |f| f64::from(f.load.p50_microseconds)),
                    "p99_microseconds": medians(figures, |f| f64::from(f.load.p99_microseconds)),
                    "commit_seconds": medians(figures, |f| f.load.commit_seconds),
                    "rate_to_peer": compared.map(|c| c.0),
                    "cpu_to_peer": compared.map(|c| c.1),
                    "bars_met": compared.map(|c| c.2),
                })
            })
            .collect();
        json!({
            "rounds": self.rounds,
            "size_mib": self.size_mib,
            "names": BTreeMap::from(self.names()),
            "loads": loads,
            "nfs_cat_megabytes_per_second":
                self.cross_checks.iter().map(|(s, all)| (*s, median(all))).collect::<BTreeMap<_, _>>(),
            "peak_memory_bytes": self.peak_memory,
        })
    }
}
