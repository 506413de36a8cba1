//! Tensors in a device's memory.
//!
//! Over RDMA the memory of the device is registered, and READs land in it: what
//! this host's processors see of a tensor is its name. Elsewhere, and where the
//! devices cannot reach each other, data is read to page-locked host memory and
//! copied from there while the next is read.
//!
//! Tensors lie in the memory of their region, which is freed with the last of
//! them.

mod load;
mod place;
mod staging;

pub use load::{DeviceLoad, Placement};

use bytes::BytesMut;
use std::str::FromStr;
use std::sync::Arc;
use zgate_cuda::{CudaError, Device, DeviceMemory};

/// Where tensors are to lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Destination {
    /// This host's memory.
    #[default]
    Host,
    /// The memory of a CUDA device, counted from 0.
    Cuda(u32),
}

impl FromStr for Destination {
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

/// Part of a device's memory. Cloning shares it.
#[derive(Clone, Debug)]
pub struct DeviceSlice {
    memory: Arc<DeviceMemory>,
    start: usize,
    bytes: usize,
}

impl DeviceSlice {
    /// Its address on the device.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.memory.address() + self.start as u64
    }

    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        self.memory.device()
    }

    /// A copy in host memory. Blocks.
    ///
    /// # Errors
    /// The device's.
    pub fn to_host(&self) -> Result<BytesMut, CudaError> {
        let mut copy = BytesMut::zeroed(self.bytes);
        self.memory.read(self.start, &mut copy)?;
        Ok(copy)
    }
}

/// A tensor in a device's memory, which it owns with those of its region.
#[derive(Clone, Debug)]
pub struct DeviceTensor {
    /// Name.
    pub name: String,
    /// Element type.
    pub dtype: String,
    /// Shape.
    pub shape: Vec<u64>,
    /// Elements, row after row, little endian. All that was to be written is.
    pub data: DeviceSlice,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_read() {
        assert_eq!("cpu".parse(), Ok(Destination::Host));
        assert_eq!("cuda".parse(), Ok(Destination::Cuda(0)));
        assert_eq!("cuda:11".parse(), Ok(Destination::Cuda(11)));
        for wrong in ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "CPU"] {
            assert!(wrong.parse::<Destination>().is_err(), "{wrong}");
        }
    }
}
