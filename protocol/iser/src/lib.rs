//! iSER (RFC 7145): iSCSI over RDMA, as pure bytes and plans.
//!
//! * [`PrivateData`]: what both sides say when they connect.
//! * [`Header`] and [`Message`]: one Send, and the iSCSI PDU in it.
//! * [`Target`]: which of a session's PDUs become RDMA Writes, RDMA Reads and
//!   Sends.
//! * [`initiator`]: the other end's messages, for tests and bridges.
//!
//! The session itself is `zgate-iscsi`'s, unchanged but for what RFC 7145 §7
//! says of its PDUs. Memory, queues and connections are the owner's.

mod header;
pub mod initiator;
pub mod limits;
mod message;
mod private_data;
mod target;

pub use header::{Header, HeaderError, Hello, HelloReply, RemoteBuffer};
pub use message::{Message, MessageError};
pub use private_data::PrivateData;
pub use target::{PeerFault, Piece, Pull, Push, Step, Target};
