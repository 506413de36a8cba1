//! The NFS server without sockets, clock or threads: NFSv4.0, 4.1 and 4.2
//! (`v4`), NFSv3 (`v3`) and MOUNT (`mount`) over [`zgate_store::FileStore`].

pub mod assurance;
pub mod callback_security;
pub mod changes;
pub mod dispatch;
pub mod limits;
pub mod mount;
pub mod namespace;
pub mod patience;
pub mod runtime;
pub mod v3;
pub mod v4;
pub mod write_verifier;

pub use runtime::{Call, Now, Peer, Runtime};
