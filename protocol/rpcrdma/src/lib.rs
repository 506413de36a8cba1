//! RPC-over-RDMA version 1 (RFC 8166) with its binding for NFS (RFC 8267), the
//! private data of connections (RFC 8797) and calls in both directions
//! (RFC 8167). Bytes in, plans out: which memory is pulled before a call is
//! whole, what of a reply is pushed where and what is sent inline. No device,
//! no sockets, no clock.

pub mod binding;
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
