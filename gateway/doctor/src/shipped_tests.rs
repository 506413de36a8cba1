//! The unit, the example of a configuration and the page on firewalls, as they
//! are shipped: they agree with each other and with the code, and the doctor has
//! nothing to say against a gateway that runs with them.

use crate::facts::ZEDLET;
use crate::gather::rdma::fixtures;
use crate::server::sound;
use crate::{Finding, Group, Level, examine, rdma, server};
use std::collections::BTreeSet;
use std::path::Path;
use zgate_config::{Config, ISCSI_PORT, RDMA_PORT};
use zgate_gateway::RPCBIND_PORT;

const UNIT: &str = include_str!("../../../deploy/systemd/zgate.service");
const TMPFILES: &str = include_str!("../../../deploy/systemd/zgate.tmpfiles.conf");
const EXAMPLE: &str = include_str!("../../../deploy/zgate.example.toml");
const PAGE: &str = include_str!("../../../deploy/INSTALL.md");
const CONTAINER: &str = include_str!("../../../deploy/container/Containerfile");
/// UDP port of RoCE v2 (IANA).
const ROCE_PORT: u16 = 4791;
/// Capabilities and their bits (linux/capability.h).
const CAPABILITIES: [(&str, u32); 12] = [
    ("CAP_CHOWN", 0),
    ("CAP_DAC_OVERRIDE", 1),
    ("CAP_DAC_READ_SEARCH", 2),
    ("CAP_FOWNER", 3),
    ("CAP_FSETID", 4),
    ("CAP_SETGID", 6),
    ("CAP_SETUID", 7),
    ("CAP_NET_BIND_SERVICE", 10),
    ("CAP_IPC_LOCK", 14),
    ("CAP_SYS_ADMIN", 21),
    ("CAP_SYS_RESOURCE", 24),
    ("CAP_MKNOD", 27),
];

/// Returns the value of a key of the unit.
fn unit(key: &str) -> &'static str {
    let mut values = UNIT.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let value = values.next().unwrap_or_else(|| panic!("the unit has no {key}="));
    assert_eq!(values.next(), None, "{key}= stands in the unit twice");
    value
}

/// Returns a limit of the unit; `None`: unlimited.
fn limit(key: &str) -> Option<u64> {
    Some(unit(key)).filter(|value| *value != "infinity").map(|value| value.parse().unwrap())
}

fn capabilities() -> u64 {
    let bit = |name: &str| {
        let known = CAPABILITIES.iter().find(|(known, _)| *known == name);
        1 << known.unwrap_or_else(|| panic!("{name} is not known")).1
    };
    unit("CapabilityBoundingSet").split_whitespace().map(bit).sum()
}

fn example() -> Config {
    zgate_config::parse(EXAMPLE, Path::new("zgate.example.toml")).unwrap()
}

/// Returns what the doctor has against a gateway with the example and with these
/// limits.
fn complaints(capabilities: u64, locked_memory_bytes: Option<u64>) -> Vec<Finding> {
    let config = example();
    let mut machine = sound::server();
    machine.process.capabilities = capabilities;
    machine.process.locked_memory_bytes = locked_memory_bytes;
    machine.process.open_files = limit("LimitNOFILE");
    machine.rdma_devices = 1;
    let mut cards = fixtures::good();
    cards.locked_memory_bytes = locked_memory_bytes;
    cards.arena_bytes = config.rdma.arena.0;
    machine.config = config;
    let mut found = examine(Group::Server, server::CHECKS, &machine);
    found.extend(examine(Group::Rdma, rdma::CHECKS, &cards));
    found.retain(|finding| finding.level != Level::Ok);
    found
}

#[test]
fn the_doctor_is_content_with_unit_and_example() {
    let found = complaints(capabilities(), limit("LimitMEMLOCK"));
    assert!(found.is_empty(), "{found:?}");
    // What the kernel allows a service that asks for nothing.
    let found = complaints(capabilities(), Some(8 << 20));
    let checks: Vec<_> = found.iter().map(|finding| finding.check).collect();
    assert_eq!(checks, ["memlock", "rdma-memlock"]);
}

#[test]
fn the_unit_leaves_no_right_that_is_not_needed() {
    let all = capabilities();
    for name in ["CAP_NET_BIND_SERVICE", "CAP_IPC_LOCK", "CAP_SYS_ADMIN", "CAP_SYS_RESOURCE"] {
        let bit = CAPABILITIES.iter().find(|(known, _)| *known == name).unwrap().1;
        assert_eq!(all >> bit & 1, 0, "{name}");
    }
    for bit in (0..64).filter(|bit| all >> bit & 1 == 1) {
        let without = complaints(all & !(1 << bit), limit("LimitMEMLOCK"));
        // Device nodes are the one thing that the doctor does not ask for.
        assert_eq!(without.is_empty(), bit == 27, "bit {bit}: {without:?}");
    }
    // The container has the same ones.
    let text: String = CONTAINER.lines().map(|line| line.trim_start_matches(['#', ' '])).collect();
    let given = text
        .split("--cap-add ")
        .skip(1)
        .filter_map(|rest| rest.split([' ', '\\']).next().map(|list| list.split(',')));
    let given: BTreeSet<_> = given.flatten().map(|name| format!("CAP_{name}")).collect();
    let wanted = unit("CapabilityBoundingSet").split_whitespace().map(str::to_owned).collect();
    assert_eq!(given, wanted);
}

