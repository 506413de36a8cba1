//! Addresses from which a node uses storage: gateways admit it by them.

use ipnet::IpNet;
use std::net::IpAddr;

/// Returns the addresses that are named, and then those of this machine in the networks that
/// are named, in the same order at each start: they are part of the node's id.
///
/// # Errors
/// The machine has no address in any of the networks. It must not register without: pods would
/// come to it, and no gateway would admit it.
pub(crate) fn of_storage(
    named: &[IpAddr],
    networks: &[IpNet],
    own: impl IntoIterator<Item = IpAddr>,
) -> Result<Vec<IpAddr>, String> {
    let is_in = |address: &IpAddr| networks.iter().any(|network| network.contains(address));
    let mut found: Vec<IpAddr> = own.into_iter().filter(is_in).collect();
    if found.is_empty() && !networks.is_empty() {
        let networks: Vec<String> = networks.iter().map(ToString::to_string).collect();
        return Err(format!(
            "no interface of this machine that is up has an address in {}; correct --address-in, \
             or wait for the interface: the next start looks again",
            networks.join(", ")
        ));
    }
    found.sort_unstable();
    found.dedup();
    found.retain(|address| !named.contains(address));
    Ok([named, found.as_slice()].concat())
}

/// Returns the networks in which none of these addresses is.
pub(crate) fn without<'a>(
    networks: &'a [IpNet],
    addresses: &'a [IpAddr],
) -> impl Iterator<Item = &'a IpNet> {
    let is_in = move |network: &IpNet| addresses.iter().any(|address| network.contains(address));
    networks.iter().filter(move |network| !is_in(network))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed<T: std::str::FromStr>(texts: &[&str]) -> Vec<T> {
        texts.iter().map(|text| text.parse::<T>().ok().unwrap()).collect()
    }

    #[test]
    fn a_node_uses_its_addresses_in_the_networks_of_storage() {
        let own: Vec<IpAddr> =
            parsed(&["192.168.0.5", "10.10.1.5", "fd00:1::5", "10.10.0.5", "10.10.0.5"]);
        let networks: Vec<IpNet> = parsed(&["10.10.0.0/16", "fd00:1::/64", "10.99.0.0/16"]);
        let found = of_storage(&[], &networks, own.clone()).unwrap();
        assert_eq!(found, parsed::<IpAddr>(&["10.10.0.5", "10.10.1.5", "fd00:1::5"]));
        assert_eq!(without(&networks, &found).collect::<Vec<_>>(), [&networks[2]]);
        let turned = own.iter().rev().copied();
        assert_eq!(of_storage(&[], &networks, turned).unwrap(), found, "the same id");
        let named: Vec<IpAddr> = parsed(&["192.168.0.5", "10.10.1.5"]);
        let found = of_storage(&named, &networks[..1], own.clone()).unwrap();
        assert_eq!(found, parsed::<IpAddr>(&["192.168.0.5", "10.10.1.5", "10.10.0.5"]));
        assert_eq!(of_storage(&named, &[], own.clone()).unwrap(), named);
        let said = of_storage(&named, &networks[2..], own).unwrap_err();
        assert!(said.contains("10.99.0.0/16"), "{said}");
    }
}
