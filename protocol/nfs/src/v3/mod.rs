//! NFSv3 (RFC 1813) over the same stores as NFSv4. Stateless: every call
//! carries a file handle, and every right is checked anew. A client gets its
//! first handle from MOUNT; it never sees the pseudo file system.

pub mod cx;
pub mod guard;
pub mod listing;
pub mod proc;
pub mod server;
pub mod table;
pub mod wire;

pub use guard::{Change, ConflictGuard, LocalBox, NoConflicts};
pub use server::{NamespaceSource, Server};
pub use table::{Row, row};

/// RPC program number of NFS.
pub const PROGRAM: u32 = 100_003;
/// The version this module speaks.
pub const VERSION: u32 = 3;
