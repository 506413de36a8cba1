//! From the configuration to what a gateway is started with.

use super::fabric::RdmaSettings;
use super::run::{ExportSettings, Settings};
use crate::serve::connections::ConnectionLimits;
use std::io;
use std::net::ToSocketAddrs;
use std::time::Duration;
use zgate_config::{
    AccessMode, ClientMatch, Config, DirectChoice, ExportClient, ExportConfig, IoEngineChoice,
    SquashMode,
};
use zgate_nfs::namespace::export::Versions;
use zgate_nfs::namespace::policy::Network;
use zgate_nfs::namespace::{ClientRule, Squash};
use zgate_nfs::v4::server::Identity;
use zgate_nfs::v4::state::grace::GracePeriod;
use zgate_posix::DirectIo;

/// Settings of the process.
pub(crate) fn settings(config: &Config) -> Settings {
    let server = &config.server;
    let owner =
        if server.server_owner.is_empty() { machine_id() } else { server.server_owner.clone() };
    let scope =
        if server.server_scope.is_empty() { owner.clone() } else { server.server_scope.clone() };
    let all_cores = || std::thread::available_parallelism().map_or(1, usize::from);
    Settings {
        state_dir: server.state_dir.clone(),
        nfs: server.listen.clone(),
        rdma: RdmaSettings {
            listen: config.rdma_listen(),
            iser: config.iscsi.iser_listen().next().is_some(),
            fabric: config.rdma.fabric,
            arena_bytes: config.rdma.arena.0 as usize,
            stall: Duration::from_secs(config.rdma.stall_seconds.into()),
        },
        interfaces: config.interfaces.clone(),
        cores: if server.cores == 0 { all_cores() } else { server.cores },
        lease_seconds: server.lease_seconds,
        grace: GracePeriod {
            seconds: server.grace_seconds,
            max_seconds: server.longest_grace_seconds(),
        },
        identity: Identity {
            owner_major: owner.into_bytes(),
            owner_minor: 0,
            scope: scope.into_bytes(),
        },
        connections: ConnectionLimits {
            total: server.max_connections,
            per_client: server.max_connections_per_client,
        },
        engine: match server.io_engine {
            IoEngineChoice::Auto => zgate_io::EngineChoice::Auto,
            IoEngineChoice::Uring => zgate_io::EngineChoice::Uring,
            IoEngineChoice::Threads => zgate_io::EngineChoice::Threads,
        },
        worker_threads: server.worker_threads,
        poll_microseconds: server.poll_microseconds,
        core_nice: server.core_nice,
        fd_cache_entries: server.fd_cache_entries,
        buffer_bytes: server.buffers.0 as usize,
        fair_shares: server.fair_shares,
        drain: Duration::from_secs(server.drain_seconds.into()),
    }
}

/// A name for this machine that stays when its address changes.
fn machine_id() -> String {
    let id = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let id = id.trim();
    if id.is_empty() { "zgate".to_owned() } else { format!("zgate-{id}") }
}

/// Settings of one export; of one that names datasets, without its place.
///
/// # Errors
/// Naming the export, the reason and the next step.
pub(crate) fn export(export: &ExportConfig) -> io::Result<ExportSettings> {
    let has = |list: &[String], value: &str| list.iter().any(|item| item == value);
    let named = |error: io::Error| {
        io::Error::new(error.kind(), format!("export {}: {error}", export.pseudo))
    };
    let clients = export.clients.iter().map(client).collect::<io::Result<_>>().map_err(named)?;
    Ok(ExportSettings {
        path: export.path.clone().unwrap_or_default(),
        pseudo_path: export.pseudo.clone(),
        id: export.fsid,
        clients,
        read_only: export.read_only,
        max_transfer_bytes: export.max_transfer.0 as u32,
        versions: Versions {
            v3: has(&export.versions, "3"),
            v4: ["4.0", "4.1", "4.2"].map(|version| has(&export.versions, version)),
        },
        tcp: has(&export.transports, "tcp"),
        rdma: has(&export.transports, "rdma"),
        delegations: export.delegations,
        delegated_times: export.delegated_times,
        sync_names: export.sync_names,
        reserved_port_only: export.require_reserved_port,
        snapshots_visible: export.snapshots_visible,
        direct_io: match export.direct_io {
            DirectChoice::Auto => DirectIo::Auto,
            DirectChoice::Always => DirectIo::Always,
            DirectChoice::Never => DirectIo::Never,
        },
        dataset: None,
    })
}

