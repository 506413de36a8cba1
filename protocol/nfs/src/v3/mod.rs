//! NFSv3 (RFC 1813) on the same stores as NFSv4. Stateless: every call carries
//! a file handle, and access is checked for every call. A client gets its first
//! handle from MOUNT; the pseudo file system is not visible over NFSv3.

pub mod cx;
pub mod guard;
pub mod listing;
pub mod proc;
mod run;
pub mod server;
pub mod table;

pub use guard::{BorrowingFuture, Change, ConflictGuard, NoConflicts};
pub use server::{NamespaceSource, Server};
pub use table::{Row, row};
