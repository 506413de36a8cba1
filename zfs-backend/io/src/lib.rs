//! The I/O engines: asynchronous file I/O and blocking calls for the threads of
//! the cores.
//!
//! * [`IoEngine`] reads, writes and syncs through io_uring or a thread pool,
//!   and runs blocking metadata work on its own workers.
//! * [`StoreName`] names the storage that fails as a unit: each has its own
//!   workers.
//! * [`continuation`] lets a worker continue the request whose call it has
//!   finished.
//! * [`jobs`] counts the jobs of workers in progress.
//! * [`after_reply()`] leaves work of a job for the time after its reply.
//! * [`cached`] asks for the pages of a file that are in memory, and drops them.
//! * [`credentials`] switches one thread to a caller's identity, and [`set_id`]
//!   handles set-id bits of files that change.
//! * [`access_check`], [`arena`], [`block_ioctl`], [`file_handle`],
//!   [`huge_pages`], [`low_water`], [`peer_window`], [`send_queue`] and [`share_blocks`]
//!   wrap system calls that rustix lacks.
//! * [`close_all`] closes what a process has open that ends while its storage hangs.
//! * [`FilledPipe`] carries file data from a worker to a socket.
//! * [`mountinfo`] reads the mount table, `own_addresses` the interfaces of this machine.
//! * [`errno`] says what error numbers mean for a store.
//! * [`throttle`] bounds the number of log lines that a peer can cause.
//!
//! This is one of the few crates in which `unsafe` is allowed; every block
//! states why it is sound, and the public interface is safe.

pub mod access_check;
mod after_reply;
pub mod arena;
pub mod block_ioctl;
mod blocking;
pub mod cached;
pub mod continuation;
pub mod credentials;
mod descriptors;
pub mod engine;
pub mod errno;
pub mod file_handle;
mod hang_detector;
pub mod huge_pages;
pub mod jobs;
pub mod low_water;
pub mod mountinfo;
#[cfg(feature = "interfaces")]
mod own_addresses;
pub mod peer_window;
mod pipes;
mod queue;
pub mod reuse;
pub mod send_queue;
pub mod set_id;
pub mod share_blocks;
mod store_name;
mod stores;
pub mod throttle;
mod uring;
mod workers;
mod write_method;

pub use after_reply::after_reply;
pub use cached::{forget_pages, is_resident};
pub use descriptors::close_all;
pub use engine::{EngineChoice, EngineKind, IoEngine};
#[cfg(feature = "interfaces")]
pub use own_addresses::{interface_of, own_addresses};
pub use pipes::{FilledPipe, Pipes, max_pipes};
pub use set_id::SetIdBits;
pub use store_name::StoreName;
pub use workers::on_a_worker;
pub use write_method::{WriteMethod, WriteMode, WriteSync};
