//! Context of one COMPOUND, and what operations do with it and the server's
//! state together.

mod cx;
pub mod io;
pub(crate) mod sequenced;

pub use cx::{Current, Cx, Unentered};
