//! Volumes: file systems and zvols that a program makes, grows, snapshots,
//! clones and deletes. ZFS user properties on them are the only record, so
//! nothing can disagree with the datasets: `zgate:volume` and `zgate:owner` on
//! each volume and snapshot, `zgate:access:NODE` for each node with access,
//! `zgate:iops_max` and `zgate:bytes_per_second_max` for limits.
//!
//! Each function may be repeated after a crash, a time-out or a lost reply: it
//! reads what is there and does the rest.

mod begun;
mod change;
mod confirm;
mod create;
mod delete;
mod fault;
mod grant;
mod in_use;
mod kind;
mod limits;
pub mod model;
mod origin;
mod properties;
mod record;
mod rollback;
mod snapshot;
#[cfg(test)]
mod tests;

pub use change::{Change, change};
pub use confirm::{confirm, destroy_unconfirmed};
pub use create::{Made, NewVolume, create};
pub use delete::{Promotion, delete, refuse_if_snapshots};
pub use fault::{Fault, VolumeError};
pub use grant::{Grant, grant, withdraw};
pub use kind::{VolumeKind, check_name};
pub use limits::{
    MAX_BYTES_PER_SECOND, MAX_IOPS, MAX_NAME_BYTES, MAX_NODE_ADDRESSES, MAX_NODE_BYTES,
    MAX_NODES_PER_VOLUME, MIN_BYTES_PER_SECOND, MIN_IOPS,
};
pub use origin::Origin;
pub use properties::{RateLimits, check_properties};
pub use record::{
    Found, VolumeRecord, VolumeSpace, away, capacity, list, list_with_datasets, look, read,
    read_all,
};
pub use rollback::roll_back;
pub use snapshot::{
    Taken, VolumeSnapshot, delete_snapshot, group_snapshot, snapshots, snapshots_named,
    snapshots_of,
};

/// User properties of volumes and snapshots that only requests read: they decide neither what is
/// served nor to whom.
pub(crate) const KEPT_PROPERTIES: [&str; 6] = [
    record::PENDING,
    record::SOURCE,
    record::UNCONFIRMED,
    snapshot::SIZE,
    snapshot::SNAPSHOT,
    snapshot::TEMPORARY,
];
