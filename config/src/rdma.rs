//! RDMA in the file.

use crate::schema::ByteSize;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// What carries RDMA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FabricChoice {
    /// The machine's devices; without any, clients are served over TCP.
    #[default]
    Auto,
    /// The same verbs over TCP: for tests without a device.
    Emulated,
}

/// `[rdma]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RdmaConfig {
    /// Addresses NFS listens on over RDMA; empty: none. The port clients
    /// expect is 20049.
    pub listen: Vec<SocketAddr>,
    /// "auto" or "emulated".
    pub fabric: FabricChoice,
    /// Memory registered with the devices, which data goes through.
    pub arena: ByteSize,
}

impl Default for RdmaConfig {
    fn default() -> Self {
        Self { listen: Vec::new(), fabric: FabricChoice::Auto, arena: ByteSize(512 << 20) }
    }
}
