//! Collection of facts, without judgement and without changes to the machine.

pub(crate) mod mounts;
pub(crate) mod network;
pub(crate) mod pair;
mod process;
pub(crate) mod rdma;
pub(crate) mod server;
pub(crate) mod sockets;
mod zed;
mod zfs;
