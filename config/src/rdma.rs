//! RDMA settings in the file.

use crate::problem::{Findings, Place};
use crate::schema::{ByteSize, Config};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Provider of RDMA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FabricChoice {
    /// RDMA devices of this machine; without one, clients are served over TCP.
    #[default]
    Auto,
    /// RDMA verbs emulated over TCP, for tests without a device.
    Emulated,
}

/// `[rdma]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RdmaConfig {
    /// Addresses where NFS listens over RDMA; empty: none. Clients expect port
    /// 20049.
    #[serde(deserialize_with = "crate::text::list")]
    pub listen: Vec<SocketAddr>,
    /// Does without RDMA, its memory and its warnings if the machine has no device
    /// when the gateway starts.
    pub optional: bool,
    /// "auto" or "emulated".
    pub fabric: FabricChoice,
    /// Memory registered with the devices; all data passes through it.
    pub arena: ByteSize,
    /// Seconds after which a connection is closed if its client completes none
    /// of the messages sent to it.
    pub stall_seconds: u32,
}

impl Default for RdmaConfig {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            optional: false,
            fabric: FabricChoice::Auto,
            arena: ByteSize(512 << 20),
            stall_seconds: 60,
        }
    }
}

/// Bounds of the arena: the buffers of a few connections at least, more than
/// any machine has at most.
const ARENA_BYTES: (u64, u64) = (16 << 20, 1 << 40);

/// Bounds of `stall_seconds`: longer than a delay in a busy network, shorter
/// than anybody would wait.
const STALL_SECONDS: (u32, u32) = (3, 3600);

/// Adds the problems of the RDMA settings.
pub(crate) fn problems(config: &Config, found: &mut Findings) {
    let (rdma, place) = (&config.rdma, |key| Place::root("rdma").key(key));
    let (least, most) = ARENA_BYTES;
    found.range(place("arena"), rdma.arena, ByteSize(least), ByteSize(most));
    let (least, most) = STALL_SECONDS;
    found.range(place("stall_seconds"), rdma.stall_seconds, least, most);
}

#[cfg(test)]
mod tests {
    use crate::parse;
    use std::path::Path;

    #[test]
    fn bounds_and_conflicts_are_told() {
        let said =
            |text: &str| parse(text, Path::new("zgate.toml")).err().map(|error| error.to_string());
        let good = "[rdma]\nlisten = [\"0.0.0.0:20049\"]\narena = \"64MiB\"\n";
        assert_eq!(said(good), None);
        assert!(said("[rdma]\nstall_seconds = 1\n").unwrap().contains("between 3 and 3600"));
        let small = said("[rdma]\narena = \"1MiB\"\n").unwrap();
        assert!(small.contains("between 16MiB and 1024GiB"), "{small}");
        let both = "[rdma]\nlisten = [\"0.0.0.0:2049\"]\nfabric = \"emulated\"\n";
        assert!(said(both).unwrap().contains("choose another port"));
        let disks = "[iscsi]\nlisten = [\"0.0.0.0:3260\"]\niser_listen = [\"0.0.0.0:3260\"]\n";
        assert_eq!(said(disks), None);
        let emulated = said(&format!("{disks}[rdma]\nfabric = \"emulated\"\n")).unwrap();
        assert!(emulated.contains("collides with 0.0.0.0:3260 of iscsi.listen"), "{emulated}");
        let export = "[[export]]\npath = \"/a\"\npseudo = \"/a\"\nrequire_reserved_port = true\n";
        let ports = said(&format!("{good}{export}")).unwrap();
        assert!(ports.contains("require_reserved_port") && ports.contains("tcp"), "{ports}");
        assert_eq!(said(export), None);
        assert_eq!(said(&format!("{good}{export}transports = [\"tcp\"]\n")), None);
        assert!(said("[rdma]\nfabric = \"infiniband\"\n").unwrap().contains("auto"));
    }
}
