//! Conversion of socket addresses to and from their C structures.

use libc::{sockaddr_in, sockaddr_in6, sockaddr_storage};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

pub(crate) fn to_c(address: SocketAddr) -> sockaddr_storage {
    // SAFETY: a structure of plain numbers, for which zeros are valid.
    let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
    let place = (&raw mut storage).cast::<u8>();
    match address {
        SocketAddr::V4(v4) => {
            let from = sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage is large enough and aligned for every
            // address family.
            unsafe { place.cast::<sockaddr_in>().write(from) };
        }
        SocketAddr::V6(v6) => {
            let from = sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { place.cast::<sockaddr_in6>().write(from) };
        }
    }
    storage
}

/// Converts from C; `None` for other families, such as an address that is not
/// set yet.
pub(crate) fn from_c(storage: &sockaddr_storage) -> Option<SocketAddr> {
    let place = std::ptr::from_ref(storage).cast::<u8>();
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says which structure it is.
            let v4 = unsafe { place.cast::<sockaddr_in>().read() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { place.cast::<sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_trip() {
        for text in ["10.9.0.1:20049", "[fe80::1%3]:20049", "[::]:0"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(from_c(&to_c(address)), Some(address));
        }
        // SAFETY: a structure of plain numbers.
        assert_eq!(from_c(&unsafe { std::mem::zeroed() }), None);
    }
}
