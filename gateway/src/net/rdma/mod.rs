//! RDMA for all front ends: the fabric, listeners, and connection requests.

pub(crate) mod accept;
pub(crate) mod establish;
pub(crate) mod fabric;
pub(crate) mod state;
pub(crate) mod supervise;
