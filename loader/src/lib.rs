//! A user-space NFSv4.1 client: sessions, pipelined requests, several
//! connections. It talks to any NFSv4.1 server; the demo, the benchmarks and
//! the loaders stand on it. On top of it: models, whose tensors come straight
//! from the wire into the memory they stay in.

mod attendant;
mod backchannel;
pub mod blocking;
mod callback;
mod channel;
pub mod client;
pub mod compound;
mod delegation;
pub mod directory;
mod errand;
pub mod error;
pub mod file;
mod lease;
mod leave;
mod link;
pub mod model;
mod open_state;
mod revoked;
pub mod safetensors;
pub mod session;
pub mod transport;
pub mod url;
mod waits;

pub use client::{Client, ClientOptions};
pub use delegation::DelegationCounts;
pub use error::ClientError;
pub use file::{File, OpenMode};
pub use model::{
    Destination, DeviceLoad, DeviceTensor, Load, LoadOptions, LoadedTensor, Model, Plan, Wanted,
};
pub use url::NfsUrl;
pub use zgate_cuda as cuda;
