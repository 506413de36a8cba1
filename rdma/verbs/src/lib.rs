//! The fabric over RDMA devices: reliable connections through libibverbs and
//! librdmacm, both loaded at run time. A machine without them, or without a
//! device, gets one clear reason and stays on TCP.
//!
//! Buffers of the pool's arena are registered once for each device; others are
//! registered for the time of the work they take part in. Memory that is
//! posted belongs to the connection until its completion, or until the queue
//! pair that could touch it is gone.
#![allow(unsafe_code, reason = "calls into C libraries; each has its SAFETY reason")]

mod address;
mod cm;
mod completion;
mod connection;
mod establish;
mod host;
mod inspect;
mod memory;
mod pace;
mod queue;
mod send_queue;
mod watch;

pub use host::{Unavailable, VerbsFabric};
pub use inspect::{GidKind, GidReport, PortReport};
