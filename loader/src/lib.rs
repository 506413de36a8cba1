//! A user-space NFSv4.1 client: sessions, pipelined requests, several
//! connections. It talks to any NFSv4.1 server; the demo, the benchmarks and
//! the loaders use it. On top of it: models, whose tensors are received
//! directly into the memory they stay in.

mod background;
mod backoff;
pub mod blocking;
mod callback;
mod channel;
pub mod client;
pub mod compound;
pub mod directory;
pub mod error;
pub mod explain;
pub mod file;
mod leave;
pub mod model;
pub mod safetensors;
pub mod session;
mod state;
pub mod transport;
pub mod url;

pub use client::{Client, ClientOptions, START_WAIT};
pub use error::ClientError;
pub use explain::{Advice, explain};
pub use file::{File, OpenMode};
pub use leave::{LEAVE_TIMEOUT, all_left};
pub use model::{
    Destination, DestinationName, DeviceTensor, Gpu, Host, Load, LoadOptions, LoadedTensor, Model,
    Plan, Tensor, Wanted,
};
pub use state::delegation::DelegationCounts;
pub use url::NfsUrl;
pub use zgate_cuda as cuda;
