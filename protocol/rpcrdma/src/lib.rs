//! RPC-over-RDMA version 1 (RFC 8166), the private data of connections (RFC 8797)
//! and calls in both directions (RFC 8167). From received bytes it derives plans:
//! which memory to read before a call is complete, which parts of a reply to write
//! where, and which to send inline. No device, no sockets, no clock.

pub mod client;
pub mod credits;
pub mod direction;
pub mod header;
pub mod invalidate;
pub mod limits;
pub mod private_data;
pub mod segment;
pub mod server;

pub use credits::{Credit, Grant, ReceiveQueue, SendCredits};
pub use direction::{Direction, direction};
pub use header::{Body, Decoded, ErrorBody, Header, HeaderError, Xid};
pub use invalidate::rkey_to_invalidate;
pub use private_data::{InlineBytes, PrivateData};
pub use segment::{Chunks, ReadSegment, Segment, WriteChunk};
