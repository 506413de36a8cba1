//! From the description of a machine's disks and a pool to the exact commands
//! that make it, and to running them.
//!
//! [`layout`] is what the file may say, [`properties`] what ZFS takes,
//! [`check`] refuses what is ambiguous or loses data, [`plan`](mod@plan) makes
//! the commands and their hash, [`machine`] looks at the disks, [`apply`](mod@apply)
//! runs the commands on empty ones.

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
