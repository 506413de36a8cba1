//! XDR (RFC 4506): a bounded decoder, an encoder that keeps bulk data out of
//! its buffer, and macros that declare a type together with its codec.

mod decode;
mod encode;
mod types;

pub use decode::{Decode, Decoder, XdrError};
pub use encode::{Direct, Encode, Encoder, Mark, Message, Segment};
pub use types::{DirectOpaque, Opaque, Utf8};
