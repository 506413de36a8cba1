//! The gateway seen from outside: metrics and status over HTTP, and what peers can
//! put on terminals and in logs.

pub(crate) mod exposition;
pub(crate) mod http;
mod pool_metrics;
pub(crate) mod pools;
pub(crate) mod printable;
mod snapshot_metrics;
pub(crate) mod status;
pub(crate) mod throttle;
