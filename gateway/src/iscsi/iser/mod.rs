//! iSCSI over RDMA (RFC 7145): the session's data is written to and read from
//! the initiator's memory by RDMA, everything else is sent in messages.
//!
//! * `wire` is the fabric's connection in the form that login needs;
//! * `connection` is the full feature phase.

mod connection;
mod wire;

pub(crate) use connection::serve;
