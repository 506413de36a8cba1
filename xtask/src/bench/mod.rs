//! Benchmarks: compared within one run, interleaved, with medians and ratios.

pub(crate) mod chart;
pub(crate) mod cost;
pub(crate) mod growth;
pub(crate) mod hostile;
pub(crate) mod iscsi;
pub(crate) mod loader;
pub(crate) mod memory;
pub(crate) mod nfs;
pub(crate) mod sendfile;
pub(crate) mod stats;
pub(crate) mod turns;

use std::path::PathBuf;

/// Name of an earlier build of zgate in reports.
pub(crate) const BEFORE: &str = "before";

/// Least rate of a build relative to the build before.
pub(crate) const LEAST_OF_BEFORE: f64 = 0.97;

/// Default file of a benchmark's JSON result: comparisons with a peer belong to
/// the documents, comparisons with an earlier build do not.
pub(crate) fn default_out(bench: &str, before: bool) -> PathBuf {
    if before {
        format!("target/bench/{bench}-before.json").into()
    } else {
        format!("docs/bench/{bench}.json").into()
    }
}
