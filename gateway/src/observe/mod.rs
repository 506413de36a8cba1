//! Observation of the gateway: metrics and status over HTTP, and safe output of
//! text chosen by peers.

pub(crate) mod audit;
pub(crate) mod data_path;
#[cfg(test)]
pub(crate) mod documented;
pub(crate) mod http;
pub(crate) mod latency;
pub(crate) mod load;
#[cfg(test)]
pub(crate) mod log_of_test;
pub(crate) mod metric;
pub(crate) mod panics;
pub(crate) mod pool_metrics;
pub(crate) mod pools;
pub(crate) mod printable;
pub(crate) mod process_metrics;
pub(crate) mod sharded;
pub(crate) mod text_format;

pub(crate) use zgate_io::throttle;
