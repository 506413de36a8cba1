//! iSER (RFC 7145): iSCSI over RDMA, as pure bytes and plans.
//!
//! * [`PrivateData`]: flags that both sides exchange when they connect.
//! * [`Header`] and [`Message`]: one Send, and the iSCSI PDU in it.
//! * [`Target`]: decides which of a session's PDUs become RDMA Writes, RDMA
//!   Reads and Sends.
//! * [`initiator`]: messages of an initiator, for tests and bridges.
//!
//! The session is that of [`crate::session`], unchanged except for the
//! requirements of RFC 7145 §7 on its PDUs. Memory, queues and connections
//! belong to the owner.

mod header;
pub mod initiator;
pub mod limits;
mod message;
mod private_data;
mod target;

pub use header::{Header, HeaderError, Hello, HelloReply, RemoteBuffer};
pub use message::{Message, MessageError};
pub use private_data::PrivateData;
pub use target::{PeerFault, Piece, RdmaRead, RdmaWrite, Step, Target};
