//! libibverbs and librdmacm, loaded when the program runs. Nothing of them is
//! needed to build, and a machine without them loses RDMA and nothing else.
//!
//! Only what zgate uses is here. Layouts are those of rdma-core's stable ABI
//! (libibverbs.so.1, librdmacm.so.1) on 64-bit Linux; the tests hold them
//! against the numbers a C compiler gives.
#![allow(unsafe_code, reason = "calls into C libraries; each has its SAFETY reason")]

mod cm;
mod library;
mod verbs;

pub use cm::*;
pub use library::LoadError;
pub use verbs::*;
