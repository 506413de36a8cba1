//! Servers that suites and benchmarks start: zgate, a peer, a bare loop.

pub(crate) mod ganesha;
pub(crate) mod kdc;
pub(crate) mod process;
pub(crate) mod scratch;
pub(crate) mod stunnel;
pub(crate) mod tgt;
pub(crate) mod zgate;

pub(crate) use process::{ServerProcess, cpu_split};
pub(crate) use scratch::Scratch;
