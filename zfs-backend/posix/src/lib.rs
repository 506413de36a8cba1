//! A mounted tree as a [`zgate_store::FileStore`]: a ZFS dataset with its
//! children, or any other file system Linux mounts.
//!
//! * Handles are the kernel's own where that is possible ([`HandleMode`]).
//! * Name-space operations run on metadata workers under the caller's
//!   identity; one hop per operation. What is in memory (attributes, names,
//!   file pages) is answered on the core's own thread.
//! * Objects at hand are kept open as `O_PATH` in a bounded cache.
//! * READDIR remembers what it read for up to a second, as `listing` says:
//!   what clients do shows at once; what other programs on the server do may
//!   show a second late there, and there only.
//!
//! One file per group of operations: `lookup`, `create`, `names`, `setattr`,
//! `readdir`, `open_file`, `data`, `direct`, `ranges`, `xattr`, `acl`, `statfs`, `stable`; what
//! they share is `tree`.

mod acl;
mod acl_codec;
mod attributes;
mod change;
mod create;
mod data;
mod descriptors;
mod dir_stream;
mod direct;
mod entry;
mod entry_cache;
mod errno;
mod file_systems;
mod group_sync;
mod handle;
mod listing;
mod lookup;
mod losses;
mod mountinfo;
mod mounts;
mod name;
mod names;
mod open;
mod open_file;
mod options;
mod places;
mod ranges;
mod readdir;
mod rights;
mod setattr;
mod siphash;
mod snapshot_mounts;
mod stable;
mod statfs;
mod store;
mod syscall;
mod tree;
mod xattr;

pub use descriptors::DescriptorBudget;
pub use direct::DirectIo;
pub use losses::Losses;
pub use options::{HandleMode, OpenError, PosixOptions};
pub use store::PosixStore;
