//! Stores in memory, for tests, simulations and demos: a complete model of a
//! tree of files ([`MemoryStore`]) and a disk with a volatile cache
//! ([`SimDisk`]). Both are deterministic (no clock, no randomness), can be made
//! to fail or to wait ([`Faults`]), and can lose power, so that tests can
//! verify the guarantees of COMMIT, FILE_SYNC, FUA and SYNCHRONIZE CACHE.

mod acl;
mod attributes;
mod builder;
mod content;
mod create;
mod directory;
pub mod disk;
pub mod faults;
mod file_data;
#[cfg(test)]
mod fixture;
mod inode;
mod names;
mod open_file;
mod page_set;
mod permission;
mod ranges;
mod store;
mod tree;
mod xattr;

pub use builder::{EPOCH_SECONDS, MemoryStoreBuilder};
pub use disk::{DiskOp, SimDisk, SimDiskBuilder};
pub use faults::{Faults, FileOp, Hold, When};
pub use store::{MemoryStore, Snapshot};
