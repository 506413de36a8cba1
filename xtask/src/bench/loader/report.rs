//! Medians, ratios, and the required ratio.

use super::contender::{Contender, Figure};
use crate::bench::stats::median;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Required speed of `zgate load --stream` relative to nfs-cat: neither keeps
/// the data.
const BAR: f64 = 1.8;

/// All loads of a run.
#[derive(Debug)]
pub(super) struct Report {
    bytes: u64,
    files: usize,
    connections: usize,
    figures: BTreeMap<Contender, Vec<Figure>>,
    pub(super) server_peak_bytes: u64,
}

impl Report {
    pub(super) fn new(bytes: u64, files: usize, connections: usize) -> Self {
        Self { bytes, files, connections, figures: BTreeMap::new(), server_peak_bytes: 0 }
    }

    pub(super) fn add(&mut self, contender: Contender, figure: Figure) {
        self.figures.entry(contender).or_default().push(figure);
    }

    fn median(&self, contender: Contender, of: impl Fn(&Figure) -> f64) -> f64 {
        let figures = self.figures.get(&contender).map_or(&[][..], Vec::as_slice);
        median(&figures.iter().map(of).collect::<Vec<_>>())
    }

    fn gigabytes(&self) -> f64 {
        self.bytes as f64 / 1e9
    }

    /// Returns the median rate in GB/s.
    fn rate(&self, contender: Contender) -> f64 {
        self.median(contender, |figure| self.gigabytes() / figure.seconds)
    }

    /// Returns the median ratio of two clients' speeds within a round.
    fn ratio(&self, of: Contender, to: Contender) -> f64 {
        let empty = Vec::new();
        let ours = self.figures.get(&of).unwrap_or(&empty);
        let theirs = self.figures.get(&to).unwrap_or(&empty);
        let ratios: Vec<f64> =
            ours.iter().zip(theirs).map(|(our, their)| their.seconds / our.seconds).collect();
        median(&ratios)
    }

    /// Returns a table for people.
    pub(super) fn table(&self) -> String {
        let mut out = String::new();
        let rounds = self.figures.values().map(Vec::len).max().unwrap_or(0);
        let _ = writeln!(
            out,
            "{:.2} GB in {} files, medians of {rounds} rounds, {} connections; CPU in s/GB",
            self.gigabytes(),
            self.files,
            self.connections
        );
        let _ = writeln!(
            out,
            "{:<20} {:>7} {:>11} {:>11} {:>12}",
            "", "GB/s", "client CPU", "server CPU", "client peak"
        );
        for contender in self.figures.keys().copied() {
            let _ = writeln!(
                out,
                "{:<20} {:>7.2} {:>11.2} {:>11.2} {:>8.0} MiB",
                contender.name(),
                self.rate(contender),
                self.median(contender, |f| f.client_cpu_seconds) / self.gigabytes(),
                self.median(contender, |f| f.server_cpu_seconds) / self.gigabytes(),
                self.median(contender, |f| f.client_peak_bytes as f64) / f64::from(1 << 20),
            );
        }
        let ratio = self.ratio(Contender::Stream, Contender::NfsCat);
        let word = if ratio >= BAR { "bar met" } else { "BELOW BAR" };
        let _ = writeln!(
            out,
            "nothing kept: {ratio:.2}× nfs-cat (at least {BAR}×: {word})\n\
             all kept: {:.2}× nfs-cat, {:.2}× the local files\n\
             server's peak memory {} MiB",
            self.ratio(Contender::Keep, Contender::NfsCat),
            self.ratio(Contender::Keep, Contender::Local),
            self.server_peak_bytes >> 20
        );
        out
    }

    /// Returns JSON.
    pub(super) fn to_json(&self) -> Value {
        let loads: Vec<Value> = self
            .figures
            .iter()
            .map(|(contender, figures)| {
                json!({
                    "loader": contender.name(),
                    "gigabytes_per_second": self.rate(*contender),
                    "seconds": figures.iter().map(|f| f.seconds).collect::<Vec<_>>(),
                    "client_cpu_seconds_per_gigabyte":
                        self.median(*contender, |f| f.client_cpu_seconds) / self.gigabytes(),
                    "server_cpu_seconds_per_gigabyte":
                        self.median(*contender, |f| f.server_cpu_seconds) / self.gigabytes(),
                    "client_peak_memory_bytes":
                        self.median(*contender, |f| f.client_peak_bytes as f64),
                })
            })
            .collect();
        let ratio = self.ratio(Contender::Stream, Contender::NfsCat);
        json!({
            "model_bytes": self.bytes,
            "files": self.files,
            "connections": self.connections,
            "loads": loads,
            "stream_rate_to_nfs_cat": ratio,
            "keep_rate_to_nfs_cat": self.ratio(Contender::Keep, Contender::NfsCat),
            "bar": BAR,
            "bar_met": ratio >= BAR,
            "keep_rate_to_local_files": self.ratio(Contender::Keep, Contender::Local),
            "server_peak_memory_bytes": self.server_peak_bytes,
        })
    }
}
