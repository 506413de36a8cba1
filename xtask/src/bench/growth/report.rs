//! Costs by size, and the growth beyond that of a logarithm.

use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write as _;

/// Goal for the memory of an idle connection, in bytes.
const IDLE_CONNECTION_BYTES: f64 = 32.0 * 1024.0;

/// Cost of one kind of request, by the size of what grows.
#[derive(Debug)]
pub(super) struct Series {
    /// Thing that grows.
    pub(super) dimension: &'static str,
    pub(super) request: &'static str,
    /// Sizes, and microseconds of CPU time.
    pub(super) points: Vec<(u64, f64)>,
}

impl Series {
    pub(super) fn new(dimension: &'static str, request: &'static str) -> Self {
        Self { dimension, request, points: Vec::new() }
    }

    /// Prints the series while others are still measured.
    pub(super) fn print(&self) {
        // Progress for people; the report has it all.
        let _ =
            writeln!(std::io::stderr(), "{}, {}: {:?}", self.dimension, self.request, self.points);
    }

    /// Returns the growth of the cost from the first size to the last one.
    fn growth(&self) -> Option<f64> {
        let (first, last) = (self.points.first()?, self.points.last()?);
        (first.1 > 0.0).then(|| last.1 / first.1)
    }

    /// Returns the largest growth that is still logarithmic: by the first cost
    /// for each doubling.
    fn bound(&self) -> f64 {
        let sizes = self.points.first().zip(self.points.last());
        sizes.map_or(1.0, |(first, last)| 1.0 + (last.0 as f64 / first.0.max(1) as f64).log2())
    }
}

/// All series of a run.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) series: Vec<Series>,
    /// Memory of an idle connection in bytes, by the number of connections.
    pub(super) connection_bytes: Vec<(u64, f64)>,
}

impl Report {
    /// Returns a table for people.
    pub(super) fn table(&self) -> String {
        let mut out = String::from(
            "| grows | request | from | to | µs | µs | growth |\n\
             | --- | --- | ---: | ---: | ---: | ---: | ---: |\n",
        );
        for series in &self.series {
            let Some((first, last)) = series.points.first().zip(series.points.last()) else {
                continue;
            };
            let growth = series.growth().unwrap_or(f64::NAN);
            let word = if growth > series.bound() { " WORSE THAN LOGARITHMIC" } else { "" };
            // Writing to a String cannot fail.
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} | {:.1} | {:.1} | {growth:.2}{word} |",
                series.dimension, series.request, first.0, last.0, first.1, last.1,
            );
        }
        if let Some((count, bytes)) = self.connection_bytes.last() {
            let word = if *bytes <= IDLE_CONNECTION_BYTES { "" } else { ": ABOVE 32 KiB" };
            let kib = bytes / 1024.0;
            let _ = writeln!(out, "\nan idle connection of {count}: {kib:.1} KiB{word}");
        }
        out
    }

    /// Returns JSON: the series, and the panels of the chart.
    pub(super) fn to_json(&self) -> Value {
        let mut dimensions: Vec<&str> = self.series.iter().map(|one| one.dimension).collect();
        dimensions.dedup();
        let panel = |dimension: &&str| {
            let own = self.series.iter().filter(|one| one.dimension == *dimension);
            let line = |one: &Series| json!({ "name": one.request, "points": one.points });
            json!({
                "title": format!("{dimension}: µs of CPU time for a request"),
                "lines": own.map(line).collect::<Vec<_>>(),
            })
        };
        let series = |one: &Series| {
            json!({
                "grows": one.dimension, "request": one.request,
                "sizes_and_cpu_microseconds": one.points,
                "growth": one.growth(), "logarithmic_bound": one.bound(),
            })
        };
        json!({
            "series": self.series.iter().map(series).collect::<Vec<_>>(),
            "idle_connection_bytes": self.connection_bytes,
            "panels": dimensions.iter().map(panel).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_growth_is_told_from_logarithmic() {
        let mut logarithmic = Series::new("names", "lookup");
        logarithmic.points = vec![(1, 10.0), (1024, 100.0)];
        let mut linear = Series::new("names", "create");
        linear.points = vec![(1, 10.0), (1024, 10_000.0)];
        let report = Report { series: vec![logarithmic, linear], connection_bytes: vec![(9, 4e4)] };
        let table = report.table();
        assert!(table.contains("| lookup | 1 | 1024 | 10.0 | 100.0 | 10.00 |\n"), "{table}");
        assert!(table.contains("1000.00 WORSE THAN LOGARITHMIC"), "{table}");
        assert!(table.contains("39.1 KiB: ABOVE 32 KiB"), "{table}");
        assert_eq!(report.to_json()["panels"].as_array().map(Vec::len), Some(1));
    }
}
