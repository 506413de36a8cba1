//! Volumes: datasets and zvols that the API makes.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Longest name of a volume, a snapshot or an owner, in bytes.
pub const MAX_NAME_BYTES: usize = 128;
/// Most volumes or snapshots of a page.
pub const MAX_PAGE_ITEMS: usize = 1000;

/// Longest time within which a new volume is to be confirmed, in seconds.
pub const MAX_CONFIRM_SECONDS: u32 = 3600;

/// Native properties of a dataset that a request may set, by their names in
/// zfsprops(7): `compression`, `recordsize` (filesystem), `volblocksize` (block,
/// only at creation), `sync`, `logbias`, `primarycache`, `atime` (filesystem). Two more
/// are limits that the gateway enforces by waiting: `iops_max`, reads and writes per
/// second from 10, and `bytes_per_second_max`, from 1 MiB, in bytes or with a unit
/// (`200MiB`); `none` ends a limit.
pub type Properties = BTreeMap<String, String>;

/// Kind of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum VolumeKind {
    /// A ZFS file system, reached over NFS.
    Filesystem,
    /// A zvol, reached over iSCSI.
    Block,
}

/// Origin of the content of a new volume. The new volume is a ZFS clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Source {
    /// Id of a volume of the same pool: its content at the time of the request.
    Volume(String),
    /// Id of a snapshot of a volume: `dataset@name`.
    Snapshot(String),
    /// A dataset, or a snapshot `dataset@name`, that the configuration of the
    /// parent allows as source (`[[volumes.parent]] sources`), of the same pool.
    Dataset(String),
}

/// `POST /api/v1/volumes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateVolume {
    /// Name: letters, digits, `-`, `_`, `.`; the first is a letter or digit; at
    /// most 128 bytes.
    pub name: String,
    /// Dataset below which it is made; one of the configuration.
    pub parent: String,
    /// Party that the volume belongs to: characters as in `name`.
    pub owner: String,
    /// File system or block device.
    pub kind: VolumeKind,
    /// Size in bytes: limit of a file system's data (`refquota`), size of a
    /// block device, which is rounded up to whole blocks. Of a clone: at least
    /// that of its source.
    pub size_bytes: u64,
    /// Properties to set; the others are inherited from the parent.
    #[serde(default)]
    pub properties: Properties,
    /// Origin of its content; none: empty.
    #[serde(default)]
    pub source: Option<Source>,
    /// Refuses every modification by clients.
    #[serde(default)]
    pub read_only: bool,
}

/// `PATCH /api/v1/volumes/{id}`: what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeVolume {
    /// Owner of the volume.
    pub owner: String,
    /// New size in bytes. Volumes only grow; a size that the volume has
    /// already changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Properties to set.
    #[serde(default)]
    pub properties: Properties,
}

/// `POST /api/v1/volumes/{id}/confirm`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfirmVolume {
    /// Owner of the volume.
    pub owner: String,
}

/// `POST /api/v1/volumes/{id}/delete`: deletes it as `DELETE` does, but not while a node has
/// access: that is `in_use`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeleteVolume {
    /// Owner of the volume.
    pub owner: String,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    /// Name of its dataset: `parent/name`.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Dataset below which it is.
    pub parent: String,
    /// Party that it belongs to.
    pub owner: String,
    /// File system or block device.
    pub kind: VolumeKind,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Space that it occupies, in bytes, with its snapshots.
    pub used_bytes: u64,
    /// Space that it may still use, in bytes.
    pub available_bytes: u64,
    /// Set if clients cannot modify it.
    pub read_only: bool,
    /// Properties that were set when it was made or changed, as ZFS has them.
    pub properties: Properties,
    /// Origin of its content, as the request that made it named it.
    pub source: Option<Source>,
    /// Set if clients that have access can use it.
    pub healthy: bool,
    /// Reason for which it is not healthy, for people.
    pub problem: Option<String>,
    /// Nodes that have access.
    pub access: Vec<String>,
    /// Path to mount over NFS; none for block devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// iSCSI target; none for file systems.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// A page of volumes, in the order of their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumePage {
    /// The volumes.
    pub items: Vec<Volume>,
    /// Value of `after` for the next page; none: this is the last one.
    pub next: Option<String>,
}

/// Space below a parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Capacity {
    /// Space for new volumes, in bytes.
    pub available_bytes: u64,
    /// Space that is available or used below the parent, in bytes.
    pub total_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_needs_little_and_refuses_what_it_does_not_know() {
        let text = r#"{"name": "pvc-1", "parent": "tank/k8s", "owner": "csi", "kind": "block",
            "size_bytes": 1073741824, "source": {"snapshot": "tank/k8s/a@s"}}"#;
        let asked: CreateVolume = serde_json::from_str(text).unwrap();
        assert_eq!(asked.kind, VolumeKind::Block);
        assert_eq!(asked.source, Some(Source::Snapshot("tank/k8s/a@s".to_owned())));
        assert!(asked.properties.is_empty() && !asked.read_only);
        let more = text.replacen('{', r#"{"sise_bytes": 1,"#, 1);
        assert!(serde_json::from_str::<CreateVolume>(&more).is_err());
        let source = text.replace("snapshot", "nothing");
        assert!(serde_json::from_str::<CreateVolume>(&source).is_err());
    }
}
