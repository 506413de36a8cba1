//! Initiators for tests: the plain one of `zgate-initiator`, one that repairs what a
//! proxy breaks, and the proxy.

pub mod ports;
pub mod proxy;
pub mod recovering;

pub use zgate_initiator::*;
