//! Models: which files they are, which tensors lie where, and bringing those
//! into memory.
//!
//! [`catalog`] finds out what there is; [`plan`] turns the tensors that are
//! wanted into few large reads in file order; [`load`] runs them, with a bound
//! on what is under way; [`mod@slice`] cuts a tensor for one of several ranks;
//! [`device`] brings them to a GPU;
//! [`checksum`] verifies on the way; [`stream`] brings whole files, in order.

pub mod catalog;
pub mod checksum;
pub mod device;
pub mod load;
mod memory;
pub mod plan;
mod regions;
pub mod share;
pub mod slice;
pub mod stream;

pub use catalog::{Model, Shard};
pub use device::{Destination, DeviceLoad, DeviceTensor};
pub use load::{Load, LoadOptions, LoadedTensor};
pub use plan::{Plan, Wanted};
pub use share::Share;
pub use slice::Part;
pub use stream::FileStream;

use crate::error::ClientError;

/// Why a model cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The server or the way to it.
    #[error("{what}: {source}")]
    Client {
        /// The file.
        what: String,
        /// Why.
        source: ClientError,
    },
    /// The file is not what it should be.
    #[error("{file}: {reason}")]
    Format {
        /// The file.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Something was asked for that is not there.
    #[error("{0}")]
    Missing(String),
    /// A file was changed after it was opened: what was read of it may be of
    /// several states.
    #[error("{file}: it was changed while it was read")]
    Changed {
        /// The file.
        file: String,
    },
    /// A GPU or its driver.
    #[error("device memory: {0}")]
    Device(zgate_cuda::CudaError),
    /// What was read is not what was written.
    #[error("{what}: checksum {found}, expected {expected}: the data is damaged")]
    Checksum {
        /// The file or tensor.
        what: String,
        /// What was computed.
        found: String,
        /// What the side file or the metadata says.
        expected: String,
    },
}
