//! The gateway's writing API, as the controller uses it.

pub mod http;
pub mod model;
mod tls;

use async_trait::async_trait;
use zgate_api::{
    Access, ApiError, Capacity, ChangeVolume, CreateGroupSnapshot, CreateVolume, GrantAccess,
    LeftAccess, Snapshot, SnapshotPage, Volume, VolumePage, WithdrawAccess,
};

/// Part of a list that is asked for.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Id after which it begins.
    pub after: Option<String>,
    /// Most entries; none: as many as the gateway gives.
    pub limit: Option<usize>,
}

/// Snapshots that a list is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of<'a> {
    /// All of the owner.
    All,
    /// Those of the volumes below a parent.
    Parent(&'a str),
    /// Those of a volume.
    Volume(&'a str),
}

/// A gateway. Every request may be repeated: the second finds what the first made.
#[async_trait]
pub trait Gateway: Send + Sync {
    /// Makes a volume, or finds it as it was asked for.
    async fn create_volume(&self, request: &CreateVolume) -> Result<Volume, ApiError>;
    /// Returns a volume.
    async fn volume(&self, id: &str) -> Result<Volume, ApiError>;
    /// Lists an owner's volumes in the order of their ids.
    async fn volumes(&self, owner: &str, page: &Page) -> Result<VolumePage, ApiError>;
    /// Grows a volume or changes its properties.
    async fn change_volume(&self, id: &str, change: &ChangeVolume) -> Result<Volume, ApiError>;
    /// Deletes a volume; nothing if there is none.
    async fn delete_volume(&self, id: &str, owner: &str) -> Result<(), ApiError>;
    /// Deletes a volume to which no node has access; nothing if there is none. A gateway that
    /// does not know this request yet answers with [`zgate_api::ErrorCode::NotFound`].
    async fn delete_detached(&self, id: &str, owner: &str) -> Result<(), ApiError>;
    /// Gives a node access to a volume.
    async fn grant(&self, id: &str, node: &str, grant: &GrantAccess) -> Result<Access, ApiError>;
    /// Ends a node's access; nothing if it has none.
    async fn revoke(&self, id: &str, node: &str, owner: &str) -> Result<(), ApiError>;
    /// Ends the access of a node under each of its names, or that of all nodes; nothing if there
    /// is no volume. A gateway that does not know this request yet answers with
    /// [`zgate_api::ErrorCode::NotFound`].
    async fn withdraw(&self, id: &str, asked: &WithdrawAccess) -> Result<LeftAccess, ApiError>;
    /// Takes a snapshot, or finds it.
    async fn create_snapshot(
        &self,
        id: &str,
        name: &str,
        owner: &str,
    ) -> Result<Snapshot, ApiError>;
    /// Deletes a snapshot; nothing if there is none.
    async fn delete_snapshot(&self, id: &str, name: &str, owner: &str) -> Result<(), ApiError>;
    /// Takes a snapshot of each volume at one moment, or finds them.
    async fn create_group(&self, request: &CreateGroupSnapshot) -> Result<Vec<Snapshot>, ApiError>;
    /// Lists an owner's snapshots in the order of their ids.
    async fn snapshots(
        &self,
        owner: &str,
        of: Of<'_>,
        page: &Page,
    ) -> Result<SnapshotPage, ApiError>;
    /// Lists those of an owner's snapshots that have a name. A gateway that does not know this
    /// selection yet answers with [`zgate_api::ErrorCode::Invalid`].
    async fn snapshots_named(
        &self,
        owner: &str,
        of: Of<'_>,
        name: &str,
        page: &Page,
    ) -> Result<SnapshotPage, ApiError>;
    /// Returns the space below a parent.
    async fn capacity(&self, parent: &str) -> Result<Capacity, ApiError>;
}
