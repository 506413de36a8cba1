//! The initiator's side of iSER on the emulated fabric, for tests.
//!
//! * [`client`]: an initiator of our own, one connection, blocking.
//! * [`bridge`]: carries what another program speaks over TCP to a target that
//!   speaks iSER, so that it is judged by an initiator that is not ours.

pub mod bridge;
pub mod client;
pub mod link;
mod text;

pub use link::{Link, Memory};
