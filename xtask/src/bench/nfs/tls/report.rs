//! Figures of `bench nfs --tls`.

use crate::bench::nfs::report::Figure;
use crate::bench::nfs::work::{Unit, Work};
use crate::bench::nfs::{BenchArgs, medians};
use crate::bench::stats::median;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

const UNIT: Unit = Unit::Megabytes;
const GIB: f64 = (1u64 << 30) as f64;

/// All measurements of a run.
#[derive(Debug)]
pub(super) struct TlsReport {
    rounds: usize,
    size_mib: u64,
    pub(super) suite: String,
    by_kernel: bool,
    /// Bytes a second of each cipher on one core, by round.
    pub(super) ciphers: BTreeMap<&'static str, Vec<f64>>,
    pub(super) figures: BTreeMap<(Work, String), Vec<Figure>>,
    /// The same server without TLS, by name.
    pub(super) plain: BTreeMap<String, &'static str>,
}

/// One load of one server.
struct Row<'a> {
    work: Work,
    name: &'a str,
    figures: &'a [Figure],
    /// CPU seconds a GiB beyond the same server's without TLS, and as a multiple
    /// of the cipher's alone.
    above_plain: Option<(f64, f64)>,
}

impl Row<'_> {
    fn rate(&self) -> f64 {
        medians(self.figures, |figure| figure.rate(UNIT))
    }

    fn cpu(&self) -> f64 {
        medians(self.figures, |figure| figure.cost(UNIT))
    }
}

impl TlsReport {
    pub(super) fn new(args: &BenchArgs, suite: String, by_kernel: bool) -> Self {
        Self {
            rounds: args.rounds,
            size_mib: args.size_mib,
            suite,
            by_kernel,
            ciphers: BTreeMap::new(),
            figures: BTreeMap::new(),
            plain: BTreeMap::new(),
        }
    }

    /// CPU seconds a GiB of the cipher of the run, alone.
    fn cipher_cpu(&self) -> f64 {
        let name = if self.suite.contains("AES_128") { "aes-128-gcm" } else { "aes-256-gcm" };
        GIB / self.ciphers.get(name).map_or(f64::NAN, |all| median(all))
    }

    fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.figures.iter().map(|((work, name), figures)| {
            let cost = |figures: &[Figure]| medians(figures, |figure| figure.cost(UNIT));
            let plain = self.plain.get(name).filter(|plain| *plain != name);
            let plain = plain.and_then(|plain| self.figures.get(&(*work, (*plain).to_owned())));
            let above = plain.map(|plain| cost(figures) - cost(plain));
            let above_plain = above.map(|above| (above, above / self.cipher_cpu()));
            Row { work: *work, name, figures, above_plain }
        })
    }

    /// Returns a table for people.
    pub(super) fn table(&self) -> String {
        let mut out = String::new();
        let records = if self.by_kernel { "kernel and process" } else { "process: no kTLS here" };
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "medians of {} rounds, {} MiB file; {}, zgate's records by the {records}\n\
             rates over TLS include the client's TLS; CPU is that of server and proxy, s/GiB",
            self.rounds, self.size_mib, self.suite
        );
        for (cipher, speeds) in &self.ciphers {
            let speed = median(speeds);
            let _ = writeln!(
                out,
                "{cipher} by openssl speed: {:.0} MB/s a core, {:.3} s/GiB",
                speed / 1e6,
                GIB / speed
            );
        }
        let _ = writeln!(
            out,
            "{:<24} {:<34} {:>10} {:>7} {:>12} {:>12}",
            "load", "server", "MB/s", "CPU", "beyond plain", "of AES alone"
        );
        for row in self.rows() {
            let (beyond, times) = row.above_plain.map_or_else(Default::default, |(cpu, times)| {
                (format!("{cpu:.2}"), format!("{times:.1}×"))
            });
            let _ = writeln!(
                out,
                "{:<24} {:<34} {:>10.0} {:>7.2} {beyond:>12} {times:>12}",
                row.work.name(),
                row.name,
                row.rate(),
                row.cpu(),
            );
        }
        out
    }

    /// Returns JSON.
    pub(super) fn to_json(&self) -> Value {
        let list = |row: &Row<'_>, of: &dyn Fn(&Figure) -> f64| {
            row.figures.iter().map(of).collect::<Vec<_>>()
        };
        let loads: Vec<Value> = self
            .rows()
            .map(|row| {
                json!({
                    "load": row.work.name(),
                    "server": row.name,
                    "unit": "MB/s",
                    "rate": row.rate(),
                    "rates": list(&row, &|figure| figure.rate(UNIT)),
                    "cpu_unit": "s/GiB",
                    "cpu": row.cpu(),
                    "cpus": list(&row, &|figure| figure.cost(UNIT)),
                    "cpu_beyond_plain": row.above_plain.map(|above| above.0),
                    "cpu_beyond_plain_to_cipher": row.above_plain.map(|above| above.1),
                    "p50_microseconds":
                        medians(row.figures, |figure| f64::from(figure.load.p50_microseconds)),
                    "p99_microseconds":
                        medians(row.figures, |figure| f64::from(figure.load.p99_microseconds)),
                })
            })
            .collect();
        json!({
            "rounds": self.rounds,
            "size_mib": self.size_mib,
            "cipher_suite": self.suite,
            "records_by_kernel": self.by_kernel,
            "cipher_bytes_per_second":
                self.ciphers.iter().map(|(name, all)| (*name, median(all))).collect::<BTreeMap<_, _>>(),
            "loads": loads,
        })
    }
}
