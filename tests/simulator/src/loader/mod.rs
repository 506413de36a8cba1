//! The loader: the product's own (`loader`), on tokio with paused time, over
//! byte streams of the simulated network. [`clock`] makes one clock of tokio's and
//! the run's, [`script`] takes its steps and checks what it returns.

mod clock;
mod model;
mod script;

pub use clock::Clock;
pub use model::{SHARDS, shard, shard_name};
pub use script::{Loader, Surroundings};

/// Number of the loader among the clients of the network.
pub const LOADER: usize = 60;
