//! RDMA devices according to sysfs. The root is an argument, so that trees of
//! other machines can be examined.

use crate::facts::{Pfc, ProcessFacts, RdmaDevice, RdmaFacts, RdmaGid, RdmaPort};
use std::fs;
use std::path::Path;
use zgate_config::{Config, FabricChoice};
use zgate_control::{SystemTool, Tool};
use zgate_store::BufferPool;
use zgate_verbs::VerbsFabric;

/// Time limit of `dcb`, in seconds.
const QUESTION_SECONDS: u64 = 5;
/// Counters that stay at zero in a lossless network.
const COUNTERS: [&str; 7] = [
    "out_of_sequence",
    "packet_seq_err",
    "local_ack_timeout_err",
    "rnr_nak_retry_err",
    "out_of_buffer",
    "symbol_error",
    "port_rcv_errors",
];
/// CAP_IPC_LOCK.
const CAP_IPC_LOCK: u64 = 1 << 14;

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn number(path: &Path) -> Option<u64> {
    text(path)?.parse().ok()
}

/// Lists the names in a directory; numbers in numerical order.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_by_key(|name| (name.parse::<u64>().unwrap_or(0), name.clone()));
    names
}

/// Reads all facts about RDMA on this machine.
pub(crate) fn facts(config: &Config, process: &ProcessFacts) -> RdmaFacts {
    let tool = SystemTool { limit_seconds: QUESTION_SECONDS };
    let mut facts = of_tree(Path::new("/"), &tool);
    facts.whose = process.whose();
    facts.locked_memory_bytes =
        process.locked_memory_bytes.filter(|_| process.capabilities & CAP_IPC_LOCK == 0);
    if config.rdma.fabric == FabricChoice::Auto {
        let does_without = config.rdma.optional && facts.devices.is_empty();
        facts.listen = if does_without { Vec::new() } else { config.rdma_listen() };
    }
    facts.arena_bytes = config.rdma.arena.0;
    match VerbsFabric::open(BufferPool::new(0)) {
        Ok(fabric) => add_what_verbs_say(&mut facts, &fabric),
        Err(problem) => facts.library_problem = Some(problem.to_string()),
    }
    facts
}

fn add_what_verbs_say(facts: &mut RdmaFacts, fabric: &VerbsFabric) {
    use zgate_fabric::Fabric;
    let can_invalidate = fabric.send_with_invalidate();
    for report in fabric.ports() {
        let device = facts.devices.iter_mut().find(|device| device.name == report.device);
        let Some(device) = device else { continue };
        device.can_invalidate = Some(can_invalidate);
        let port = device.ports.iter_mut().find(|port| port.number == u32::from(report.port));
        if let Some(port) = port {
            port.active_mtu = Some(report.active_mtu_bytes.into());
        }
    }
}

/// Reads the tree below `root`.
pub(crate) fn of_tree(root: &Path, tool: &dyn Tool) -> RdmaFacts {
    let class = root.join("sys/class/infiniband");
    let devices = names(&class).into_iter().map(|name| device(root, &class, name, tool)).collect();
    let nodes = names(&root.join("sys/devices/system/node"));
    let numa_nodes = nodes.iter().filter(|name| name.starts_with("node")).count();
    RdmaFacts { devices, numa_nodes, ..RdmaFacts::default() }
}

fn device(root: &Path, class: &Path, name: String, tool: &dyn Tool) -> RdmaDevice {
    let dir = class.join(&name);
    let slot = dir.join("device");
    let driver = fs::read_link(slot.join("driver")).ok();
    let driver = driver.and_then(|path| path.file_name()?.to_str().map(str::to_owned));
    // A software device has no slot; its interface is in `parent`.
    let driver = driver.or_else(|| {
        let parent = text(&dir.join("parent"))?;
        Some(format!("software over {parent}"))
    });
    let ports = names(&dir.join("ports"));
    let ports = ports.iter().filter_map(|port| self::port(root, &dir, port, tool)).collect();
    RdmaDevice {
        driver: driver.unwrap_or_default(),
        firmware: text(&dir.join("fw_ver")).unwrap_or_default(),
        board: text(&dir.join("board_id")).or(text(&dir.join("hca_type"))).unwrap_or_default(),
        pcie_speed: text(&slot.join("current_link_speed")),
        pcie_width: text(&slot.join("current_link_width")),
        pcie_max_speed: text(&slot.join("max_link_speed")),
        pcie_max_width: text(&slot.join("max_link_width")),
        // -1 on machines with one node.
        numa_node: number(&slot.join("numa_node")),
        ports,
        ..RdmaDevice::named(&name)
    }
}

