//! Portals, as connections see them.

use super::settings::Portal;
use std::collections::HashSet;
use std::net::SocketAddr;
use zgate_iscsi::login::Transport;
use zgate_iscsi::names::PortalGroup;

/// Returns the group of the portal that listens at `local`, by its address or else by its
/// port; of the first one if the socket has no local address. RDMA and TCP have separate
/// port numbers: portals of two groups may have the same address.
pub(super) fn group_at(
    portals: &[Portal],
    local: Option<SocketAddr>,
    transport: Transport,
) -> PortalGroup {
    let exact = |portal: &&Portal| {
        local.is_some_and(|local| {
            let own = portal.address;
            (own.ip().to_canonical(), own.port()) == (local.ip().to_canonical(), local.port())
        })
    };
    let any = |portal: &&Portal| {
        portal.address.ip().is_unspecified()
            && local.is_some_and(|local| local.port() == portal.address.port())
    };
    let own: Vec<_> = portals.iter().filter(|portal| portal.transport == transport).collect();
    let found = own.iter().copied().find(exact).or_else(|| own.iter().copied().find(any));
    let found = found.or(own.first().copied()).or(portals.first());
    PortalGroup(found.map_or(1, |portal| portal.group))
}

/// Returns the addresses of portals, with their groups, for an initiator that is connected to
/// `local`. A portal at all addresses is told by that one, if it takes connections there: the
/// one at `[::]` takes those over IPv4, too, the one at `0.0.0.0` none over IPv6.
pub(super) fn told(portals: &[Portal], local: Option<SocketAddr>) -> Vec<(String, PortalGroup)> {
    let here = local.map(|local| local.ip().to_canonical());
    let address = |portal: &Portal| {
        let own = portal.address;
        let ip = match here {
            Some(here) if own.ip().is_unspecified() => {
                (own.is_ipv6() || here.is_ipv4()).then_some(here)?
            }
            _ => own.ip(),
        };
        Some((SocketAddr::new(ip, own.port()).to_string(), PortalGroup(portal.group)))
    };
    // One address may be used over TCP and over RDMA.
    let mut seen = HashSet::new();
    portals.iter().filter_map(address).filter(|portal| seen.insert(portal.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Transport::{Iser, Tcp};

    fn portal(address: &str, group: u16, transport: Transport) -> Portal {
        Portal { address: address.parse().unwrap(), group, transport }
    }

    fn at(portals: &[Portal], local: &str, transport: Transport) -> u16 {
        group_at(portals, Some(local.parse().unwrap()), transport).0
    }

    #[test]
    fn connections_belong_to_the_group_they_came_to() {
        let portals = [
            portal("10.0.0.1:3260", 1, Tcp),
            portal("10.1.0.1:3260", 2, Tcp),
            portal("[::]:3261", 3, Tcp),
        ];
        assert_eq!(at(&portals, "10.0.0.1:3260", Tcp), 1);
        assert_eq!(at(&portals, "[::ffff:10.1.0.1]:3260", Tcp), 2);
        assert_eq!(at(&portals, "[::ffff:10.1.0.1]:3261", Tcp), 3);
        assert_eq!(at(&portals, "10.9.0.1:1", Tcp), 1);
        assert_eq!(group_at(&portals, None, Tcp).0, 1);
    }

    #[test]
    fn an_address_may_be_in_one_group_over_tcp_and_in_another_over_rdma() {
        let portals = [portal("0.0.0.0:3260", 1, Tcp), portal("10.0.0.1:3260", 2, Iser)];
        assert_eq!(at(&portals, "10.0.0.1:3260", Tcp), 1);
        assert_eq!(at(&portals, "10.0.0.1:3260", Iser), 2);
        assert_eq!(group_at(&portals, None, Iser).0, 2);
        assert_eq!(at(&portals[..1], "10.0.0.1:3260", Iser), 1, "none is over RDMA");
    }

    #[test]
    fn an_initiator_is_told_addresses_that_take_its_connections() {
        let told_at = |portals: &[Portal], local: &str| -> Vec<String> {
            let all = told(portals, Some(local.parse().unwrap())).into_iter();
            all.map(|(address, group)| format!("{address},{}", group.0)).collect()
        };
        let portals = [
            portal("0.0.0.0:3260", 1, Tcp),
            portal("[fd00::1]:3261", 2, Tcp),
            portal("[::]:3262", 3, Tcp),
        ];
        let over_ipv4 = ["10.0.0.1:3260,1", "[fd00::1]:3261,2", "10.0.0.1:3262,3"];
        assert_eq!(told_at(&portals, "10.0.0.1:3260"), over_ipv4);
        assert_eq!(told_at(&portals, "[::ffff:10.0.0.1]:3262"), over_ipv4);
        let over_ipv6 = ["[fd00::1]:3261,2", "[fd00::1]:3262,3"];
        assert_eq!(told_at(&portals, "[fd00::1]:3261"), over_ipv6);
        let both = [portal("10.0.0.1:3260", 1, Tcp), portal("10.0.0.1:3260", 1, Iser)];
        assert_eq!(told_at(&both, "10.0.0.1:3260"), ["10.0.0.1:3260,1"]);
    }
}
