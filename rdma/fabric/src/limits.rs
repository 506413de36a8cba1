//! Bounds of connections and messages.

/// Private data of a connection request, in bytes: the space that the
/// InfiniBand connection manager leaves to users of the RDMA_PS_TCP port space.
pub const MAX_REQUEST_PRIVATE_BYTES: usize = 56;

/// Private data of an accepting reply, in bytes.
pub const MAX_ACCEPT_PRIVATE_BYTES: usize = 196;

/// Private data of a rejection, in bytes.
pub const MAX_REJECT_PRIVATE_BYTES: usize = 148;

/// Longest single message the emulated fabric carries, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// Most requests of a peer that the emulated fabric queues while no receive is
/// posted for the first of them.
pub const MAX_STALLED_REQUESTS: usize = 4096;

const _: () = assert!(MAX_MESSAGE_BYTES < u32::MAX as usize);
const _: () = assert!(MAX_ACCEPT_PRIVATE_BYTES <= u8::MAX as usize);
