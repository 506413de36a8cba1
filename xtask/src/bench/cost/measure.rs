//! Runs a load and measures its cost.

use crate::bench::nfs::work::{LoadReport, Work};
use serde::Serialize;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Cost of one request in the gateway.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Cost {
    /// CPU time in user space, in nanoseconds.
    pub(super) user_nanos: f64,
    /// CPU time in the kernel, in nanoseconds.
    pub(super) system_nanos: f64,
    /// Instructions in user space.
    pub(super) instructions: Option<f64>,
}

/// A load.
pub(super) struct Load {
    pub(super) address: SocketAddr,
    pub(super) work: Work,
    pub(super) operations: u64,
    pub(super) size_mib: u64,
}

impl Load {
    /// Runs the load in a separate process; returns the number of requests
    /// done.
    pub(super) fn run(&self) -> io::Result<u64> {
        let work = clap::ValueEnum::to_possible_value(&self.work);
        let output = Command::new(std::env::current_exe()?)
            .arg("nfs-load")
            .args(["--address", &self.address.to_string(), "--dir", "zgate"])
            .args(["--size", &(self.size_mib << 20).to_string()])
            .args(["--operations", &self.operations.to_string()])
            .arg("--work")
            .arg(work.map_or(String::new(), |value| value.get_name().into()))
            .output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(io::Error::other(format!("{}: {said}", self.work.name())));
        }
        let report: LoadReport = serde_json::from_slice(&output.stdout)?;
        Ok(report.operations)
    }
}

/// Returns the nanoseconds per byte of reading a cached file into a buffer: the
/// one copy that remains with a device.
pub(super) fn copy_nanos_per_byte(file: &Path) -> io::Result<f64> {
    let file = fs::File::open(file)?;
    let len = file.metadata()?.len();
    let mut buffer = vec![0u8; 1 << 20];
    let mut read_all = || -> io::Result<f64> {
        let begun = Instant::now();
        for at in (0..len).step_by(buffer.len()) {
            file.read_at(&mut buffer, at)?;
        }
        Ok(begun.elapsed().as_nanos() as f64 / len as f64)
    };
    read_all()?;
    // The least of several: other processes use this machine, too.
    let rounds = (0..5).map(|_| read_all()).collect::<io::Result<Vec<f64>>>()?;
    Ok(rounds.into_iter().fold(f64::INFINITY, f64::min))
}

/// Returns the instructions in cachegrind's output: "summary: N".
pub(super) fn collected(out: &str) -> Option<f64> {
    out.lines().rev().find_map(|line| line.strip_prefix("summary:")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_found() {
        assert_eq!(collected("events: Ir\nfn=x\n1 5\nsummary: 17\n"), Some(17.0));
        assert_eq!(collected("events: Ir\n"), None);
    }
}
