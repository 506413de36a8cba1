//! Transports of a core: accepting, sending, admission, memory. Independent of
//! the front ends.

pub(crate) mod accept;
pub(crate) mod arrival;
pub(crate) mod boundary;
pub(crate) mod busy_poll;
pub(crate) mod channel;
pub(crate) mod connection_end;
pub(crate) mod connections;
pub(crate) mod core;
pub(crate) mod drain;
pub(crate) mod event_loop;
pub(crate) mod in_flight;
pub(crate) mod interfaces;
pub(crate) mod limits;
pub(crate) mod memory_quota;
pub(crate) mod peer;
mod poll_trial;
pub(crate) mod rdma;
#[cfg(test)]
pub(crate) mod seeds;
pub(crate) mod send;
pub(crate) mod silence;
pub(crate) mod stream;
pub(crate) mod tickle;
pub(crate) mod tls;
