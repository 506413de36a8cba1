//! File attributes: supported ones, their encoding, settable ones (RFC 8881 §5,
//! RFC 7862 §12, RFC 8275, RFC 8276, RFC 9754).

pub mod acl;
pub mod delegated_times;
pub mod encode;
pub mod listed;
mod locations;
pub mod principals;
pub mod settable;
pub mod table;
pub mod values;

pub use encode::{encode_attrs, encode_known};
