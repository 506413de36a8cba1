//! Addresses of this machine's network interfaces.

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::{InterfaceFlags, if_nametoindex};
use std::io;
use std::net::IpAddr;

/// Returns the addresses of the interfaces of this machine that are up.
///
/// # Errors
/// The error of the operating system.
pub fn own_addresses() -> io::Result<Vec<IpAddr>> {
    Ok(of_those_up(getifaddrs()?).collect())
}

/// Returns the number of the interface of this machine that has the address, up or not;
/// `None` if none has it.
///
/// # Errors
/// The error of the operating system.
pub fn interface_of(address: IpAddr) -> io::Result<Option<u32>> {
    let address = address.to_canonical();
    let found = getifaddrs()?.find(|one| ip_of(one) == Some(address));
    Ok(found.and_then(|one| number_of(&one.interface_name)))
}

/// Returns the number of an interface. Addresses of IPv4 may have a label in place of its
/// name: the name, a colon, and more.
fn number_of(name: &str) -> Option<u32> {
    let name = name.split(':').next()?;
    if_nametoindex(name).ok()
}

fn of_those_up(
    interfaces: impl IntoIterator<Item = InterfaceAddress>,
) -> impl Iterator<Item = IpAddr> {
    let is_up = |one: &InterfaceAddress| one.flags.contains(InterfaceFlags::IFF_UP);
    interfaces.into_iter().filter(is_up).filter_map(|one| ip_of(&one))
}

fn ip_of(interface: &InterfaceAddress) -> Option<IpAddr> {
    let address = interface.address.as_ref()?;
    let ipv4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
    ipv4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::SockaddrStorage;
    use std::net::SocketAddr;

    fn interface(address: Option<&str>, flags: InterfaceFlags) -> InterfaceAddress {
        let address = address.map(|address| address.parse::<SocketAddr>().unwrap());
        InterfaceAddress {
            interface_name: "eth0".to_owned(),
            flags,
            address: address.map(SockaddrStorage::from),
            netmask: None,
            broadcast: None,
            destination: None,
        }
    }

    #[test]
    fn interfaces_that_are_down_or_have_no_address_are_passed_over() {
        let (up, down) = (InterfaceFlags::IFF_UP, InterfaceFlags::empty());
        let interfaces = [
            interface(None, up),
            interface(Some("10.0.0.1:0"), up),
            interface(Some("[fd00::1]:0"), up),
            interface(Some("10.0.0.2:0"), down),
        ];
        let expected: [IpAddr; 2] = ["10.0.0.1", "fd00::1"].map(|ip| ip.parse().unwrap());
        assert_eq!(of_those_up(interfaces).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn an_address_has_the_number_of_its_interface() {
        let loopback = number_of("lo");
        assert!(loopback.is_some());
        assert_eq!(interface_of(IpAddr::from([127, 0, 0, 1])).unwrap(), loopback);
        assert_eq!(number_of("lo:other"), loopback, "a label");
        assert_eq!(interface_of(IpAddr::from([192, 0, 2, 1])).unwrap(), None);
    }

    #[test]
    fn the_loopback_interface_has_an_address() {
        assert!(own_addresses().unwrap().iter().any(IpAddr::is_loopback));
    }
}
