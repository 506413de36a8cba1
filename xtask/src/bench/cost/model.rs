//! Derives the cost of bytes, and the number of cores, from the cost of
//! requests.

use super::measure::Cost;
use crate::bench::nfs::work::Work;
use serde::Serialize;
use std::fmt::Write;

/// Data rate of one port of 100 Gb/s with packets of 4096 bytes, in bytes a
/// second; see `zgate doctor rdma`.
const PORT_BYTES_PER_SECOND: f64 = 12.25e9;
const SMALL_BYTES: f64 = 4096.0;
const LARGE_BYTES: f64 = (1 << 20) as f64;

/// One measured kind of request.
#[derive(Debug, Serialize)]
struct Row {
    transport: &'static str,
    work: &'static str,
    #[serde(skip)]
    kind: Work,
    #[serde(flatten)]
    cost: Cost,
}

/// All measurements.
#[derive(Debug, Serialize)]
pub(super) struct Model {
    /// Nanoseconds per byte of reading a cached file into a buffer.
    copy_nanos_per_byte: f64,
    rows: Vec<Row>,
}

/// Fits a line through two points: cost of a request, and of each of its bytes.
fn split(small: f64, large: f64) -> (f64, f64) {
    let per_byte = ((large - small) / (LARGE_BYTES - SMALL_BYTES)).max(0.0);
    ((small - SMALL_BYTES * per_byte).max(0.0), per_byte)
}

/// Returns the number of cores for `ports` ports, given the nanoseconds per
/// request of 1 MiB.
fn cores(nanos_per_large: f64, ports: f64) -> f64 {
    ports * PORT_BYTES_PER_SECOND / LARGE_BYTES * nanos_per_large / 1e9
}

impl Model {
    pub(super) fn new(copy_nanos_per_byte: f64) -> Self {
        Self { copy_nanos_per_byte, rows: Vec::new() }
    }

    pub(super) fn add(&mut self, rdma: bool, kind: Work, cost: Cost) {
        let transport = if rdma { "RDMA, emulated" } else { "TCP" };
        self.rows.push(Row { transport, work: kind.name(), kind, cost });
    }

    fn cost(&self, rdma: bool, kind: Work) -> Option<Cost> {
        let transport = if rdma { "RDMA, emulated" } else { "TCP" };
        let found = self.rows.iter().find(|row| row.transport == transport && row.kind == kind);
        found.map(|row| row.cost)
    }

    /// Returns the nanoseconds of a request of 1 MiB with a device: a device
    /// does the work that the emulated fabric causes in the kernel, and the
    /// copy between file and buffer remains.
    fn with_device(&self, kind: Work) -> Option<f64> {
        Some(self.cost(true, kind)?.user_nanos + LARGE_BYTES * self.copy_nanos_per_byte)
    }

    /// Prints the tables of docs/PERFORMANCE.md.
    pub(super) fn tables(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "| transport | request | user µs | kernel µs | instructions |\n| --- | --- | ---: | ---: | ---: |"
        );
        for row in &self.rows {
            let Cost { user_nanos, system_nanos, instructions } = row.cost;
            let _ = writeln!(
                out,
                "| {} | {} | {:.1} | {:.1} | {} |",
                row.transport,
                row.work,
                user_nanos / 1e3,
                system_nanos / 1e3,
                instructions.map_or("-".to_owned(), |count| format!("{count:.0}")),
            );
        }
        let _ = writeln!(
            out,
            "\nReading a cached file into a buffer: {:.3} ns a byte.\n\n\
             | transport | READ: ns a request | ns a byte | instructions a request | a byte |\n\
             | --- | ---: | ---: | ---: | ---: |",
            self.copy_nanos_per_byte
        );
        for (rdma, name) in [(false, "TCP"), (true, "RDMA, emulated")] {
            let (Some(small), Some(large)) =
                (self.cost(rdma, Work::RandomRead), self.cost(rdma, Work::Read))
            else {
                continue;
            };
            let (request, byte) =
                split(small.user_nanos + small.system_nanos, large.user_nanos + large.system_nanos);
            let counts = small.instructions.zip(large.instructions).map(|(s, l)| split(s, l));
            let counts = counts
                .map_or("- | -".to_owned(), |(request, byte)| format!("{request:.0} | {byte:.3}"));
            let _ = writeln!(out, "| {name} | {request:.0} | {byte:.3} | {counts} |");
        }
        let _ = writeln!(
            out,
            "\n| 1 MiB | one port of 100 Gb/s: cores | two ports |\n| --- | ---: | ---: |"
        );
        for (kind, name) in [(Work::Read, "READ"), (Work::Write, "WRITE")] {
            let tcp = self.cost(false, kind).map(|cost| cost.user_nanos + cost.system_nanos);
            for (how, nanos) in [("TCP, measured", tcp), ("RDMA, modelled", self.with_device(kind))]
            {
                let Some(nanos) = nanos else { continue };
                let (one, two) = (cores(nanos, 1.0), cores(nanos, 2.0));
                let _ = writeln!(out, "| {name} over {how} | {one:.1} | {two:.1} |");
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_bytes_are_told_apart() {
        let (request, byte) = split(5_000.0 + 4096.0 * 0.1, 5_000.0 + LARGE_BYTES * 0.1);
        assert!((request - 5_000.0).abs() < 1e-3 && (byte - 0.1).abs() < 1e-9);
        // 0.1 ns per byte is 1.2 cores per port.
        assert!((cores(LARGE_BYTES * 0.1, 1.0) - 1.225).abs() < 1e-9);
    }

    #[test]
    fn the_kernels_share_of_the_emulation_is_the_devices() {
        let mut model = Model::new(0.05);
        let cost = Cost { user_nanos: 10_000.0, system_nanos: 500_000.0, instructions: None };
        model.add(true, Work::Read, cost);
        let nanos = model.with_device(Work::Read).unwrap();
        assert!((nanos - 10_000.0 - LARGE_BYTES * 0.05).abs() < 1e-6);
        assert!(model.tables().contains("READ over RDMA, modelled"));
    }
}
