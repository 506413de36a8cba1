//! PDUs on a TCP stream: padding and CRC32C digests (RFC 7143 §11.1, §13.1).
//! iSER does not use this (RFC 7145 §6.1, §9.1).

mod decoder;
mod encoder;

pub use decoder::{Decoder, FramingError, Want};
pub use encoder::{EncodeError, Encoder};

/// Digests in use in one direction of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// CRC32C over the headers.
    pub header: bool,
    /// CRC32C over data and padding.
    pub data: bool,
}

/// Padding after `len` bytes.
fn pad_bytes(len: usize) -> usize {
    len.wrapping_neg() & 3
}
