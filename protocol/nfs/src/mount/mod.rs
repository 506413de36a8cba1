//! MOUNT version 3 (RFC 1813 appendix I): how an NFSv3 client turns a path
//! into its first file handle.

pub mod path;
pub mod records;
pub mod server;
pub mod wire;

pub use records::{MountRecord, MountRecords};
pub use server::{Row, Server, row};

/// RPC program number of MOUNT.
pub const PROGRAM: u32 = 100_005;
/// The version this module speaks.
pub const VERSION: u32 = 3;
