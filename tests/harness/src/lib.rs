//! Test harness of several crates: the gateway as a process with clients of
//! NFS, iSCSI and RPC-over-RDMA, and the two protocol servers without sockets,
//! in virtual time.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(missing_docs, reason = "a method is named after the request it sends")]

mod binary;
pub mod breakable_link;
pub mod certificates;
mod client;
pub mod cuda;
pub mod documents;
mod gateway;
pub mod iscsi;
pub mod iscsi_recovery;
mod loader;
mod network;
pub mod nfs;
mod privilege;
mod random;
pub mod rdma;
pub mod tls_tunnel;

pub use binary::zgate_binary;
pub use client::{Client, Opened, Written, mode_attr};
pub use gateway::Gateway;
pub use loader::{loader_options, own_credential, runtime};
pub use network::{free_port, stream_from, wait_for_listener};
pub use privilege::{handles_survive_restarts, not_run};
pub use random::{Random, noise};
pub use zgate_rpc::gss::fake as gss;
