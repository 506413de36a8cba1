//! A disk in memory with a volatile cache, thin provisioning and faults.

mod builder;
mod media;
mod overlay;
mod sim;
#[cfg(test)]
mod tests;

pub use builder::SimDiskBuilder;
pub use sim::{DiskOp, SimDisk};
