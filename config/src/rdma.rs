//! RDMA settings in the file.

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
    pub listen: Vec<SocketAddr>,
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
            fabric: FabricChoice::Auto,
            arena: ByteSize(512 << 20),
            stall_seconds: 60,
        }
    }
}

/// Bounds of the arena: the buffers of a few connections at least, more than
/// any machine has at most.
const ARENA_BYTES: std::ops::RangeInclusive<u64> = 16 << 20..=1 << 40;

/// Bounds of `stall_seconds`: longer than a delay in a busy network, shorter
/// than anybody would wait.
const STALL_SECONDS: std::ops::RangeInclusive<u32> = 3..=3600;

/// Adds the problems of the RDMA settings.
pub(crate) fn problems(config: &Config, found: &mut Vec<String>) {
    let rdma = &config.rdma;
    if !ARENA_BYTES.contains(&rdma.arena.0) {
        found.push(format!("rdma.arena = {}: must be between 16MiB and 1TiB", rdma.arena));
    }
    if !STALL_SECONDS.contains(&rdma.stall_seconds) {
        found.push(format!("rdma.stall_seconds = {}: must be 3 to 3600", rdma.stall_seconds));
    }
    let iscsi = &config.iscsi;
    if let Some(address) = iscsi.iser_listen().find(|address| rdma.listen.contains(address)) {
        found.push(format!(
            "iscsi.iser_listen = {address}: rdma.listen uses it already; choose another port"
        ));
    }
    if rdma.fabric != FabricChoice::Emulated {
        return;
    }
    // Ports of RDMA devices are separate from TCP ports; the emulated fabric
    // listens on TCP ports.
    let nfs = rdma.listen.iter().map(|address| ("rdma.listen", address));
    let all = nfs.chain(iscsi.iser_listen().map(|address| ("iscsi.iser_listen", address)));
    for (key, address) in all {
        let tcp = [
            ("server.listen", config.server.listen.contains(address)),
            ("iscsi.listen", iscsi.tcp_listen().any(|known| known == address)),
        ];
        if let Some((other, _)) = tcp.iter().find(|(_, taken)| *taken) {
            found.push(format!("{key} = {address}: {other} uses it already; choose another port"));
        }
    }
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
        assert!(said("[rdma]\nstall_seconds = 1\n").unwrap().contains("3 to 3600"));
        let small = said("[rdma]\narena = \"1MiB\"\n").unwrap();
        assert!(small.contains("between 16MiB and 1TiB"), "{small}");
        let both = "[rdma]\nlisten = [\"0.0.0.0:2049\"]\nfabric = \"emulated\"\n";
        assert!(said(both).unwrap().contains("choose another port"));
        let disks = "[iscsi]\nlisten = [\"0.0.0.0:3260\"]\niser_listen = [\"0.0.0.0:3260\"]\n";
        assert_eq!(said(disks), None);
        let emulated = said(&format!("{disks}[rdma]\nfabric = \"emulated\"\n")).unwrap();
        assert!(emulated.contains("iscsi.listen uses it"), "{emulated}");
        let export = "[[export]]\npath = \"/a\"\npseudo = \"/a\"\nrequire_reserved_port = true\n";
        let ports = said(&format!("{good}{export}")).unwrap();
        assert!(ports.contains("require_reserved_port") && ports.contains("tcp"), "{ports}");
        assert_eq!(said(export), None);
        assert_eq!(said(&format!("{good}{export}transports = [\"tcp\"]\n")), None);
        assert!(said("[rdma]\nfabric = \"infiniband\"\n").unwrap().contains("auto"));
    }
}