#[test]
fn the_script_of_zed_has_the_name_that_the_doctor_looks_for() {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/zed");
    assert!(shipped.join(Path::new(ZEDLET).file_name().unwrap()).is_file(), "{ZEDLET}");
}

#[test]
fn the_unit_starts_what_the_example_configures() {
    let server = example().server;
    let config = "--config /etc/zgate/zgate.toml";
    assert_eq!(unit("ExecStart"), format!("/usr/local/bin/zgate serve {config}"));
    assert_eq!(unit("ExecStartPre"), format!("/usr/local/bin/zgate config check {config}"));
    let socket = server.admin_socket.display();
    assert_eq!(unit("ExecReload"), format!("/usr/local/bin/zgate reload --socket {socket}"));
    let state = Path::new("/var/lib").join(unit("StateDirectory"));
    assert_eq!(server.state_dir, state);
    // Live commands write beside the main file, unless it says otherwise.
    assert_eq!(server.conf_dir, None);
    let conf_dir = Path::new("/etc").join(unit("ConfigurationDirectory"));
    assert_eq!(conf_dir, Path::new("/etc/zgate/conf.d"));
    let conf_dir = conf_dir.display();
    assert!(TMPFILES.contains(&format!("d {conf_dir} 0755 root root -")));
    let mount = format!("-v {conf_dir}:{conf_dir} ");
    assert!(
        CONTAINER.contains(&mount) && UNIT.contains(&format!("ReadWritePaths=/tank {conf_dir}\n"))
    );
    let runtime = Path::new("/run").join(unit("RuntimeDirectory"));
    assert_eq!(server.admin_socket.parent(), Some(&*runtime));
    let stop: u32 = unit("TimeoutStopSec").parse().unwrap();
    // A gateway asks for the time of its drain; this is for one that cannot, and for the remains
    // of one that has ended while a pool hung.
    assert!((5..=15).contains(&stop), "{stop}");
    let nice: i32 = unit("LimitNICE").parse().unwrap();
    assert!(nice <= server.core_nice, "{nice}");
}

/// Returns the ports that the page names, as protocol and number.
fn page_ports() -> BTreeSet<(&'static str, u16)> {
    let section = PAGE.split("\n## ").find(|section| section.starts_with("Firewall\n")).unwrap();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let ports = cells.flat_map(|cell| cell.split(", ")).filter_map(|port| {
        let (protocol, number) = port.split_once(' ')?;
        Some((protocol, number.parse().ok()?))
    });
    ports.collect()
}

#[test]
fn the_firewall_page_has_the_ports_of_code_and_example() {
    let defaults = Config::default();
    let config = example();
    let nfs = defaults.server.listen[0].port();
    let metrics = defaults.server.metrics_listen.port();
    let known = [
        ("TCP", nfs),
        ("TCP", RPCBIND_PORT),
        ("UDP", RPCBIND_PORT),
        ("TCP", ISCSI_PORT),
        ("UDP", ROCE_PORT),
        ("TCP", RDMA_PORT),
        ("TCP", metrics),
    ];
    assert_eq!(page_ports(), known.into());
    let ports = |addresses: &[std::net::SocketAddr]| -> Vec<u16> {
        addresses.iter().map(|address| address.port()).collect()
    };
    assert_eq!(ports(&config.server.listen), [nfs]);
    assert_eq!(ports(&config.iscsi.listen), [ISCSI_PORT]);
    assert_eq!(ports(&config.rdma_listen()), [RDMA_PORT]);
    assert_eq!(config.server.metrics_listen, defaults.server.metrics_listen);
    assert!(config.server.metrics_listen.ip().is_loopback());
    // Commands for those that clients use, and for no others.
    let rules = PAGE.lines().filter_map(|line| {
        let rule = line.strip_prefix("# ufw allow from 10.10.0.0/24 to any port ")?;
        rule.split_whitespace().next()?.parse::<u16>().ok()
    });
    let opened: BTreeSet<_> = rules.collect();
    assert_eq!(opened, [nfs, ISCSI_PORT, ROCE_PORT, RPCBIND_PORT].into());
    let exposed: Vec<u16> = CONTAINER
        .lines()
        .find_map(|line| line.strip_prefix("EXPOSE "))
        .map(|list| list.split(' ').map(|port| port.parse().unwrap()).collect())
        .unwrap();
    assert_eq!(exposed, [nfs, ISCSI_PORT]);
}
