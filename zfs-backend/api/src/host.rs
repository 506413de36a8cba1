//! The host an address belongs to.

use std::net::IpAddr;

/// Leading bits that all addresses of one IPv6 host share, at least: whoever has one
/// address has as many as it likes within them (RFC 4291 §2.5.4).
const IPV6_PREFIX_BITS: u32 = 64;

/// A host, as limits per host count it: an IPv4 address, or an IPv6 network of 64 bits.
/// An IPv4-mapped address is the IPv4 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HostKey(IpAddr);

impl From<IpAddr> for HostKey {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(v6) => {
                let network = u128::MAX << (u128::BITS - IPV6_PREFIX_BITS);
                IpAddr::V6((v6.to_bits() & network).into())
            }
            v4 => v4,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(address: &str) -> HostKey {
        address.parse::<IpAddr>().unwrap().into()
    }

    #[test]
    fn an_ipv4_address_is_a_host_and_so_is_an_ipv6_network() {
        assert_eq!(host("::ffff:10.0.0.1"), host("10.0.0.1"));
        assert_ne!(host("10.0.0.1"), host("10.0.0.2"));
        assert_eq!(host("2001:db8::1"), host("2001:db8::ffff:1"));
        assert_ne!(host("2001:db8::1"), host("2001:db8:0:1::1"));
    }
}
