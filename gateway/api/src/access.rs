//! Access of nodes to volumes.

use crate::volume::VolumeKind;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use utoipa::ToSchema;

/// Longest name of a node, in bytes.
pub const MAX_NODE_BYTES: usize = 200;
/// Most addresses of a node.
pub const MAX_NODE_ADDRESSES: usize = 16;
/// Most names in one withdrawal.
pub const MAX_WITHDRAWN_NODES: usize = 16;

/// `PUT /api/v1/volumes/{id}/access/{node}`. It replaces what the node had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GrantAccess {
    /// Owner of the volume.
    pub owner: String,
    /// Addresses that the node connects from: at least one for a file system.
    /// For a block device empty means: from any address.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    pub addresses: Vec<IpAddr>,
    /// The node's initiator name; needed for a block device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initiator: Option<String>,
    /// The node may not modify the volume: the gateway refuses it.
    #[serde(default)]
    pub read_only: bool,
    /// Condition of the access; none: others may have access, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sole: Option<SoleAccess>,
}

/// Condition of an access: no other node has access to the volume, the volume is of the expected
/// kind, and it is not read-only as a whole, unless the node may only read. If it does not hold,
/// the answer is `in_use`, and nothing has changed. It saves a look at the volume before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SoleAccess {
    /// Kind of the volume; none: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<VolumeKind>,
}

/// `POST /api/v1/volumes/{id}/withdraw`: ends the access of one node or of all, and their use of
/// the volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WithdrawAccess {
    /// Owner of the volume.
    pub owner: String,
    /// Names that one node may have, 1 to 16. Without: all nodes. If the node has access under none
    /// of its names, it gets none either by an earlier request that ZFS carries out late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<String>>,
}

/// Access that is left after a withdrawal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeftAccess {
    /// Nodes that have access.
    pub access: Vec<String>,
}

/// Transport by which a volume can be reached.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// NFS or iSCSI over TCP.
    Tcp,
    /// NFS over RDMA, or iSER.
    Rdma,
}

/// An address of the gateway and its transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
pub struct Portal {
    /// Address and port. An unspecified address (`0.0.0.0`, `::`) means: each
    /// address of the gateway.
    #[schema(value_type = String)]
    pub address: SocketAddr,
    /// Its transport.
    pub transport: Transport,
}

/// Place at which a node reaches a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase", tag = "protocol")]
pub enum Reach {
    /// A file system.
    Nfs {
        /// Path to mount: `server:path`.
        path: String,
        /// Addresses of NFS.
        portals: Vec<Portal>,
    },
    /// A block device.
    Iscsi {
        /// Name of the target. It belongs to this volume alone.
        target: String,
        /// Number of the logical unit.
        lun: u16,
        /// Identifier of the disk, as `naa.` and hexadecimal digits: the same
        /// on each path to it (`/dev/disk/by-id/wwn-0x…`, `dm-uuid-mpath-3…`).
        naa: String,
        /// Addresses of the target.
        portals: Vec<Portal>,
    },
}

/// Access of one node, in effect when it is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Access {
    /// Id of the volume.
    pub volume: String,
    /// The node.
    pub node: String,
    /// Set if the gateway refuses modifications by this node.
    pub read_only: bool,
    /// Place at which the node reaches the volume.
    pub reach: Reach,
    /// Transports of the portals, each once.
    pub transports: Vec<Transport>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_its_protocol() {
        let portal = Portal { address: "[::1]:3260".parse().unwrap(), transport: Transport::Rdma };
        let reach = Reach::Iscsi {
            target: "iqn.2026-11.org.example:1".to_owned(),
            lun: 0,
            naa: "naa.60".to_owned(),
            portals: vec![portal],
        };
        let text = serde_json::to_value(&reach).unwrap();
        assert_eq!(text["protocol"], "iscsi");
        assert_eq!(text["portals"][0]["address"], "[::1]:3260");
        assert_eq!(serde_json::from_value::<Reach>(text).unwrap(), reach);
        let wrong = r#"{"owner": "csi", "addresses": ["10.0.0.0/8"]}"#;
        assert!(serde_json::from_str::<GrantAccess>(wrong).is_err(), "an address, no network");
    }

    /// A gateway that does not know the condition refuses a request that has it.
    #[test]
    fn a_condition_is_sent_only_where_there_is_one() {
        let text = r#"{"owner":"csi","addresses":[],"read_only":false}"#;
        let plain: GrantAccess = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&plain).unwrap(), text);
        let sole = Some(SoleAccess { kind: Some(VolumeKind::Block) });
        let text = serde_json::to_string(&GrantAccess { sole, ..plain }).unwrap();
        assert!(text.contains(r#""sole":{"kind":"block"}"#), "{text}");
        let more = text.replace("kind", "sort");
        assert!(serde_json::from_str::<GrantAccess>(&more).is_err());
        let all: WithdrawAccess = serde_json::from_str(r#"{"owner":"csi"}"#).unwrap();
        assert_eq!(all.nodes, None);
    }
}
