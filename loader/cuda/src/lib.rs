//! Memory of CUDA devices. The driver's library is loaded when it is first
//! asked for; nothing of CUDA is needed to build, and a machine without it gets
//! one line that says why.
//!
//! Everything happens in the device's primary context, which is the one torch
//! and the CUDA runtime use, so that addresses mean the same to them. It is made
//! current for each call and the thread's own is current again afterwards.
//!
//! Rust never holds a reference to device memory: bytes go in and out by
//! copies, and peers of an RDMA device reach it by its address or a dmabuf.
#![allow(unsafe_code, reason = "calls into a C library; each has its SAFETY reason")]

mod copy;
mod device;
mod driver;
mod memory;

pub use copy::{Grid, Staging};
pub use device::Device;
pub use driver::{CudaError, Driver, Unavailable};
pub use memory::DeviceMemory;
