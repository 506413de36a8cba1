//! What zgate knows of pools, datasets, zvols and snapshots, and what it asks
//! of them. Everything goes through `zpool` and `zfs`, whose output is the one
//! interface OpenZFS keeps stable; nothing here calls its ioctls.
//!
//! [`tool`] runs the programs, with a limit on their time: a suspended pool
//! lets them wait for ever. [`name`] holds what may be put on their command
//! lines.

pub mod name;
pub mod tool;

pub use name::{DatasetName, NameError, PoolName, SnapshotName};
pub use tool::{SystemTool, Tool, ToolError};
