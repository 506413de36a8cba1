//! Context of one COMPOUND, and what operations do with it and the server's
//! state together.

mod cx;
pub mod io;
mod patience;
pub(crate) mod sequenced;

pub use cx::{Current, Cx};
pub use patience::Patience;