fn port(root: &Path, device: &Path, number_: &str, tool: &dyn Tool) -> Option<RdmaPort> {
    let dir = device.join("ports").join(number_);
    // "4: ACTIVE"
    let state = |name: &str| {
        let said = text(&dir.join(name)).unwrap_or_default();
        said.split_once(": ").map_or(said.clone(), |(_, word)| word.to_owned())
    };
    let gids = gids(&dir);
    let interfaces = gids.iter().filter_map(|gid| gid.interface.clone());
    let interface = interfaces.into_iter().next().or_else(|| text(&device.join("parent")));
    let net = interface.as_ref().map(|name| root.join("sys/class/net").join(name));
    let counters = ["hw_counters", "counters"].iter().flat_map(|kind| {
        let dir = dir.join(kind);
        COUNTERS.into_iter().filter_map(move |name| Some((name, number(&dir.join(name))?)))
    });
    Some(RdmaPort {
        number: number_.parse().ok()?,
        state: state("state"),
        physical_state: state("phys_state"),
        rate: text(&dir.join("rate")).unwrap_or_default(),
        is_ethernet: text(&dir.join("link_layer")).is_some_and(|layer| layer == "Ethernet"),
        interface_mtu: net.as_ref().and_then(|net| number(&net.join("mtu"))),
        ecn: net.as_ref().and_then(|net| ecn(net)),
        pfc: interface.as_ref().map_or(Pfc::Unknown, |name| pfc(tool, name)),
        active_mtu: None,
        counters: counters.collect(),
        gids,
        interface,
    })
}

fn gids(port: &Path) -> Vec<RdmaGid> {
    let of = |index: String| {
        let address = text(&port.join("gids").join(&index))?.parse().ok()?;
        let attributes = port.join("gid_attrs");
        // An unused entry has no type.
        let kind = text(&attributes.join("types").join(&index))?;
        let interface = text(&attributes.join("ndevs").join(&index));
        Some(RdmaGid { index: index.parse().ok()?, address, is_v2: kind.contains("v2"), interface })
    };
    names(&port.join("gids")).into_iter().filter_map(of).collect()
}

/// Returns whether ECN is on for any priority, if the driver shows it (mlx5 of
/// vendor packages).
fn ecn(net: &Path) -> Option<bool> {
    let dir = net.join("ecn/roce_np/enable");
    let values: Vec<u64> = names(&dir).iter().filter_map(|name| number(&dir.join(name))).collect();
    (!values.is_empty()).then(|| values.contains(&1))
}

/// Reads the priorities with PFC from `dcb pfc show`: "prio-pfc 0:off 1:off
/// 3:on".
fn pfc(tool: &dyn Tool, interface: &str) -> Pfc {
    let Ok(said) = tool.run("dcb", &["pfc", "show", "dev", interface]) else {
        return Pfc::Unknown;
    };
    let mut words = said.split_whitespace().skip_while(|word| *word != "prio-pfc").skip(1);
    let mut on = Vec::new();
    let mut seen = false;
    while let Some((priority, state)) = words.next().and_then(|word| word.split_once(':')) {
        seen = true;
        if state == "on" {
            on.extend(priority.parse::<u8>().ok());
        }
    }
    match (seen, on.is_empty()) {
        (false, _) => Pfc::Unknown,
        (true, true) => Pfc::Off,
        (true, false) => Pfc::On(on),
    }
}

/// Example trees of machines.
#[cfg(test)]
pub(crate) mod fixtures {
    use super::*;
    use std::os::unix::fs::symlink;
    use zgate_control::ToolError;

