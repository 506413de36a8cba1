//! Volumes: file systems and zvols that a program makes, grows, snapshots,
//! clones and deletes. ZFS user properties on them are the only record, so
//! nothing can disagree with the datasets: `zgate:volume` and `zgate:owner` on
//! each volume and snapshot, `zgate:access:NODE` for each node with access.
//!
//! Each function may be repeated after a crash, a time-out or a lost reply: it
//! reads what is there and does the rest.

mod change;
mod create;
mod delete;
mod fault;
mod grant;
mod limits;
pub mod model;
mod properties;
mod record;
mod snapshot;
#[cfg(test)]
mod tests;

pub use change::{Change, change};
pub use create::{Made, NewVolume, Origin, VolumeKind, create};
pub use delete::{delete, refuse_if_snapshots};
pub use fault::{Fault, VolumeError};
pub use grant::{Grant, grant, withdraw};
pub use limits::{MAX_NAME_BYTES, MAX_NODE_ADDRESSES, MAX_NODE_BYTES, MAX_NODES_PER_VOLUME};
pub use properties::check_properties;
pub use record::{VolumeRecord, VolumeSpace, capacity, list, read};
pub use snapshot::{
    VolumeSnapshot, delete_snapshot, group_snapshot, snapshot, snapshots, snapshots_of,
};

/// Checks the name of a volume, snapshot or owner.
///
/// # Errors
/// The character or length that is not allowed.
pub fn check_name(what: &str, name: &str) -> Result<(), VolumeError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_name = name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.len() <= MAX_NAME_BYTES
        && name.chars().all(allowed);
    if is_name {
        return Ok(());
    }
    Err(VolumeError::invalid(
        format!("{what} {name:?} is not a name"),
        "use letters, digits, - _ and ., begin with a letter or digit, at most 128 bytes",
    ))
}
