//! Settings of one export, derived from the configuration.

use super::plan::DatasetRef;
use ipnet::IpNet;
use std::io;
use std::net::ToSocketAddrs;
use std::path::PathBuf;
use zgate_config::{
    AccessMode, Cidr, ClientMatch, Config, DirectChoice, ExportClient, ExportConfig, Place,
    Problem, SquashMode,
};
use zgate_nfs::namespace::export::Versions;
use zgate_nfs::namespace::{ClientRule, Squash};
use zgate_posix::DirectIo;

/// Exports to be opened, and the hosts that may come for others later.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExportSet {
    pub exports: Vec<ExportSettings>,
    /// Client entries of patterns of datasets: these hosts are clients while no
    /// dataset matches, too, and are told that a file handle is stale.
    pub pattern_clients: Vec<ClientRule>,
}

impl std::ops::Deref for ExportSet {
    type Target = [ExportSettings];

    fn deref(&self) -> &[ExportSettings] {
        &self.exports
    }
}

/// An export to be opened.
#[derive(Clone, Debug)]
pub(crate) struct ExportSettings {
    pub path: PathBuf,
    pub pseudo_path: String,
    pub id: Option<u32>,
    pub clients: Vec<ClientRule>,
    pub read_only: bool,
    pub max_transfer_bytes: u32,
    pub versions: Versions,
    pub tcp: bool,
    pub rdma: bool,
    pub delegations: bool,
    pub delegated_times: bool,
    pub sync_names: bool,
    pub reserved_port_only: bool,
    pub snapshots_visible: bool,
    pub direct_io: DirectIo,
    /// Dataset that it follows, if any.
    pub dataset: Option<DatasetRef>,
}

/// Returns the settings of one export; without a path if it selects datasets.
///
/// # Errors
/// The export, the reason and the next step.
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

/// Returns the exports whose directories do not exist or cannot be read by the
/// gateway's user.
pub(crate) fn check_directories(config: &Config) -> Vec<Problem> {
    let unreadable = |(index, export): (usize, &ExportConfig)| {
        let path = export.path.as_ref()?;
        let error = std::fs::read_dir(path).err()?;
        let next_step = match error.kind() {
            io::ErrorKind::NotFound => "create or mount it, or correct the path",
            io::ErrorKind::NotADirectory => "export the directory it lies in",
            io::ErrorKind::PermissionDenied => "run as a user who can read it",
            _ => "check its file system",
        };
        Some(Problem {
            place: Place::root("export").item(index).key("path"),
            problem: format!("cannot read {}: {error}", path.display()),
            next_step: next_step.to_owned(),
        })
    };
    config.exports.iter().enumerate().filter_map(unreadable).collect()
}

/// Returns the client entries whose host names have no address.
pub(crate) fn check_hosts(config: &Config) -> Vec<Problem> {
    let mut found = Vec::new();
    for (index, export) in config.exports.iter().enumerate() {
        let clients = Place::root("export").item(index).key("clients");
        for (index, client) in export.clients.iter().enumerate() {
            if let ClientMatch::Host(name) = &client.matches
                && let Err(error) = addresses(name)
            {
                found.push(Problem {
                    place: clients.item(index).key("match"),
                    problem: format!("host {name}: {error}"),
                    next_step: UNKNOWN_HOST.to_owned(),
                });
            }
        }
    }
    found
}

fn client(client: &ExportClient) -> io::Result<ClientRule> {
    let networks = match &client.matches {
        ClientMatch::Everyone => Vec::new(),
        ClientMatch::Network(Cidr(network)) => vec![*network],
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

const UNKNOWN_HOST: &str = "correct the name, or use an address";

fn resolve(name: &str) -> io::Result<Vec<IpNet>> {
    addresses(name).map_err(|error| {
        io::Error::new(error.kind(), format!("client {name}: {error}; {UNKNOWN_HOST}"))
    })
}

/// Resolves all addresses of a host. A host without addresses is an error: it
/// must not open the export to everyone.
fn addresses(name: &str) -> io::Result<Vec<IpNet>> {
    let found = (name, 0).to_socket_addrs().map_err(|error| {
        // The resolver's errors have no kind of their own.
        io::Error::new(io::ErrorKind::NotFound, error)
    })?;
    let networks: Vec<_> = found.map(|found| found.ip().to_canonical().into()).collect();
    if networks.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    }
    Ok(networks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_client() -> ExportClient {
        ExportClient {
            matches: ClientMatch::Everyone,
            access: AccessMode::Rw,
            squash: SquashMode::Root,
            anon_uid: 1,
            anon_gid: 1,
            security: vec!["sys".into()],
        }
    }

    #[test]
    fn a_host_that_does_not_resolve_is_an_error_not_everyone() {
        let matches = ClientMatch::Host("no-such-host.invalid".into());
        assert!(client(&ExportClient { matches, ..a_client() }).is_err());
    }

    /// An interface and an export that name the same network select the same
    /// clients.
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
            ("::ffff:10.1.0.0/8", "::ffef:0:1", "10.1.2.3"),
            ("::ffff:0:0/90", "::fffe:0:1", "192.0.2.1"),
            ("2001:db8::/32", "2001:db8:1::1", "2001:db9::1"),
            ("2001:db8::7", "2001:db8::7", "2001:db8::8"),
        ] {
            let cidr: zgate_config::Cidr = network.parse().unwrap();
            let rule = ExportClient { matches: network.parse().unwrap(), ..a_client() };
            let rule = client(&rule).unwrap();
            for (address, expected) in [(inside, true), (outside, false)] {
                let address = address.parse().unwrap();
                assert_eq!(cidr.contains(address), expected, "{network} {address}: interface");
                assert_eq!(rule.matches(address), expected, "{network} {address}: export");
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
