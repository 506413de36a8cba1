//! Tests of the NFSv4 server at the wire level: raw COMPOUNDs against
//! `zgate_nfs::v4::Server` on a store in memory, in virtual time. No socket,
//! clock or thread; all runs are identical.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(missing_docs, reason = "tests")]

mod any_bytes;
mod fault;
mod ids;
mod op;
mod state;
