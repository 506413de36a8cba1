//! Facts about the machine of a gateway.

use super::{mounts, process, sockets, zed, zfs};
use crate::facts::{
    AbsentFacts, ClientFacts, ExportFacts, LunFacts, Mount, PortFacts, RdmaFacts, ServerFacts,
    StateDirFacts, ZfsFacts,
};
use procfs::net::TcpNetEntry;
use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use zgate_config::{AccessMode, Config, ConfigFiles, ExportConfig};
use zgate_control::{Dataset, DatasetName, SystemTool, Tool};
use zgate_gateway::RPCBIND_PORT;
use zgate_gateway::admin::{self, Request};

/// Time limit of `timedatectl`, in seconds.
const QUESTION_SECONDS: u64 = 5;

/// Configuration of corosync, which a node of a Pacemaker cluster has.
const COROSYNC: &str = "/etc/corosync/corosync.conf";

/// Reads all facts about the machine.
pub(crate) fn facts(config_path: &Path, socket: Option<&Path>) -> ServerFacts {
    let (config, problem) = examined(config_path);
    let socket = socket.unwrap_or(&config.server.admin_socket);
    let gateway = gateway_pid(socket);
    let open = sockets::all();
    let table = mounts::all();
    let zfs = zfs::facts();
    let own = process::facts(gateway);
    let exports: Vec<ExportFacts> =
        config.exports.iter().map(|export| export_facts(export, &table, &zfs)).collect();
    ServerFacts {
        config_path: config_path.to_owned(),
        config_problem: problem,
        state_dir: state_dir(&config.server.state_dir, &table, &exports),
        process: own,
        uring_problem: zgate_io::IoEngine::new(zgate_io::EngineChoice::Uring, 1)
            .err()
            .map(|error| error.to_string()),
        ports: ports(&config, &open, gateway),
        nfsd_threads: nfsd_threads(),
        rpcbind_listens: sockets::listens(&open, RPCBIND_PORT),
        clients: gateway.and_then(|_| clients(socket)),
        absent: gateway.and_then(|_| absent(socket)),
        certificates: zgate_gateway::certificates(&config),
        exports,
        luns: luns(&config, &table, &zfs),
        zfs,
        zed: zed::facts(),
        memory_bytes: memory_bytes(),
        rdma_devices: fs::read_dir("/sys/class/infiniband").map_or(0, Iterator::count),
        is_cluster_node: is_cluster_node(),
        clock_synchronized: clock_synchronized(),
        now_unix_seconds: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
        config,
    }
}

/// Returns whether corosync is configured with other nodes.
fn is_cluster_node() -> bool {
    match fs::read_to_string(COROSYNC) {
        Ok(configuration) => has_peers(&configuration),
        Err(error) => error.kind() != ErrorKind::NotFound,
    }
}

/// Returns whether a configuration of corosync is for more than one node (corosync.conf(5)). That
/// of Debian's package is for a single one; without a list of nodes they find each other.
fn has_peers(configuration: &str) -> bool {
    let begins_node = |line: &&str| {
        let rest = line.trim_start().strip_prefix("node");
        rest.is_some_and(|rest| rest.trim_start().starts_with('{'))
    };
    configuration.lines().filter(begins_node).count() != 1
}

/// Reads the configuration, or takes the defaults; returns all that keeps the gateway
/// from starting with it, except the files of `[tls]`, which have a check of their own.
fn examined(path: &Path) -> (Config, Option<String>) {
    let read = ConfigFiles::read(path);
    let valid = read.and_then(|files| Ok((files.check(|_| Vec::new())?, files)));
    let (config, files) = match valid {
        Ok(valid) => valid,
        Err(error) => return (Config::default(), Some(error.to_string())),
    };
    let unusable = files.check(|config| {
        let mut found = zgate_gateway::check(config);
        found.retain(|problem| !problem.place.to_string().starts_with("tls."));
        found
    });
    (config, unusable.err().map(|error| error.to_string()))
}

