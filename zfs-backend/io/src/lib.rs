//! The io engines: how bytes and blocking calls leave a core's thread.
//!
//! * [`IoEngine`] reads, writes and syncs through io_uring or a thread pool,
//!   and runs blocking metadata work on its own workers.
//! * [`StoreName`] says what hangs together below: each has workers of its own.
//! * [`cached`] answers from the page cache without leaving the thread.
//! * [`credentials`] switches one thread to a caller's identity, and
//!   [`set_id`] decides about set-id bits of files that change.
//! * [`access_check`], [`arena`], [`block_ioctl`], [`file_handle`], [`huge_pages`],
//!   [`low_water`] and [`share_blocks`] wrap system calls rustix lacks.
//!
//! This is one of the two places of the house where `unsafe` may stand; every
//! block says why it is sound, and what leaves this crate is safe.

pub mod access_check;
pub mod arena;
pub mod block_ioctl;
pub mod cached;
pub mod credentials;
pub mod engine;
pub mod file_handle;
pub mod huge_pages;
pub mod low_water;
mod queue;
mod quiet;
pub mod reuse;
pub mod set_id;
pub mod share_blocks;
mod store_name;
mod stores;
mod uring;
mod way;
mod workers;

pub use cached::{is_resident, try_read_cached};
pub use engine::{EngineChoice, EngineKind, IoEngine, WriteSync};
pub use set_id::SetIdBits;
pub use store_name::StoreName;
pub use way::{WriteMode, WriteWay};
pub use workers::on_a_worker;