    /// A `dcb` with a fixed answer.
    #[derive(Debug)]
    struct Dcb(&'static str);

    impl Tool for Dcb {
        fn run(&self, program: &str, _: &[&str]) -> Result<String, ToolError> {
            assert_eq!(program, "dcb");
            Ok(self.0.to_owned())
        }
    }

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    const DEVICE: &str = "sys/class/infiniband/mlx5_0";

    fn tree(files: &[(&str, &str)], dcb: &'static str) -> RdmaFacts {
        let root = tempfile::tempdir().unwrap();
        let relative: Vec<(String, &str)> =
            files.iter().map(|(name, text)| (name.replace("{d}", DEVICE), *text)).collect();
        let files: Vec<(&str, &str)> =
            relative.iter().map(|(name, text)| (name.as_str(), *text)).collect();
        write(root.path(), &files);
        symlink("../../bus/pci/drivers/mlx5_core", root.path().join(DEVICE).join("device/driver"))
            .unwrap();
        of_tree(root.path(), &Dcb(dcb))
    }

    /// Builds one port of 100 Gb/s in a slot that is faster.
    pub(crate) fn good() -> RdmaFacts {
        let mut facts = tree(
            &[
                ("{d}/fw_ver", "16.35.2000\n"),
                ("{d}/board_id", "MT_0000000008\n"),
                ("{d}/device/current_link_speed", "16.0 GT/s PCIe\n"),
                ("{d}/device/current_link_width", "16\n"),
                ("{d}/device/max_link_speed", "16.0 GT/s PCIe\n"),
                ("{d}/device/max_link_width", "16\n"),
                ("{d}/device/numa_node", "-1\n"),
                ("{d}/ports/1/state", "4: ACTIVE\n"),
                ("{d}/ports/1/phys_state", "5: LinkUp\n"),
                ("{d}/ports/1/rate", "100 Gb/sec (4X EDR)\n"),
                ("{d}/ports/1/link_layer", "Ethernet\n"),
                ("{d}/ports/1/gids/0", "fe80:0000:0000:0000:0e42:a1ff:fe00:0001\n"),
                ("{d}/ports/1/gids/1", "0000:0000:0000:0000:0000:ffff:0a09:0001\n"),
                ("{d}/ports/1/gid_attrs/types/0", "IB/RoCE v1\n"),
                ("{d}/ports/1/gid_attrs/types/1", "RoCE v2\n"),
                ("{d}/ports/1/gid_attrs/ndevs/0", "enp1s0\n"),
                ("{d}/ports/1/gid_attrs/ndevs/1", "enp1s0\n"),
                ("{d}/ports/1/hw_counters/out_of_sequence", "0\n"),
                ("sys/class/net/enp1s0/mtu", "9000\n"),
                ("sys/class/net/enp1s0/ecn/roce_np/enable/3", "1\n"),
                ("sys/devices/system/node/node0/cpulist", "0-15\n"),
            ],
            "pfc-cap 8 macsec-bypass off delay 0\nprio-pfc 0:off 1:off 2:off 3:on 4:off\n",
        );
        facts.listen = vec!["10.9.0.1:20049".parse().unwrap()];
        facts.arena_bytes = 512 << 20;
        facts
    }

    /// Builds a machine with every fault: one port is down, the other has RoCE
    /// v1 only and small packets, loses some, and sits in a narrow slot.
    pub(crate) fn faulty() -> RdmaFacts {
        let mut facts = tree(
            &[
                ("{d}/device/current_link_speed", "8.0 GT/s PCIe\n"),
                ("{d}/device/current_link_width", "4\n"),
                ("{d}/device/max_link_speed", "16.0 GT/s PCIe\n"),
                ("{d}/device/max_link_width", "16\n"),
                ("{d}/ports/1/state", "4: ACTIVE\n"),
                ("{d}/ports/1/rate", "100 Gb/sec (4X EDR)\n"),
                ("{d}/ports/1/link_layer", "Ethernet\n"),
                ("{d}/ports/1/gids/0", "fe80:0000:0000:0000:0e42:a1ff:fe00:0001\n"),
                ("{d}/ports/1/gid_attrs/types/0", "IB/RoCE v1\n"),
                ("{d}/ports/1/gid_attrs/ndevs/0", "enp1s0\n"),
                ("{d}/ports/1/hw_counters/out_of_sequence", "17\n"),
                ("sys/class/net/enp1s0/mtu", "1500\n"),
            ],
            "prio-pfc 0:off 1:off 2:off 3:off\n",
        );
        let down = RdmaPort {
            number: 2,
            state: "DOWN".into(),
            physical_state: "Disabled".into(),
            ..facts.devices[0].ports[0].clone()
        };
        facts.devices[0].ports.push(down);
        facts.listen = vec!["192.0.2.9:20049".parse().unwrap()];
        facts.arena_bytes = 512 << 20;
        facts.locked_memory_bytes = Some(64 << 20);
        facts
    }

    #[test]
    fn a_tree_is_read() {
        let facts = good();
        let device = &facts.devices[0];
        assert_eq!((device.driver.as_str(), device.firmware.as_str()), ("mlx5_core", "16.35.2000"));
        let port = &device.ports[0];
        assert_eq!((port.interface.as_deref(), port.interface_mtu), (Some("enp1s0"), Some(9000)));
        assert_eq!(port.pfc, Pfc::On(vec![3]));
        assert_eq!(port.gids[1].ipv4(), Some([10, 9, 0, 1].into()));
        assert_eq!(device.numa_node, None);
    }
}