/// Reads the RDMA devices, and the process that uses them.
pub(crate) fn rdma(config_path: &Path, socket: Option<&Path>) -> RdmaFacts {
    let config = zgate_config::load(config_path).unwrap_or_default();
    let socket = socket.unwrap_or(&config.server.admin_socket);
    let gateway = gateway_pid(socket);
    let mut facts = super::rdma::facts(&config, &process::facts(gateway));
    facts.not_served = gateway.and_then(|_| not_served(socket));
    facts
}

/// Lists the RDMA addresses that the gateway should serve but does not.
fn not_served(socket: &Path) -> Option<Vec<String>> {
    let status = admin::ask(socket, &Request::Status).ok()?;
    let rdma = &status["rdma"];
    if let Some(problem) = rdma["problem"].as_str() {
        return Some(vec![problem.to_owned()]);
    }
    let portals = rdma["portals"].as_array().into_iter().flatten();
    let away = portals.filter(|portal| portal["listening"] == false).map(|portal| {
        let text = |key: &str| portal[key].as_str().unwrap_or_default().to_owned();
        format!("{} ({}): {}", text("address"), text("protocol"), text("problem"))
    });
    Some(away.collect())
}

/// Returns the id of the process that answers at the admin socket.
fn gateway_pid(socket: &Path) -> Option<u32> {
    let stream = admin::connect(socket).ok()?;
    let peer = rustix::net::sockopt::socket_peercred(&stream).ok()?;
    u32::try_from(peer.pid.as_raw_nonzero().get()).ok()
}

/// Lists the ports of NFS and iSCSI, whose peers are clients.
pub(crate) fn service_ports(config: &Config) -> Vec<u16> {
    let addresses = config.server.listen.iter().chain(config.iscsi.tcp_listen());
    addresses.map(|address| address.port()).collect()
}

/// Lists the TCP addresses that the gateway listens on, each with its service.
fn listeners(config: &Config) -> Vec<(&'static str, SocketAddr)> {
    let nfs = config.server.listen.iter().map(|address| ("NFS", *address));
    let iscsi = config.iscsi.tcp_listen().map(|address| ("iSCSI", *address));
    let api = config.api.listen.iter().map(|address| ("API", *address));
    let metrics = [("metrics", config.server.metrics_listen)];
    let all = nfs.chain(iscsi).chain(api).chain(metrics);
    all.filter(|(_, address)| address.port() != 0).collect()
}

fn ports(config: &Config, open: &[TcpNetEntry], gateway: Option<u32>) -> Vec<PortFacts> {
    let listeners = listeners(config).into_iter();
    let facts = listeners.map(|(service, address)| PortFacts {
        service,
        address,
        holder: sockets::holder(open, address, gateway),
    });
    facts.collect()
}

/// Reads "th 8 0 0.000 …" in the statistics of the kernel's NFS server.
fn nfsd_threads() -> u64 {
    let statistics = fs::read_to_string("/proc/net/rpc/nfsd").unwrap_or_default();
    let line = statistics.lines().find_map(|line| line.strip_prefix("th "));
    let first = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    first.unwrap_or(0)
}

fn state_dir(path: &Path, table: &[Mount], exports: &[ExportFacts]) -> StateDirFacts {
    use rustix::fs::{Access, access};
    let is_exposed = |export: &&ExportFacts| {
        export.path.as_ref().is_some_and(|dir| zgate_gateway::exposes(dir, path))
    };
    let exported_by = exports.iter().filter(is_exposed).map(|export| export.pseudo.clone());
    let mut facts =
        StateDirFacts { exported_by: exported_by.collect(), ..StateDirFacts::default() };
    // The deepest existing ancestor decides whether the rest can be created.
    let there = path.ancestors().find(|part| part.exists()).unwrap_or(Path::new("/"));
    let real = fs::canonicalize(there).unwrap_or_else(|_| there.to_owned());
    facts.mount = mounts::of(table, &real).cloned();
    if let Err(error) = access(there, Access::WRITE_OK | Access::EXEC_OK) {
        facts.write_problem = Some(std::io::Error::from(error).to_string());
    }
    let space = rustix::fs::statvfs(there).ok();
    facts.free_bytes = space.map(|space| space.f_bavail.saturating_mul(space.f_frsize));
    if let Ok(metadata) = fs::metadata(path) {
        facts.exists = true;
        facts.mode = metadata.permissions().mode() & 0o7777;
        facts.owner = metadata.uid();
        if !metadata.is_dir() {
            facts.write_problem = Some("it is not a directory".to_owned());
        }
    }
    facts
}

