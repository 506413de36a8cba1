//! libibverbs and librdmacm, loaded at run time. They are not needed to build,
//! and a machine without them only lacks RDMA.
//!
//! Contains only the parts that zgate uses. Layouts are those of rdma-core's
//! stable ABI (libibverbs.so.1, librdmacm.so.1) on 64-bit Linux; tests compare
//! them with the numbers that a C compiler gives.
#![allow(unsafe_code, reason = "calls into C libraries; each has its SAFETY reason")]

mod cm;
mod library;
mod verbs;

pub use cm::*;
pub use library::LoadError;
pub use verbs::*;
