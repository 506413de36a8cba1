//! A user-space NFSv4.1 client: sessions, pipelined requests, several
//! connections. It talks to any NFSv4.1 server; the demo, the benchmarks and
//! the loaders stand on it.

pub mod blocking;
pub mod client;
pub mod compound;
pub mod error;
pub mod file;
pub mod safetensors;
pub mod session;
pub mod transport;

pub use client::{Client, ClientOptions};
pub use error::ClientError;
pub use file::{File, OpenMode};
