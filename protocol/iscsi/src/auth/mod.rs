//! Authentication during login: CHAP (RFC 7143 §12.1.3, RFC 1994).

mod algorithm;
mod binary;
mod chap;

pub use algorithm::ChapAlgorithm;
pub use binary::{decode_binary, encode_hex};
pub use chap::{ChapAccount, ChapError, ChapPolicy, ChapServer, ChapStep, Secret};
