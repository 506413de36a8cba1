//! A mounted tree as a [`zgate_store::FileStore`]: a ZFS dataset with its
//! children, or any other file system Linux mounts.
//!
//! * Handles are the kernel's own where possible ([`HandleMode`]).
//! * Name-space operations run on metadata workers under the caller's identity,
//!   with one change of thread per operation. Attributes, names and file pages
//!   in memory are read on the core's own thread, but not on ZFS, where even that
//!   may wait: there a worker reads them.
//! * Objects in use are kept open as `O_PATH` in a bounded cache.
//! * READDIR caches listings for up to a second, as `listing` describes:
//!   changes by clients show at once; changes by other programs on the server
//!   may show a second late in READDIR, but at once everywhere else.
//!
//! One file per group of operations: `lookup`, `create`, `names`, `setattr`,
//! `readdir`, `open_file`, `data`, `direct`, `ranges`, `xattr`, `acl`,
//! `statfs`, `stable`; shared code is in `tree`. `unsynced` keeps files with
//! unstable writes until their data is synced. `zero_search` looks for holes where the
//! file system is not asked for them.

mod acl;
mod acl_codec;
mod asleep;
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
mod given_up;
mod group_sync;
mod handle;
mod identities;
mod listing;
mod lookup;
mod losses;
mod mounts;
mod name;
mod name_sync;
mod name_table;
mod names;
mod open;
mod open_file;
mod options;
mod place;
mod ranges;
mod readdir;
mod removed;
mod reports;
mod rights;
mod rounds;
mod setattr;
mod snapshot_mounts;
mod stable;
mod statfs;
mod store;
mod syscall;
mod tree;
mod unsynced;
mod xattr;
mod zero_search;

pub use asleep::Asleep;
pub use descriptors::DescriptorBudget;
pub use direct::DirectIo;
pub use identities::{Identities, MountedDevices};
pub use losses::Losses;
pub use options::{HandleMode, OpenError, PosixOptions};
pub use store::PosixStore;
