//! Settings of a gateway, derived from the configuration.

use crate::net::connections::ConnectionLimits;
use crate::net::rdma::fabric::RdmaSettings;
use crate::nfs::gss::kerberos::KerberosSettings;
use crate::state_dir::StateDir;
use rustix::process::geteuid;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use zgate_config::{Config, FabricChoice, IoEngineChoice, ServerConfig};
use zgate_nfs::v4::server::Identity;
use zgate_nfs::v4::state::grace::GracePeriod;

/// Settings of a gateway.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub state_dir: PathBuf,
    pub nfs: Vec<SocketAddr>,
    pub rdma: RdmaSettings,
    /// Addresses at which clients reach this server.
    pub interfaces: Vec<zgate_config::InterfaceConfig>,
    pub cores: usize,
    pub lease_seconds: u32,
    pub grace: GracePeriod,
    /// Name of this server; empty: the one in the state directory.
    pub server_owner: String,
    /// Empty: the owner.
    pub server_scope: String,
    pub connections: ConnectionLimits,
    pub engine: zgate_io::EngineChoice,
    pub worker_threads: usize,
    /// Time for which a core polls after a reply, in microseconds.
    pub poll_microseconds: u32,
    /// Nice value of the cores' threads.
    pub core_nice: i32,
    pub fd_cache_entries: usize,
    /// Most memory of the process in bytes; 0: what its cgroup leaves.
    pub memory_max_bytes: usize,
    /// Memory for requests and replies in bytes; 0: a quarter of the machine's.
    pub buffer_bytes: usize,
    pub fair_shares: bool,
    /// Number of clients, and of initiators, whose load is among the metrics.
    pub metrics_clients: usize,
    pub drain: Duration,
}

/// Directory with an entry for each RDMA device.
const RDMA_DEVICES: &str = "/sys/class/infiniband";

/// File of Kerberos' replay cache in the state directory, and what its name ends in beside the
/// admin socket.
const REPLAY_CACHE: &str = "kerberos.rcache2";
const REPLAY_CACHE_END: &str = ".rcache2";

/// Returns the settings of Kerberos; `None`: it is not offered.
pub(crate) fn kerberos_settings(config: &Config) -> Option<KerberosSettings> {
    config.kerberos.as_ref().map(|kerberos| KerberosSettings {
        keytab: kerberos.keytab.clone(),
        principal: kerberos.principal.clone(),
        users: kerberos.users.clone(),
        replay_cache: replay_cache(&config.server),
    })
}

/// Returns the file of Kerberos' replay cache: beside the admin socket, usually in memory,
/// where a state disk that is full or fails keeps nobody from a new context. It is of use for
/// some minutes only. In a directory where others may write it would be theirs.
fn replay_cache(server: &ServerConfig) -> PathBuf {
    let socket = &server.admin_socket;
    match (socket.parent(), socket.file_name()) {
        (Some(dir), Some(name)) if socket.is_absolute() && is_own(dir) => {
            let mut name = name.to_owned();
            name.push(REPLAY_CACHE_END);
            dir.join(name)
        }
        _ => server.state_dir.join(REPLAY_CACHE),
    }
}

