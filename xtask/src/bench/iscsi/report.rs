//! Medians, ratios, and required ratios.

use super::load::{LoadReport, Work};
use crate::bench::stats::median;
use crate::bench::{BEFORE, LEAST_OF_BEFORE};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

const OURS: &str = "zgate";

/// One measurement.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    pub(crate) load: LoadReport,
    pub(crate) cpu_seconds: f64,
}

impl Figure {
    fn rate(&self, bulk: bool) -> f64 {
        let amount = if bulk { self.load.bytes as f64 / 1e6 } else { self.load.operations as f64 };
        amount / self.load.seconds
    }

    /// Returns the server CPU: seconds per GiB, or microseconds per command.
    fn cost(&self, bulk: bool) -> f64 {
        if bulk {
            self.cpu_seconds / (self.load.bytes as f64 / (1u64 << 30) as f64)
        } else {
            self.cpu_seconds * 1e6 / self.load.operations as f64
        }
    }
}

/// All measurements of a run.
#[derive(Debug)]
pub(crate) struct Report {
    rounds: usize,
    size_mib: u64,
    peer: &'static str,
    figures: BTreeMap<(Work, &'static str), Vec<Figure>>,
    cross_checks: BTreeMap<(bool, &'static str), Vec<(f64, f64)>>,
    /// Peak memory of each server, in bytes.
    pub(crate) peak_memory: BTreeMap<&'static str, u64>,
}

impl Report {
    pub(crate) fn new(rounds: usize, size_mib: u64, peer: &'static str) -> Self {
        Self {
            rounds,
            size_mib,
            peer,
            figures: BTreeMap::new(),
            cross_checks: BTreeMap::new(),
            peak_memory: BTreeMap::new(),
        }
    }

    pub(crate) fn add(&mut self, work: Work, server: &'static str, figure: Figure) {
        self.figures.entry((work, server)).or_default().push(figure);
    }

    pub(crate) fn add_cross_check(&mut self, random: bool, server: &'static str, rate: (f64, f64)) {
        self.cross_checks.entry((random, server)).or_default().push(rate);
    }

    fn median(
        &self,
        work: Work,
        server: &'static str,
        of: fn(&Figure, bool) -> f64,
    ) -> Option<f64> {
        let figures = self.figures.get(&(work, server))?;
        Some(median(&figures.iter().map(|f| of(f, work.is_bulk())).collect::<Vec<_>>()))
    }

    /// Returns the ratios of rate and cost to the peer's, and whether they meet
    /// the requirement: bulk 1.5 times the rate at half the CPU, random twice
    /// at 0.4.
    fn compared(&self, work: Work) -> Option<(f64, f64, bool)> {
        let ratio = |of| Some(self.median(work, OURS, of)? / self.median(work, self.peer, of)?);
        let (rate, cost): (f64, f64) = (ratio(Figure::rate)?, ratio(Figure::cost)?);
        let (least, most) = match self.peer {
            BEFORE => (LEAST_OF_BEFORE, f64::INFINITY),
            _ if work.is_bulk() => (1.5, 0.5),
            _ => (2.0, 0.4),
        };
        Some((rate, cost, rate >= least && cost <= most))
    }

    /// Returns a table for people.
    pub(crate) fn table(&self) -> String {
        let mut out = format!(
            "medians of {} rounds, {} MiB disk; CPU is the server's: s/GiB for MB/s, µs/command\n",
            self.rounds, self.size_mib
        );
        for ((work, server), figures) in &self.figures {
            let unit = if work.is_bulk() { "MB/s" } else { "IOPS" };
            let latency = |of: fn(&LoadReport) -> u32| {
                median(&figures.iter().map(|f| f64::from(of(&f.load))).collect::<Vec<_>>())
            };
            let versus = match self.compared(*work) {
                Some((rate, cost, met)) if *server == OURS => {
                    let word = if met { "bar met" } else { "BELOW BAR" };
                    format!("{rate:.2}× rate, {cost:.2}× CPU  {word}")
                }
                _ => String::new(),
            };
            let _ = writeln!(
                out,
                "{:<24} {:>6} {:>8.0} {unit} {:>7.2} CPU  p50 {:>6.0} µs  p99 {:>6.0} µs   {versus}",
                work.name(),
                server,
                self.median(*work, server, Figure::rate).unwrap_or(f64::NAN),
                self.median(*work, server, Figure::cost).unwrap_or(f64::NAN),
                latency(|l| l.p50_microseconds),
                latency(|l| l.p99_microseconds),
            );
        }
        for ((random, server), all) in &self.cross_checks {
            let (rate, cpu) = middle(all);
            let what = if *random { "4 KiB random" } else { "1 MiB" };
            let _ = writeln!(
                out,
                "iscsi-perf {what:<13} {server:>6} {rate:>8.0} a second {:>8.1} µs CPU each",
                cpu * 1e6
            );
        }
        for (server, bytes) in &self.peak_memory {
            let _ = writeln!(out, "peak memory {server:>19} {:>8} MiB", bytes >> 20);
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
                let bulk = work.is_bulk();
                json!({
                    "load": work.name(),
                    "server": server,
                    "unit": if bulk { "MB/s" } else { "IOPS" },
                    "rate": self.median(*work, server, Figure::rate),
                    "rates": figures.iter().map(|f| f.rate(bulk)).collect::<Vec<_>>(),
                    "cpu_unit": if bulk { "s/GiB" } else { "µs/command" },
                    "cpu": self.median(*work, server, Figure::cost),
                    "rate_to_peer": compared.map(|c| c.0),
                    "cpu_to_peer": compared.map(|c| c.1),
                    "bars_met": compared.map(|c| c.2),
                })
            })
            .collect();
        let checks: Vec<Value> = self
            .cross_checks
            .iter()
            .map(|((random, server), all)| {
                let (rate, cpu) = middle(all);
                json!({
                    "random": random,
                    "server": server,
                    "transfers_per_second": rate,
                    "cpu_microseconds": cpu * 1e6,
                })
            })
            .collect();
        json!({
            "rounds": self.rounds,
            "size_mib": self.size_mib,
            "loads": loads,
            "iscsi_perf": checks,
            "peak_memory_bytes": self.peak_memory,
        })
    }
}

fn middle(all: &[(f64, f64)]) -> (f64, f64) {
    let of = |pick: fn(&(f64, f64)) -> f64| median(&all.iter().map(pick).collect::<Vec<_>>());
    (of(|pair| pair.0), of(|pair| pair.1))
}
