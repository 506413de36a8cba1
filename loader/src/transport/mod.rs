//! Carrying RPC messages.

pub mod tcp;
