//! Memory of CUDA devices. The driver's library is loaded on first use; nothing
//! of CUDA is needed to build, and on a machine without it the error is one
//! line with the reason.
//!
//! All calls run in the device's primary context, which torch and the CUDA
//! runtime also use, so that addresses are valid for them. It is made current
//! for each call, and the thread's own context is restored afterwards.
//!
//! Rust never holds a reference to device memory: data is copied in and out,
//! and peers of an RDMA device access it by its address or a dmabuf.
#![allow(unsafe_code, reason = "calls into a C library; each has its SAFETY reason")]

mod copy;
mod device;
mod driver;
mod memory;

pub use copy::{Grid, Staging};
pub use device::Device;
pub use driver::{CudaError, Driver, Unavailable};
pub use memory::DeviceMemory;
