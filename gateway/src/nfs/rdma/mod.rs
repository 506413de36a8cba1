//! NFS over RDMA: connections, calls read from the client's memory, replies
//! written to it.

mod callbacks;
mod connection;
mod reply;

pub(crate) use connection::serve;
