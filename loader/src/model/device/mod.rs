//! Tensors in a device's memory.
//!
//! Over RDMA the memory of the device is registered, and READs write to it:
//! this host's processors do not touch the data. Otherwise, or if the devices
//! cannot reach each other, data is read to page-locked host memory and copied
//! from there while the next is read.
//!
//! Tensors share the memory of their region, which is freed with the last of
//! them.

mod buffer;
mod gpu;
mod staging;

pub use gpu::{Gpu, Placement};

use bytes::BytesMut;
use std::str::FromStr;
use std::sync::Arc;
use zgate_cuda::{CudaError, Device, DeviceMemory};

/// A destination as users name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DestinationName {
    /// Memory of this host.
    #[default]
    Host,
    /// Memory of a CUDA device, counted from 0.
    Cuda(u32),
}

impl FromStr for DestinationName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = match text {
            "cpu" => return Ok(Self::Host),
            "cuda" => Some(0),
            _ => text.strip_prefix("cuda:").and_then(|number| number.parse().ok()),
        };
        number.map(Self::Cuda).ok_or_else(|| format!("{text:?}: cpu, cuda or cuda:N"))
    }
}

/// Part of a device's memory. Clones share it.
#[derive(Clone, Debug)]
pub struct DeviceSlice {
    memory: Arc<DeviceMemory>,
    start: usize,
    bytes: usize,
}

impl DeviceSlice {
    /// Returns its address on the device.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.memory.address() + self.start as u64
    }

    /// Returns its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns the device.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        self.memory.device()
    }

    /// Copies it to host memory. Blocks.
    ///
    /// # Errors
    /// The device's error.
    pub fn to_host(&self) -> Result<BytesMut, CudaError> {
        let mut copy = BytesMut::zeroed(self.bytes);
        self.memory.read(self.start, &mut copy)?;
        Ok(copy)
    }
}

/// A tensor in a device's memory, which it owns with those of its region. All
/// that was to be written is.
pub type DeviceTensor = super::destination::Tensor<DeviceSlice>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_read() {
        assert_eq!("cpu".parse(), Ok(DestinationName::Host));
        assert_eq!("cuda".parse(), Ok(DestinationName::Cuda(0)));
        assert_eq!("cuda:11".parse(), Ok(DestinationName::Cuda(11)));
        for wrong in ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "CPU"] {
            assert!(wrong.parse::<DestinationName>().is_err(), "{wrong}");
        }
    }
}
