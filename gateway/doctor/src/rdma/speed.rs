//! Limits of the speed.

use super::link::{gigabytes, path_mtu, pcie_gigabits, port_gigabits};
use crate::Verdict;
use crate::facts::{RdmaDevice, RdmaFacts, RdmaPort};

fn link_gigabits(device: &RdmaDevice) -> f64 {
    let active = device.ports.iter().filter(|port| port.is_active());
    active.filter_map(|port| port_gigabits(&port.rate)).sum()
}

fn slot_gigabits(device: &RdmaDevice) -> Option<f64> {
    pcie_gigabits(device.pcie_speed.as_deref()?, device.pcie_width.as_deref()?)
}

/// Checks that the slot is as fast as the ports, and as the device could use.
pub(super) fn pcie(facts: &RdmaFacts) -> Vec<Verdict> {
    let judge = |device: &RdmaDevice| {
        let slot = slot_gigabits(device)?;
        let (speed, width) = (device.pcie_speed.as_deref()?, device.pcie_width.as_deref()?);
        let shown = format!("{}: {} x{}", device.name, speed.trim(), width.trim());
        let best = device.pcie_max_speed.as_deref().zip(device.pcie_max_width.as_deref());
        let best = best.and_then(|(speed, width)| pcie_gigabits(speed, width));
        let links = link_gigabits(device);
        if slot < links {
            let could = match best {
                Some(best) if best > slot * 1.05 => {
                    format!("; the device itself could {best:.0} Gb/s")
                }
                _ => String::new(),
            };
            return Some(Verdict::warning(
                format!("{shown} carries {slot:.0} Gb/s, its ports {links:.0}{could}"),
                "the slot limits the speed",
                "another slot (`lspci -vv`: LnkCap, LnkSta), one with all lanes wired and of the \
                 card's generation; BIOS settings of the slot",
            ));
        }
        Some(Verdict::ok(format!("{shown} carries {slot:.0} Gb/s, its ports {links:.0}")))
    };
    facts.devices.iter().filter_map(judge).collect()
}

/// Reports for each device the highest data rate, and what limits it.
pub(super) fn limit(facts: &RdmaFacts) -> Vec<Verdict> {
    let judge = |device: &RdmaDevice| {
        let links = link_gigabits(device);
        if links == 0.0 {
            return None;
        }
        let name = &device.name;
        if device.is_software() {
            return Some(Verdict::ok(format!(
                "{name}: limited by the processors: in software, a core carries a few Gb/s"
            )));
        }
        let active: Vec<&RdmaPort> = device.ports.iter().filter(|port| port.is_active()).collect();
        let mtu =
            |port: &RdmaPort| port.active_mtu.or(port.interface_mtu.map(path_mtu)).unwrap_or(4096);
        let smallest = active.iter().map(|port| mtu(port)).min().unwrap_or(4096);
        let of_links = gigabytes(links, smallest);
        let slot = slot_gigabits(device);
        let said = match slot.map(|gigabits| gigabits / 8.0) {
            Some(slot) if slot < of_links => {
                format!("{name}: at most {slot:.1} GB/s each way, limited by the slot")
            }
            _ if smallest < 4096 => format!(
                "{name}: at most {of_links:.1} GB/s each way, limited by the link with packets of \
                 {smallest} bytes; {:.1} GB/s with 4096",
                gigabytes(links, 4096)
            ),
            _ => format!("{name}: at most {of_links:.1} GB/s each way, limited by the link"),
        };
        let numa =
            device.numa_node.filter(|_| facts.numa_nodes > 1).map_or(String::new(), |node| {
                format!(
                    "; it sits at NUMA node {node}: `numactl --cpunodebind={node} --membind={node}`"
                )
            });
        Some(Verdict::ok(format!("{said}{numa}")))
    };
    facts.devices.iter().filter_map(judge).collect()
}
