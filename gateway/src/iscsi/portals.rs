//! Portals, as connections see them.

use super::settings::Portal;
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
}
