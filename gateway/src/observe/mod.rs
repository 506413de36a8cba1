//! The gateway seen from outside: metrics and status over HTTP.

pub(crate) mod exposition;
pub(crate) mod http;
mod pool_metrics;
pub(crate) mod pools;
mod snapshot_metrics;
pub(crate) mod status;
