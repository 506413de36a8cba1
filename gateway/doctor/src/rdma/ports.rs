//! Ports and their addresses.

use crate::Verdict;
use crate::facts::{RdmaDevice, RdmaFacts, RdmaPort};

/// Returns a verdict for every port with its device.
pub(super) fn each(
    facts: &RdmaFacts,
    judge: impl Fn(&RdmaDevice, &RdmaPort) -> Option<Verdict>,
) -> Vec<Verdict> {
    let ports =
        facts.devices.iter().flat_map(|device| device.ports.iter().map(move |p| (device, p)));
    ports.filter_map(|(device, port)| judge(device, port)).collect()
}

/// Checks that the link is up. A single port that is down may simply be unused.
pub(super) fn port(facts: &RdmaFacts) -> Vec<Verdict> {
    let any = facts.devices.iter().any(|device| device.ports.iter().any(RdmaPort::is_active));
    each(facts, |device, port| {
        let name = port.named(device);
        if port.is_active() {
            let interface = port.interface.as_deref().unwrap_or("no interface");
            return Some(Verdict::ok(format!(
                "{name}: {}, {}, {interface}",
                port.state, port.rate
            )));
        }
        let what = format!("{name}: {} ({})", port.state, port.physical_state);
        let fix = match &port.interface {
            Some(interface) => format!("`ip link set dev {interface} up`; cable, switch port"),
            None => "cable, switch port".to_owned(),
        };
        Some(if any {
            Verdict::warning(what, "this port carries no data", fix)
        } else {
            Verdict::error(what, "no port is up: RDMA clients cannot connect", fix)
        })
    })
}

/// Checks that there is a GID that RoCE v2 clients can reach.
pub(super) fn gid(facts: &RdmaFacts) -> Vec<Verdict> {
    each(facts, |device, port| {
        if !port.is_ethernet {
            return None;
        }
        let name = port.named(device);
        let interface = port.interface.as_deref().unwrap_or("INTERFACE");
        let routable = port.gids.iter().find(|gid| gid.is_v2 && !gid.is_link_local());
        if let Some(gid) = routable {
            let shown = gid.ipv4().map_or(gid.address.to_string(), |ip| ip.to_string());
            return Some(Verdict::ok(format!("{name}: RoCE v2 at {shown} (GID {})", gid.index)));
        }
        if port.gids.iter().any(|gid| gid.is_v2) {
            return Some(Verdict::warning(
                format!("{name}: RoCE v2 with a link-local address only"),
                "clients use an address of the server that the interface does not have",
                format!("`ip address add ADDRESS/BITS dev {interface}`"),
            ));
        }
        Some(Verdict::error(
            format!("{name}: no RoCE v2 GID"),
            "RoCE v1 does not use IP: current Linux clients connect with v2",
            format!(
                "an address for {interface}; `mkdir -p /sys/kernel/config/rdma_cm/{0} && echo 'RoCE \
                 v2' > /sys/kernel/config/rdma_cm/{0}/ports/{1}/default_roce_mode`",
                device.name, port.number
            ),
        ))
    })
}

/// Checks that every configured address belongs to a device.
pub(super) fn address(facts: &RdmaFacts) -> Vec<Verdict> {
    if facts.devices.is_empty() {
        return Vec::new();
    }
    let known = |ip: std::net::IpAddr| {
        let gids =
            facts.devices.iter().flat_map(|device| &device.ports).flat_map(|port| &port.gids);
        gids.into_iter().any(|gid| match ip {
            std::net::IpAddr::V4(ip) => gid.ipv4() == Some(ip),
            std::net::IpAddr::V6(ip) => gid.address == ip,
        })
    };
    let foreign = facts.listen.iter().filter(|address| {
        let ip = address.ip().to_canonical();
        !ip.is_unspecified() && !known(ip)
    });
    let judge = |address: &std::net::SocketAddr| {
        Verdict::error(
            format!("{address}: no RDMA device has this address"),
            "rdma.listen contains it: clients cannot reach it over RDMA",
            "the address of an interface `rdma link` shows, or \"0.0.0.0:20049\" for all",
        )
    };
    foreign.map(judge).collect()
}