fn clients(socket: &Path) -> Option<Vec<ClientFacts>> {
    let answer = admin::ask(socket, &Request::Clients).ok()?;
    let client = |value: &serde_json::Value| {
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let number = |key: &str| value[key].as_u64().unwrap_or(0);
        ClientFacts {
            name: text("name"),
            address: text("address"),
            idle_seconds: number("idle_seconds"),
            courtesy: value["courtesy"].as_bool().unwrap_or(false),
            opens: number("opens"),
            locks: number("locks"),
        }
    };
    Some(answer.as_array()?.iter().map(client).collect())
}

/// Lists the items that the running gateway has not found.
fn absent(socket: &Path) -> Option<Vec<AbsentFacts>> {
    let status = admin::ask(socket, &Request::Status).ok()?;
    let item = |value: &serde_json::Value| {
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let (name, reason, next_step) = (text("name"), text("reason"), text("next_step"));
        AbsentFacts { name, reason, next_step }
    };
    Some(status["absent"].as_array()?.iter().map(item).collect())
}

fn export_facts(export: &ExportConfig, mounts: &[Mount], zfs: &ZfsFacts) -> ExportFacts {
    let mounted = |name: &str| zfs.dataset(name).and_then(Dataset::mounted_at).map(PathBuf::from);
    let path = match (&export.path, &export.dataset) {
        (Some(path), _) => Some(path.clone()),
        (None, Some(dataset)) => mounted(dataset),
        (None, None) => None,
    };
    let path_problem = path.as_ref().and_then(|path| match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => None,
        Ok(_) => Some(format!("{} is not a directory", path.display())),
        Err(error) => Some(format!("{}: {error}", path.display())),
    });
    ExportFacts {
        pseudo: export.pseudo.clone(),
        mount: path.as_ref().and_then(|path| mounts::of(mounts, path).cloned()),
        real_path: path.as_ref().and_then(|path| fs::canonicalize(path).ok()),
        path,
        dataset: export.dataset.clone(),
        path_problem,
        writable: !export.read_only
            && export.clients.iter().any(|client| client.access == AccessMode::Rw),
        max_transfer_bytes: export.max_transfer.0,
    }
}

fn luns(config: &Config, mounts: &[Mount], zfs: &ZfsFacts) -> Vec<LunFacts> {
    let mut luns = Vec::new();
    for target in &config.targets {
        for lun in &target.luns {
            // In standby, files of the state directory stand for the disks.
            let problem = zgate_gateway::lun_problem(lun);
            let problem = problem.filter(|it| it.is_absent || !config.iscsi.standby);
            luns.push(LunFacts {
                target: target.name.to_string(),
                number: lun.number,
                path: lun.path.clone(),
                dataset: dataset_of(&lun.path, mounts, zfs),
                problem,
            });
        }
    }
    luns
}

/// Returns the zvol of a path, or the dataset that contains a file.
fn dataset_of(path: &Path, mounts: &[Mount], zfs: &ZfsFacts) -> Option<DatasetName> {
    if path.starts_with("/dev/zvol") {
        return DatasetName::of_device(path);
    }
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let same = |dataset: &&Dataset| {
        dataset.device().and_then(|device| fs::canonicalize(device).ok()) == Some(real.clone())
    };
    if let Some(volume) = zfs.datasets.iter().find(same) {
        return Some(volume.name.clone());
    }
    let mount = mounts::of(mounts, &real).filter(|mount| mount.kind == "zfs")?;
    mount.source.parse().ok()
}

fn memory_bytes() -> u64 {
    let machine = rustix::system::sysinfo();
    u64::from(machine.mem_unit).saturating_mul(machine.totalram)
}

