//! Errors of the client.

use thiserror::Error;
use zgate_nfs_wire::v4::Status;

/// Reason for which a request failed.
#[derive(Debug, Error)]
pub enum ClientError {
    /// No connection, or it broke.
    #[error("{address}: {source}")]
    Transport {
        /// Address of the server.
        address: String,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The server refused an operation.
    #[error("{operation} answered {}", .status.name())]
    Refused {
        /// Name of the operation.
        operation: &'static str,
        /// Status returned.
        status: Status,
    },
    /// The server's answer is malformed.
    #[error("the server's answer to {0} is malformed")]
    Garbled(&'static str),
    /// A file is longer than allowed.
    #[error("{bytes} bytes; at most {max_bytes} are expected")]
    TooLarge {
        /// Length in bytes.
        bytes: u64,
        /// Limit in bytes.
        max_bytes: u64,
    },
    /// Two addresses lead to different servers.
    #[error("{first} and {second} are different servers; name addresses of one")]
    OtherServer {
        /// The first address.
        first: String,
        /// The address that leads to another server.
        second: String,
    },
    /// The RPC layer refused the call.
    #[error("the server refused the call: {0}")]
    Rpc(String),
}

impl ClientError {
    /// Returns the status, if the server refused an operation.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }

    fn is_one_of(&self, statuses: &[Status]) -> bool {
        self.status().is_some_and(|status| statuses.contains(&status))
    }

    /// Returns whether the server has lost the session or the client.
    pub(crate) fn is_session_lost(&self) -> bool {
        self.is_one_of(&[Status::Badsession, Status::Deadsession, Status::StaleClientid])
    }

    /// Returns whether the server has lost open state.
    pub(crate) fn is_state_lost(&self) -> bool {
        self.is_one_of(&[
            Status::BadStateid,
            Status::StaleStateid,
            Status::OldStateid,
            Status::Expired,
            Status::AdminRevoked,
            Status::DelegRevoked,
        ])
    }

    /// Returns whether the server has revoked the state and expects an
    /// acknowledgement.
    pub(crate) fn is_revoked(&self) -> bool {
        self.is_one_of(&[Status::DelegRevoked, Status::AdminRevoked, Status::Expired])
    }

    /// Returns whether the server asks to retry later.
    pub(crate) fn asks_for_patience(&self) -> bool {
        self.is_one_of(&[Status::Delay, Status::Grace])
    }

    /// Returns whether a retry may help while a session is created.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, Self::Transport { .. }) || self.is_session_lost() || self.asks_for_patience()
    }
}