/// Removes the replay cache that earlier versions kept in the state directory, unless it is
/// in use. Only what they made is removed: a file of this user, and no link.
pub(super) fn remove_old_replay_cache(config: &Config) {
    let old = config.server.state_dir.join(REPLAY_CACHE);
    if replay_cache(&config.server) == old {
        return;
    }
    let path = old.display();
    match std::fs::symlink_metadata(&old) {
        Ok(found) if found.is_file() && found.uid() == geteuid().as_raw() => {
            match std::fs::remove_file(&old) {
                Ok(()) => tracing::info!(%path, "removed the replay cache of an earlier version"),
                Err(error) => {
                    tracing::debug!(%path, %error, "the replay cache of an earlier version stays");
                }
            }
        }
        Ok(_) => tracing::debug!(%path, "is not the replay cache of an earlier version, and stays"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => tracing::debug!(%path, %error, "cannot look for an old replay cache"),
    }
}

/// Returns whether nobody else can write in a directory; one that is missing is made so.
fn is_own(dir: &Path) -> bool {
    match std::fs::metadata(dir) {
        Ok(found) => {
            let is_writable = found.mode() & 0o022 != 0;
            found.is_dir() && found.uid() == geteuid().as_raw() && !is_writable
        }
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Returns the settings of the process.
pub(crate) fn settings(config: &Config) -> Settings {
    let server = &config.server;
    let all_cores = || std::thread::available_parallelism().map_or(1, usize::from);
    Settings {
        state_dir: server.state_dir.clone(),
        nfs: server.listen.clone(),
        rdma: RdmaSettings {
            listen: if does_without_rdma(config) { Vec::new() } else { config.rdma_listen() },
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
        server_owner: server.server_owner.clone(),
        server_scope: server.server_scope.clone(),
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
        memory_max_bytes: server.memory_max.0 as usize,
        buffer_bytes: server.buffers.0 as usize,
        fair_shares: server.fair_shares,
        metrics_clients: server.metrics_clients,
        drain: Duration::from_secs(server.drain_seconds.into()),
    }
}

/// Returns whether RDMA is optional, and the machine has no device.
fn does_without_rdma(config: &Config) -> bool {
    let rdma = &config.rdma;
    if !rdma.optional || rdma.fabric != FabricChoice::Auto || config.rdma_listen().is_empty() {
        return false;
    }
    let is_absent =
        std::fs::read_dir(RDMA_DEVICES).map_or(true, |mut found| found.next().is_none());
    if is_absent {
        tracing::info!("no RDMA device: clients are served over TCP; see rdma.optional");
    }
    is_absent
}

impl Settings {
    /// Returns the names of this server to clients.
    ///
    /// # Errors
    /// If the state directory's name of it cannot be read or written.
    pub(super) fn identity(&self, state_dir: &StateDir) -> io::Result<Identity> {
        let chosen = |text: &String| (!text.is_empty()).then(|| text.clone());
        let owner = match chosen(&self.server_owner) {
            Some(owner) => owner,
            None => state_dir.server_owner(machine_id)?,
        };
        let scope = chosen(&self.server_scope).unwrap_or_else(|| owner.clone());
        Ok(Identity { owner_major: owner.into_bytes(), owner_minor: 0, scope: scope.into_bytes() })
    }
}

/// Returns the name that earlier versions derived from this machine.
fn machine_id() -> String {
    let id = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let id = id.trim();
    if id.is_empty() { "zgate".to_owned() } else { format!("zgate-{id}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_emulated_or_wanted_is_never_optional() {
        let of = |more: &str| {
            let text = format!("[rdma]\nlisten = [\"127.0.0.1:20049\"]\n{more}");
            settings(&zgate_config::parse(&text, std::path::Path::new("x")).unwrap()).rdma.listen
        };
        for more in ["", "optional = true\nfabric = \"emulated\"\n"] {
            assert_eq!(of(more).len(), 1, "{more:?}");
        }
        let has_device = std::fs::read_dir(RDMA_DEVICES).is_ok_and(|found| found.count() > 0);
        assert_eq!(of("optional = true\n").is_empty(), !has_device);
    }

    #[test]
    fn the_replay_cache_is_beside_the_admin_socket_unless_others_may_write_there() {
        use std::fs::{Permissions, create_dir, metadata, set_permissions};
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let kerberos = |socket: &Path| {
            let text = format!(
                "[server]\nstate_dir = \"/state\"\nadmin_socket = {socket:?}\n[kerberos]\n"
            );
            kerberos_settings(&zgate_config::parse(&text, Path::new("x")).unwrap()).unwrap()
        };
        let (own, shared) = (dir.path().join("own"), dir.path().join("shared"));
        for (dir, mode) in [(&own, 0o700), (&shared, 0o1777)] {
            create_dir(dir).unwrap();
            set_permissions(dir, Permissions::from_mode(mode)).unwrap();
        }
        let cache = |socket: &Path| kerberos(socket).replay_cache;
        assert_eq!(cache(&own.join("tank.sock")), own.join("tank.sock.rcache2"));
        for socket in [shared.join("tank.sock"), PathBuf::from("tank.sock")] {
            assert_eq!(cache(&socket), Path::new("/state/kerberos.rcache2"));
        }
        // A missing directory is made before anybody may need it, and is the same one then.
        let later = kerberos(&own.join("later/tank.sock"));
        later.make_cache_dir().unwrap();
        assert_eq!(metadata(own.join("later")).unwrap().mode() & 0o777, 0o700);
        assert_eq!(kerberos(&own.join("later/tank.sock")), later);
        later.make_cache_dir().unwrap();
    }

    #[test]
    fn the_replay_cache_of_an_earlier_version_is_removed_and_nothing_else() {
        use std::fs::{
            Permissions, create_dir, remove_file, set_permissions, symlink_metadata, write,
        };
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        // Other tests change the mask of the process.
        set_permissions(dir.path(), Permissions::from_mode(0o700)).unwrap();
        let [old, other] = [REPLAY_CACHE, "other"].map(|name| dir.path().join(name));
        let is_there = || symlink_metadata(&old).is_ok();
        let mut config = Config::default();
        config.server.state_dir = dir.path().to_owned();
        write(&old, "x").unwrap();
        config.server.admin_socket = PathBuf::from("tank.sock");
        remove_old_replay_cache(&config);
        assert!(is_there(), "it is in use");
        config.server.admin_socket = dir.path().join("tank.sock");
        for _ in 0..2 {
            remove_old_replay_cache(&config);
            assert!(!is_there());
        }
        write(&other, "x").unwrap();
        std::os::unix::fs::symlink(&other, &old).unwrap();
        remove_old_replay_cache(&config);
        assert!(is_there() && other.exists(), "a link");
        remove_file(&old).unwrap();
        create_dir(&old).unwrap();
        remove_old_replay_cache(&config);
        assert!(is_there(), "a directory");
    }

    #[test]
    fn names_of_the_configuration_come_before_that_of_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        let mut config = Config::default();
        let names = |config: &Config| {
            let Identity { owner_major, scope, .. } = settings(config).identity(&state).unwrap();
            (String::from_utf8(owner_major).unwrap(), String::from_utf8(scope).unwrap())
        };
        let (owner, scope) = names(&config);
        assert_eq!(owner, scope);
        assert_eq!(names(&config), (owner.clone(), scope));
        config.server.server_scope = "rack".to_owned();
        assert_eq!(names(&config), (owner, "rack".to_owned()));
        config.server.server_owner = "nas".to_owned();
        assert_eq!(names(&config), ("nas".to_owned(), "rack".to_owned()));
    }
}