/// Returns the state reported by the machine's time service; none if there is
/// none.
fn clock_synchronized() -> Option<bool> {
    let tool = SystemTool { limit_seconds: QUESTION_SECONDS };
    let said = tool.run("timedatectl", &["show", "-p", "NTPSynchronized", "--value"]).ok()?;
    match said.trim() {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_gateway_does_not_start_with_is_a_problem() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("zgate.toml");
        let examined = |text: &str| {
            fs::write(&file, text).unwrap();
            super::examined(&file)
        };
        let absent = |name: &str| dir.path().join(name);
        let (certificate, key, token) = (absent("cert.pem"), absent("key.pem"), absent("token"));
        assert_eq!(examined("").1, None);
        let text = format!("[server]\ncores = 3\nstatus_token_file = {token:?}\n");
        let (config, problem) = examined(&text);
        assert!(problem.as_ref().is_some_and(|it| it.contains("status_token_file")), "{problem:?}");
        assert_eq!(config.server.cores, 3, "the other checks examine what was read");
        let pair = format!("certificate = {certificate:?}\nkey = {key:?}\n");
        let listen = "listen = [\"127.0.0.1:9470\"]";
        let problem = examined(&format!("[api]\n{listen}\n{pair}admin_token_file = {token:?}\n")).1;
        assert!(problem.as_ref().is_some_and(|it| it.contains("cert.pem")), "{problem:?}");
        let problem = examined(&format!("[kerberos]\nkeytab = {:?}\n", absent("keytab"))).1;
        assert!(problem.as_ref().is_some_and(|it| it.contains("kerberos.keytab")), "{problem:?}");
        // The check `tls-certificate` tells of these.
        assert_eq!(examined(&format!("[tls]\n{pair}")).1, None);
    }

    #[test]
    fn a_disk_that_no_start_would_open_has_a_problem() {
        let dir = tempfile::tempdir().unwrap();
        let disk = dir.path().join("disk");
        fs::File::create(&disk).unwrap().set_len(8192).unwrap();
        let lun = |number: u16, path: &Path| {
            format!("[[target.lun]]\nnumber = {number}\npath = {path:?}\n")
        };
        let text = format!(
            "[iscsi]\nlisten = [\"127.0.0.1:3260\"]\n\
             [[target]]\nname = \"iqn.2026-11.test:a\"\nallow_any_initiator = true\n{}{}{}",
            lun(0, &disk),
            lun(1, dir.path()),
            lun(2, &dir.path().join("absent"))
        );
        let config = zgate_config::parse(&text, Path::new("x")).unwrap();
        let found = luns(&config, &[], &ZfsFacts::default());
        let absent: Vec<_> =
            found.iter().map(|lun| lun.problem.as_ref().map(|it| it.is_absent)).collect();
        assert_eq!(absent, [None, Some(false), Some(true)]);
    }

    #[test]
    fn one_node_of_corosync_is_no_cluster() {
        let node = |number: u8| format!("\tnode {{\n\t\tnodeid: {number}\n\t}}\n");
        let with = |nodes: &str| format!("totem {{\n}}\nnodelist {{\n{nodes}}}\n");
        assert!(!has_peers(&with(&node(1))));
        assert!(has_peers(&with(&(node(1) + &node(2)))));
        assert!(has_peers("totem {\n}\n"), "they find each other");
    }

    #[test]
    fn all_tcp_listeners_are_known() {
        let text = "[server]\nlisten = [\"127.0.0.1:2049\"]\nmetrics_listen = \"127.0.0.1:9469\"\n\
            [iscsi]\nlisten = [\"127.0.0.1:3260\"]\n\
            [[iscsi.group]]\ntag = 2\nlisten = [\"127.0.0.1:3261\"]\n\
            [api]\nlisten = [\"127.0.0.1:9470\"]\ncertificate = \"/c\"\nkey = \"/k\"\n\
            admin_token_file = \"/t\"\n";
        let config = zgate_config::parse(text, Path::new("x")).unwrap();
        let known = listeners(&config);
        let known: Vec<_> = known.iter().map(|(name, address)| (*name, address.port())).collect();
        let listeners =
            [("NFS", 2049), ("iSCSI", 3260), ("iSCSI", 3261), ("API", 9470), ("metrics", 9469)];
        assert_eq!(known, listeners);
        // Those of the API are no clients of files and disks.
        assert_eq!(service_ports(&config), [2049, 3260, 3261]);
    }
}
