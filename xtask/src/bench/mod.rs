//! Benchmarks: side by side in one run, interleaved, medians and ratios.

pub(crate) mod cost;
pub(crate) mod iscsi;
pub(crate) mod loader;
pub(crate) mod nfs;
pub(crate) mod rdma;
pub(crate) mod sendfile;
pub(crate) mod stats;
