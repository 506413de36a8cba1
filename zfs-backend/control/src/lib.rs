//! Control of ZFS: pools, datasets, zvols and snapshots. Everything goes
//! through `zpool` and `zfs`, whose output is the one interface that OpenZFS
//! keeps stable; nothing here calls its ioctls.
//!
//! [`tool`] runs the programs with a time limit, because they hang on a
//! suspended pool. [`name`] holds the names that may be put on their command
//! lines.
//!
//! [`discovery`] finds [`pools`] and [`datasets`] with their properties, in
//! JSON if the installed release supports it. [`health`] reports the health of
//! pools. [`watch`] follows the [`events`] of ZFS and the kernel's mount table; [`replaced`] finds
//! the datasets among them that have other content.

pub mod datasets;
pub mod discovery;
pub mod events;
pub mod health;
mod left_behind;
pub mod name;
pub mod pattern;
pub mod pools;
pub mod properties;
pub mod provision;
pub mod replaced;
pub mod snapshot;
pub mod tool;
pub mod volume;
pub mod watch;

pub use datasets::{Dataset, DatasetKind};
pub use discovery::Discovery;
pub use name::{DatasetName, NameError, PoolName, SnapshotName};
pub use pattern::{DatasetPattern, PatternError};
pub use pools::{Health, Pool, Vdev, VdevClass};
pub use properties::OutputForm;
pub use tool::{SystemTool, Tool, ToolError};
