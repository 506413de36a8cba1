//! Errors of the client.

use std::time::Duration;
use thiserror::Error;
use zgate_nfs_wire::v4::Status;
use zgate_rpc::message::ReplyError;

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
    /// No connection could be made when the client started.
    #[error("{address}: {source}, for {:.0} s", .waited.as_secs_f64())]
    Unreachable {
        /// Address of the server.
        address: String,
        /// Time for which it was tried.
        waited: Duration,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The server accepted a connection when the client started, but answered
    /// nothing.
    #[error("{address}: no answer for {:.0} s", .waited.as_secs_f64())]
    Silent {
        /// Address of the server.
        address: String,
        /// Time for which it was tried.
        waited: Duration,
    },
    /// A path leads nowhere, or not for this client.
    #[error("{path}: {}, {parent} can be reached", .status.name())]
    Path {
        /// The whole path.
        path: String,
        /// The part of it that can be reached.
        parent: String,
        /// Status of the next step.
        status: Status,
    },
    /// The server refused an operation.
    #[error("{operation} answered {}{}", .status.name(), meaning(*.status))]
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
    /// The server's limit on messages leaves no room for data.
    #[error(
        "the server takes messages of at most {bytes} bytes; raise this limit to {min} at least"
    )]
    ShortMessages {
        /// Longest request or response in bytes, whichever is shorter.
        bytes: u32,
        /// Least length that is of use, in bytes.
        min: u32,
    },
    /// Two addresses lead to different servers.
    #[error("{first} and {second} are different servers; name addresses of one")]
    OtherServer {
        /// The first address.
        first: String,
        /// The address that leads to another server.
        second: String,
    },
    /// The client was closed.
    #[error("the client was closed")]
    Closed,
    /// The RPC layer of the server refused the call.
    #[error("the server refused the call: {0:?}")]
    RpcRefused(ReplyError),
    /// The RPC layer cannot carry the call.
    #[error("the server refused the call: {0}")]
    Rpc(String),
}

/// Returns the meaning of a frequent status, in parentheses.
fn meaning(status: Status) -> &'static str {
    match status {
        Status::Noent => " (it does not exist)",
        Status::Access | Status::Perm => " (no permission)",
        Status::Nospc => " (no space left on the server)",
        Status::Dquot => " (the quota is used up)",
        Status::Rofs => " (the export is read-only)",
        Status::Exist => " (it exists already)",
        Status::Isdir => " (it is a directory)",
        Status::Notdir => " (it is not a directory)",
        Status::Stale => " (it was removed on the server)",
        Status::Io => " (the server's storage failed)",
        Status::ShareDenied => " (another client has it open and excludes others)",
        Status::Grace => " (the server has restarted and still waits for its clients)",
        Status::Delay => " (the server asks to wait)",
        _ => "",
    }
}

impl ClientError {
    /// Returns the status, if the server refused an operation.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Refused { status, .. } | Self::Path { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Returns whether the server says that there is nothing of the name.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        self.is_one_of(&[Status::Noent])
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
