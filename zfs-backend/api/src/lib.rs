//! Types shared by protocols and storage: handles, attributes, errors, buffers,
//! locks on ranges and the two store traits. The lowest crate of the workspace: it does no I/O
//! and depends on neither a protocol nor an operating system.

pub mod attr;
pub mod block_store;
pub mod buffer;
pub mod caller;
pub mod error;
pub mod file_store;
mod forward;
pub mod handle;
mod host;
mod host_places;
pub mod range_lock;
pub mod signal;
mod thread_shard;

pub use attr::{Attr, FileKind, SetAttr, SetTime, Timestamp};
pub use block_store::BlockStore;
pub use buffer::{
    AlignedBuf, Arena, BUFFER_ALIGNMENT_BYTES, BufferPool, FileSpan, MIN_SPAN_BYTES, Payload,
};
pub use caller::{AccessMask, Caller};
pub use error::{StoreError, StoreResult};
pub use file_store::{FileStore, StoreFuture};
pub use handle::NodeHandle;
pub use host::HostKey;
pub use host_places::{HostPlace, HostPlaces};
pub use thread_shard::{THREAD_SHARDS, thread_shard};
