//! What zgate knows of pools, datasets, zvols and snapshots, and what it asks
//! of them. Everything goes through `zpool` and `zfs`, whose output is the one
//! interface OpenZFS keeps stable; nothing here calls its ioctls.
//!
//! [`tool`] runs the programs, with a limit on their time: a suspended pool
//! lets them wait for ever. [`name`] holds what may be put on their command
//! lines.
//!
//! [`discovery`] finds [`pools`] and [`datasets`] with their properties, in
//! JSON where the installed release has it. [`health`] tells how pools are.

pub mod datasets;
pub mod discovery;
pub mod events;
pub mod health;
pub mod name;
pub mod pattern;
pub mod pools;
pub mod properties;
pub mod provision;
pub mod snapshot;
pub mod tool;
pub mod watch;

pub use datasets::{Dataset, DatasetKind};
pub use discovery::Discovery;
pub use name::{DatasetName, NameError, PoolName, SnapshotName};
pub use pattern::{DatasetPattern, PatternError};
pub use pools::{Health, Pool, Vdev, VdevClass};
pub use properties::OutputForm;
pub use tool::{SystemTool, Tool, ToolError};
