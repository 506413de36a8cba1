//! The fabric over RDMA devices: reliable connections through libibverbs and
//! librdmacm, both loaded at run time. On a machine without them, or without a
//! device, opening the fabric fails with one clear reason, and clients are
//! served over TCP.
//!
//! Buffers of the pool's arena are registered once for each device; others are
//! registered for the duration of their work. Memory that is posted belongs to
//! the connection until its completion, or until the queue pair that could
//! access it is destroyed.
#![allow(unsafe_code, reason = "calls into C libraries; each has its SAFETY reason")]

mod address;
mod cm;
mod completion;
mod connection;
mod cq_poller;
mod establish;
mod fabric;
mod host;
mod inspect;
mod memory;
mod queue;
mod send_queue;
mod watch;

pub use fabric::VerbsFabric;
pub use host::Unavailable;
pub use inspect::{GidKind, GidReport, PortReport};
