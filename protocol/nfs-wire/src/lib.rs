//! Wire format of NFS: arguments, results, attributes and callbacks of NFSv4.0,
//! 4.1 and 4.2 (`v4`), NFSv3 (`v3`) and MOUNT (`mount`). Each type is encoded
//! and decoded here, so that server and client share one definition.

pub mod bulk;
mod enums;
pub mod limits;
pub mod mount;
pub mod rdma;
pub mod v3;
pub mod v4;

pub(crate) use enums::named_enum;

/// RPC program number of NFS (RFC 1813 §2.1, RFC 8881 §2.2).
pub const PROGRAM: u32 = 100_003;
