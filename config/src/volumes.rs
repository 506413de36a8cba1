//! `[volumes]`: the datasets below which the API may make volumes.

use crate::schema::SquashMode;
use serde::{Deserialize, Serialize};

const fn yes() -> bool {
    true
}

const fn nobody_is_squashed() -> SquashMode {
    SquashMode::None
}

/// `[volumes]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct VolumesSection {
    /// Parents of volumes.
    #[serde(rename = "parent", skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<VolumeParent>,
}

/// A dataset below which the API may make, change and delete volumes. It
/// touches nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeParent {
    /// The dataset. It must exist; volumes are made directly below it.
    pub dataset: String,
    /// Path below which clients find its file systems over NFS; absent: no file
    /// systems can be made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pseudo: Option<String>,
    /// Beginning of the names of targets of its block devices; absent: none can
    /// be made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Block devices take space as they are written.
    #[serde(default = "yes")]
    pub thin: bool,
    /// Identities that are mapped on file systems. A node with access mounts for
    /// many users, and its root prepares the volume for them.
    #[serde(default = "nobody_is_squashed")]
    pub squash: SquashMode,
    /// Datasets, or patterns of them, of the same pool, that volumes may be
    /// cloned from although the API did not make them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
}