fn client(client: &ExportClient) -> io::Result<ClientRule> {
    let networks = match &client.matches {
        ClientMatch::Everyone => Vec::new(),
        ClientMatch::Network(cidr) => {
            vec![Network { address: cidr.address, prefix_bits: cidr.prefix_bits }]
        }
        ClientMatch::Host(name) => resolve(name)?,
    };
    let has = |flavor: &str| client.security.iter().any(|item| item == flavor);
    Ok(ClientRule {
        networks,
        writable: client.access == AccessMode::Rw,
        squash: match client.squash {
            SquashMode::None => Squash::None,
            SquashMode::Root => Squash::Root,
            SquashMode::All => Squash::All,
        },
        anon_uid: client.anon_uid,
        anon_gid: client.anon_gid,
        sys: has("sys"),
        none: has("none"),
    })
}

/// All addresses of a host. One that has none must not open the export to
/// everyone, so it is an error.
fn resolve(name: &str) -> io::Result<Vec<Network>> {
    let unknown = |error: String| {
        let hint = "correct the name, or use an address";
        io::Error::new(io::ErrorKind::NotFound, format!("client {name}: {error}; {hint}"))
    };
    let addresses = (name, 0).to_socket_addrs().map_err(|error| unknown(error.to_string()))?;
    let networks: Vec<_> = addresses
        .map(|found| {
            let prefix_bits = if found.is_ipv4() { 32 } else { 128 };
            Network { address: found.ip(), prefix_bits }
        })
        .collect();
    if networks.is_empty() { Err(unknown("it has no address".to_owned())) } else { Ok(networks) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_does_not_resolve_is_an_error_not_everyone() {
        let rule = ExportClient {
            matches: ClientMatch::Host("no-such-host.invalid".into()),
            access: AccessMode::Rw,
            squash: SquashMode::Root,
            anon_uid: 1,
            anon_gid: 1,
            security: vec!["sys".into()],
        };
        assert!(client(&rule).is_err());
    }

    /// What an interface counts as its clients and what an export lets in are
    /// the same networks.
    #[test]
    fn a_network_means_the_same_to_interfaces_and_exports() {
        for (network, inside, outside) in [
            ("10.1.0.0/16", "10.1.200.3", "10.2.0.1"),
            ("10.1.9.9/16", "::ffff:10.1.200.3", "::ffff:10.2.0.1"),
            ("::ffff:10.1.0.0/112", "10.1.200.3", "10.2.0.1"),
            ("::ffff:10.1.2.3", "10.1.2.3", "10.1.2.4"),
            ("::ffff:0:0/96", "192.0.2.1", "2001:db8::1"),
            ("0.0.0.0/0", "192.0.2.1", "2001:db8::1"),
            ("::/0", "2001:db8::1", "192.0.2.1"),
            ("::ffff:0:0/90", "::fffe:0:1", "192.0.2.1"),
            ("2001:db8::/32", "2001:db8:1::1", "2001:db9::1"),
            ("2001:db8::7", "2001:db8::7", "2001:db8::8"),
        ] {
            let cidr: zgate_config::Cidr = network.parse().unwrap();
            let direct = Network { address: cidr.address, prefix_bits: cidr.prefix_bits };
            for (address, expected) in [(inside, true), (outside, false)] {
                let address = address.parse().unwrap();
                assert_eq!(cidr.contains(address), expected, "{network} {address}: interface");
                assert_eq!(direct.contains(address), expected, "{network} {address}: export");
            }
        }
    }

    #[test]
    fn an_export_without_clients_admits_nobody() {
        let text = "[[export]]\npath = \"/tmp\"\npseudo = \"/t\"\n";
        let config = zgate_config::parse(text, std::path::Path::new("x")).unwrap();
        assert!(export(&config.exports[0]).unwrap().clients.is_empty());
    }
}
