//! Changes of targets and of the gateway, as the command line makes them.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use utoipa::ToSchema;

/// `PUT /api/v1/targets/{target}/luns/{number}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddLun {
    /// A zvol, another block device, or a file.
    #[schema(value_type = String)]
    pub path: PathBuf,
    /// Size of the file in bytes, which is created if it is missing or empty.
    #[serde(default)]
    pub size_bytes: Option<u64>,
    /// Refuses every modification.
    #[serde(default)]
    pub read_only: bool,
    /// Keep it in no file: it ends with the next reload or restart.
    #[serde(default)]
    pub runtime_only: bool,
}

/// `POST /api/v1/targets/{target}/luns/{number}/size`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResizeLun {
    /// New size of a file in bytes; absent for a device, whose size is read.
    #[serde(default)]
    pub size_bytes: Option<u64>,
}

/// `PUT /api/v1/targets/{target}/initiators/{name}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddRule {
    /// Networks it may connect from; empty: any.
    #[serde(default)]
    pub clients: Vec<String>,
    /// Logical units it may use; absent: all.
    #[serde(default)]
    pub luns: Option<Vec<u16>>,
    /// Refuse it every modification of data.
    #[serde(default)]
    pub read_only: bool,
    /// Keep it in no file: it ends with the next reload or restart.
    #[serde(default)]
    pub runtime_only: bool,
}

/// `POST /api/v1/reload`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Reload {
    /// Take away what is in use, too.
    #[serde(default)]
    pub force: bool,
}

/// `POST /api/v1/release`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseDataset {
    /// Name of the dataset; includes everything below it.
    pub dataset: String,
    /// Longest time of the release, in seconds: 1 to 3600.
    pub seconds: u64,
}

/// `POST /api/v1/replaced`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplacedDataset {
    /// Name of the dataset; does not include what is below it.
    pub dataset: String,
}

/// `POST /api/v1/resume`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResumeDataset {
    /// Name of the dataset; includes everything below it.
    pub dataset: String,
}
