//! NFSv4.0 (RFC 7530), 4.1 (RFC 8881) and 4.2 (RFC 7862, 8276).

pub mod attrs;
pub mod callback;
pub mod compound;
pub mod failure;
pub mod guard;
pub mod op;
pub mod request;
pub mod retry;
pub mod server;
pub mod state;
pub mod tables;

pub use server::Server;
