//! The NFSv4 server from the wire inwards: raw COMPOUNDs against
//! `zgate_nfs::v4::Server` over a store in memory, on virtual time. No socket,
//! no clock, no thread; every run is the same run.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(missing_docs, reason = "tests")]

mod fault;
mod fuzz;
mod op;
mod rig;
mod state;
