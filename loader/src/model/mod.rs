//! Models: their files, the layout of their tensors, and loading.
//!
//! [`catalog`] reads the headers; [`plan`] combines the requested tensors into
//! few large reads in file order; [`load`] runs them, with a bound on the bytes
//! in flight; [`mod@slice`] cuts a tensor for one of several ranks; [`device`]
//! loads to a GPU; [`checksum`] verifies the received data against what
//! [`known_sums`] finds; [`stream`] reads whole files, in order.

pub mod catalog;
pub mod checksum;
pub mod destination;
pub mod device;
mod host;
pub mod known_sums;
pub mod load;
mod memory;
pub mod options;
mod page_size;
pub mod plan;
mod reader;
mod regions;
pub mod share;
pub mod slice;
pub mod stream;

pub use catalog::{Model, Shard};
pub use destination::{Destination, LoadedTensor, Tensor};
pub use device::{DestinationName, DeviceTensor, Gpu};
pub use host::Host;
pub use load::Load;
pub use options::LoadOptions;
pub use plan::{Plan, Wanted};
pub use share::Share;
pub use slice::Part;
pub use stream::FileStream;

use crate::error::ClientError;
use crate::explain::{Advice, explain};
use crate::url::NfsUrl;

/// Reason for which a model cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Error of the server or the connection.
    #[error("{what}: {source}")]
    Client {
        /// Name of the file.
        what: String,
        /// Reason.
        source: ClientError,
    },
    /// The file has a wrong format.
    #[error("{file}: {reason}")]
    Format {
        /// Name of the file.
        file: String,
        /// Fault.
        reason: String,
    },
    /// A requested file or tensor does not exist.
    #[error("{0}")]
    Missing(String),
    /// The load ended before it was complete.
    #[error("{0}")]
    Ended(String),
    /// Shared memory of this machine cannot be used.
    #[error("shared memory (/dev/shm): {0}")]
    SharedMemory(String),
    /// A file was changed after it was opened: the data read may be of several
    /// versions.
    #[error("{file}: the file was changed while it was read")]
    Changed {
        /// Name of the file.
        file: String,
    },
    /// A tensor is larger than this machine's memory.
    #[error("{file}: a tensor of {bytes} bytes is more than this machine has memory for")]
    TooLarge {
        /// Name of the file.
        file: String,
        /// Length of the tensor in bytes.
        bytes: u64,
    },
    /// Error of a GPU or its driver.
    #[error("device memory: {0}")]
    Device(zgate_cuda::CudaError),
    /// There is no checksum of what is read.
    #[error("nothing to compare with: {0}")]
    Unverifiable(String),
    /// The data differs from its checksum.
    #[error("{what}: checksum {found}, expected {expected}: the data is damaged")]
    Checksum {
        /// Name of the file or tensor.
        what: String,
        /// Checksum of the data.
        found: String,
        /// Checksum in the side file or the metadata.
        expected: String,
    },
}

impl LoadError {
    /// Explains the error to the person who named `url`: server, path, reason
    /// and next step.
    #[must_use]
    pub fn explain(&self, url: &NfsUrl, advice: Advice) -> String {
        match self {
            Self::Client { what, source } => match source {
                ClientError::Refused { .. }
                | ClientError::Garbled(_)
                | ClientError::TooLarge { .. }
                | ClientError::Transport { .. }
                    if *what != url.path =>
                {
                    format!("{url}: {self}")
                }
                source => explain(url, source, advice),
            },
            other => format!("{url}: {other}"),
        }
    }
}
