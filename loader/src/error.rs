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
    /// A file is larger than what it should be.
    #[error("{bytes} bytes; at most {max_bytes} are expected")]
    TooLarge {
        /// Its length in bytes.
        bytes: u64,
        /// The bound in bytes.
        max_bytes: u64,
    },
    /// Two addresses that are not of one server.
    #[error("{first} and {second} are different servers; name addresses of one")]
    OtherServer {
        /// The first address.
        first: String,
        /// The one that does not fit.
        second: String,
    },
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

    fn is_one_of(&self, statuses: &[Status]) -> bool {
        self.status().is_some_and(|status| statuses.contains(&status))
    }

    /// The server has forgotten the session or the client.
    pub(crate) fn is_session_lost(&self) -> bool {
        self.is_one_of(&[Status::Badsession, Status::Deadsession, Status::StaleClientid])
    }

    /// The server has forgotten what was open.
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

    /// The server has taken it away, and wants to hear that this is known.
    pub(crate) fn is_revoked(&self) -> bool {
        self.is_one_of(&[Status::DelegRevoked, Status::AdminRevoked, Status::Expired])
    }

    /// The server says: not now.
    pub(crate) fn asks_for_patience(&self) -> bool {
        self.is_one_of(&[Status::Delay, Status::Grace])
    }

    /// Trying again may help while a session is created.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, Self::Transport { .. }) || self.is_session_lost() || self.asks_for_patience()
    }
}
