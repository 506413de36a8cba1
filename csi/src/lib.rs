//! Driver of the Container Storage Interface (CSI 1.12): volumes of zgate's
//! gateways for Kubernetes. The controller asks gateways through their API; the
//! node mounts file systems over NFS and attaches disks over iSCSI.

mod addresses;
pub mod controller;
pub mod gateway;
pub mod identity;
pub mod limits;
mod locks;
pub mod names;
pub mod node;
mod publication;
pub mod serve;
pub mod settings;
mod status;

/// Messages and services of CSI, as `proto/csi.proto` defines them.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::unwrap_used, rust_2018_idioms)]
pub mod proto {
    tonic::include_proto!("csi.v1");
}

/// Name of the driver.
pub const DRIVER: &str = "csi.zgate.io";
/// Label of nodes and volumes: their zone.
pub const ZONE_KEY: &str = "topology.csi.zgate.io/zone";
/// Beginning of the labels of nodes that reach a gateway; its name follows.
pub const GATEWAY_KEY: &str = "topology.csi.zgate.io/gateway-";
