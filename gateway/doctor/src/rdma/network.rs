//! Checks of the network that RDMA uses: packet sizes, losses.

use super::link::path_mtu;
use super::ports::each;
use crate::Verdict;
use crate::facts::{Pfc, RdmaFacts};

/// Packet size with the fewest headers, in bytes.
const FULL_MTU: u64 = 4096;
/// MTU of an interface that carries such packets, in bytes.
const INTERFACE_MTU: u64 = 9000;

/// Checks that packets are as large as RDMA's can be.
pub(super) fn mtu(facts: &RdmaFacts) -> Vec<Verdict> {
    each(facts, |device, port| {
        let (interface, mtu) = (port.interface.as_ref()?, port.interface_mtu?);
        if !port.is_active() || !port.is_ethernet {
            return None;
        }
        let size = port.active_mtu.unwrap_or_else(|| path_mtu(mtu));
        let name = port.named(device);
        let what = format!("{name}: packets of {size} bytes, {interface} has MTU {mtu}");
        if size >= FULL_MTU {
            return Some(Verdict::ok(what));
        }
        Some(Verdict::warning(
            what,
            "more packets for the same data: some percent less speed, more work for both ends",
            format!(
                "`ip link set dev {interface} mtu {INTERFACE_MTU}`, the same at every client and at \
                 every switch between; then `zgate doctor path CLIENT`"
            ),
        ))
    })
}

/// Checks that the network is lossless.
pub(super) fn lossless(facts: &RdmaFacts) -> Vec<Verdict> {
    each(facts, |device, port| {
        if device.is_software() || !port.is_active() || !port.is_ethernet {
            return None;
        }
        let interface = port.interface.as_ref()?;
        let name = port.named(device);
        let ecn = match port.ecn {
            Some(true) => ", ECN is on",
            Some(false) => ", ECN is off",
            None => "",
        };
        let fix = format!(
            "`dcb pfc set dev {interface} prio-pfc 3:on` and the same priority at the switches, or \
             `ethtool -A {interface} rx on tx on`; ECN at switches and hosts"
        );
        match &port.pfc {
            Pfc::On(priorities) => {
                let list: Vec<String> = priorities.iter().map(u8::to_string).collect();
                Some(Verdict::ok(format!("{name}: PFC for priority {}{ecn}", list.join(", "))))
            }
            Pfc::Off if port.ecn == Some(true) => Some(Verdict::ok(format!(
                "{name}: ECN is on, PFC for no priority: enough when switches mark early"
            ))),
            Pfc::Off => Some(Verdict::warning(
                format!("{name}: PFC for no priority{ecn}"),
                "after one lost packet the sender sends everything behind it again: a full switch \
                 costs more than half of the speed",
                fix,
            )),
            Pfc::Unknown => Some(Verdict::ok(format!(
                "{name}: whether PFC is on could not be read (`dcb` of iproute2){ecn}"
            ))),
        }
    })
}

/// Checks counters of lost packets and failed work.
pub(super) fn errors(facts: &RdmaFacts) -> Vec<Verdict> {
    each(facts, |device, port| {
        let bad: Vec<String> = port
            .counters
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        if bad.is_empty() {
            return (!port.counters.is_empty())
                .then(|| Verdict::ok(format!("{}: no loss, no retries", port.named(device))));
        }
        Some(Verdict::warning(
            format!("{}: {}", port.named(device), bad.join(", ")),
            "since the device was started, packets were lost or reordered, or an end was too slow \
             to receive them; check whether the counters still grow",
            "`rdma statistic show`, the switches' drop counters, PFC and ECN; cables when the port \
             counts symbol errors",
        ))
    })
}
