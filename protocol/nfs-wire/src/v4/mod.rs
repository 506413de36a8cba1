//! NFSv4.0 (RFC 7530), 4.1 (RFC 8881) and 4.2 (RFC 7862, 8276).

pub mod attr;
pub mod callback;
pub mod op;
pub mod status;
pub mod types;
pub mod walk;

pub use op::{OpNum, Operation};
pub use status::Status;
pub use types::*;

/// Version number of the protocol.
pub const VERSION: u32 = 4;
/// Procedure number of COMPOUND or CB_COMPOUND, which carries operations.
pub const COMPOUND: u32 = 1;
