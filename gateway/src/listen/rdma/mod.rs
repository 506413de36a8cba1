//! NFS over RDMA: requests as they come, connections, calls that are pulled
//! from the client's memory, replies that are pushed into it.

pub(crate) mod accept;
mod callbacks;
mod connection;
pub(crate) mod progress;
mod reply;
mod supervise;

pub(crate) use connection::serve;
pub(crate) use supervise::supervise;
