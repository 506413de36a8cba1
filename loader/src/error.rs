//! What can go wrong on the client's side.

use thiserror::Error;
use zgate_nfs::v4::wire::Status;

/// Why a request failed.
#[derive(Debug, Error)]
pub enum ClientError {
    /// No connection, or it broke.
    #[error("{address}: {source}")]
    Transport {
        /// The server.
        address: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// The server refused an operation.
    #[error("{operation} answered {}", .status.name())]
    Refused {
        /// Which operation.
        operation: &'static str,
        /// What it said.
        status: Status,
    },
    /// The server's answer makes no sense.
    #[error("the server's answer to {0} cannot be understood")]
    Garbled(&'static str),
    /// The RPC layer refused the call.
    #[error("the server refused the call: {0}")]
    Rpc(String),
}

impl ClientError {
    /// The status, when the server refused an operation.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }
}
