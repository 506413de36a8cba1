//! Creation of a pool: from a layout of disks and pool to the exact commands,
//! and their execution.
//!
//! [`layout`] defines the file, [`properties`] the properties of ZFS, [`check`]
//! refuses layouts that are ambiguous or lose data, [`plan`](mod@plan) makes
//! the commands and their hash, [`machine`] examines the disks,
//! [`apply`](mod@apply) runs the commands on empty disks.

mod apply;
mod check;
mod datasets;
mod disks;
mod layout;
mod machine;
mod plan;
mod properties;
mod size;

pub use apply::{ApplyError, Progress, apply};
pub use check::{Leaf, Refused};
pub use disks::{Disk, disks};
pub use layout::Layout;
pub use machine::{Found, Machine, SystemMachine};
pub use plan::{DeviceIdentity, Plan, Step, plan};
pub use size::Bytes;
