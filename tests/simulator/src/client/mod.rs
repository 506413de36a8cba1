//! Clients: what a kernel's client does about time-outs, broken connections,
//! restarts and lost sessions, without its caches.

mod delegated;
mod delegations;
mod owners;
mod session;
mod stateless;
mod wire;
mod worker;

pub use delegations::Delegations;
pub use owners::OwnerClient;
pub use session::SessionClient;
pub use stateless::StatelessClient;
pub use wire::{GssClient, Wire};
pub use worker::{AnyClient, Worker};

use zgate_nfs_wire::v4::{Fh, LockType, Verifier};

/// End of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// Done, and whether the server says that it is on stable storage.
    Done { stable: bool, verifier: Verifier },
    /// The server reported an error of its storage.
    Failed,
}

/// End of a request that changes names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// Done.
    Done,
    /// There is such a name.
    Exists,
    /// There is no such name.
    Absent,
    /// The server reported an error of its storage.
    Failed,
    /// It may have been done, and the protocol does not tell: the server
    /// restarted, or the session was lost, before the reply.
    Unknown,
}

/// A change of names in the root of the export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameChange {
    /// Makes a directory.
    Make(String),
    /// Removes a directory.
    Remove(String),
    /// Renames one.
    Rename(String, String),
}

impl NameChange {
    /// The names that it changes.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        match self {
            Self::Make(name) | Self::Remove(name) => vec![name.as_str()],
            Self::Rename(from, to) => vec![from.as_str(), to.as_str()],
        }
    }
}

/// End of a lock request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockEnd {
    /// Granted.
    Granted,
    /// Not granted.
    Refused,
}

/// The lock type of a request that does not wait.
#[must_use]
pub fn lock_type(write: bool) -> LockType {
    if write { LockType::Write } else { LockType::Read }
}

/// File of an open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The client's own file.
    Own,
    /// The file whose ranges are locked.
    Locks,
    /// The file that is opened with deny modes.
    Shares,
}

/// Handles that all clients know.
#[derive(Clone, Debug)]
pub struct Files {
    /// The root of the export.
    pub root: Fh,
    /// The file of each client.
    pub own: Vec<Fh>,
    /// The file whose ranges are locked.
    pub locks: Fh,
    /// The file that is opened with deny modes.
    pub shares: Fh,
}

impl Files {
    /// The file of a client's open.
    fn of(&self, kind: Kind, client: usize) -> &Fh {
        match kind {
            Kind::Own => &self.own[client],
            Kind::Locks => &self.locks,
            Kind::Shares => &self.shares,
        }
    }
}
