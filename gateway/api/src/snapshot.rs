//! Snapshots of volumes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Most volumes of a group snapshot.
pub const MAX_GROUP_VOLUMES: usize = 256;

/// `PUT /api/v1/volumes/{id}/snapshots/{name}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSnapshot {
    /// Owner of the volume and of the snapshot.
    pub owner: String,
}

/// `POST /api/v1/volumes/{id}/snapshots/{name}/rollback`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RollBack {
    /// Owner of the volume and of the snapshot.
    pub owner: String,
    /// Also while hosts use the volume: what they keep in memory does not fit
    /// its content afterwards.
    #[serde(default)]
    pub force: bool,
    /// Destroys later snapshots that a schedule took, which prevent it otherwise.
    #[serde(default)]
    pub destroy_scheduled: bool,
}

/// `POST /api/v1/volume-snapshots`: one snapshot of each volume, all of the same
/// moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateGroupSnapshot {
    /// Name of all the snapshots: characters as in a volume's name.
    pub name: String,
    /// Owner of the volumes and of the snapshots.
    pub owner: String,
    /// Ids of the volumes: 1 to 256, all of one pool.
    pub volumes: Vec<String>,
}

/// Snapshots of a group, in the order of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupSnapshot {
    /// The snapshots.
    pub items: Vec<Snapshot>,
}

/// A snapshot of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    /// `dataset@name`.
    pub id: String,
    /// Its name, without the volume.
    pub name: String,
    /// Id of the volume it is of. It may change: when a volume is deleted that
    /// clones depend on, its snapshots move to a clone.
    pub volume: String,
    /// Party that it belongs to.
    pub owner: String,
    /// Size of a volume that is made from it, in bytes.
    pub size_bytes: u64,
    /// Time of its creation, in seconds since 1970.
    pub created_unix_seconds: i64,
    /// Set if volumes can be made from it.
    pub ready: bool,
}

/// A page of snapshots, in the order of their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotPage {
    /// The snapshots.
    pub items: Vec<Snapshot>,
    /// Value of `after` for the next page; none: this is the last one.
    pub next: Option<String>,
}
