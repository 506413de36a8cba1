//! MOUNT version 3 (RFC 1813 appendix I): gives an NFSv3 client the first file
//! handle for a path.

pub mod path;
pub mod records;
pub mod server;

pub use records::{MountRecord, MountRecords};
pub use server::{Row, Server, row};
