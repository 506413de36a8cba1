//! SETCLIENTID (RFC 7530 §16.33), minor version 0 only.

use crate::v4::{ClientId, OwnerBytes, Verifier};
use std::net::{IpAddr, SocketAddr};
use zgate_xdr::{Opaque, xdr_struct};

xdr_struct! {
    /// clientaddr4: a universal address (RFC 5665).
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct NetAddress {
        /// tcp, tcp6, rdma ...
        pub netid: Opaque<128>,
        /// Address and port.
        pub address: Opaque<128>,
    }
}

impl NetAddress {
    /// The socket address, if callbacks can be sent to it.
    #[must_use]
    pub fn to_socket(&self) -> Option<SocketAddr> {
        if self.netid.0 != b"tcp" && self.netid.0 != b"tcp6" {
            return None;
        }
        let text = std::str::from_utf8(&self.address.0).ok()?;
        let (rest, low) = text.rsplit_once('.')?;
        let (host, high) = rest.rsplit_once('.')?;
        let port = u16::from(high.parse::<u8>().ok()?) << 8 | u16::from(low.parse::<u8>().ok()?);
        let address: IpAddr = host.parse().ok()?;
        (port != 0 && !address.is_unspecified()).then_some(SocketAddr::new(address, port))
    }

    /// The universal address of a socket address.
    #[must_use]
    pub fn from_socket(socket: SocketAddr) -> Self {
        let netid: &[u8] = if socket.is_ipv4() { b"tcp" } else { b"tcp6" };
        let port = socket.port();
        let text = format!("{}.{}.{}", socket.ip(), port >> 8, port & 0xff);
        Self { netid: netid.into(), address: text.as_bytes().into() }
    }
}

xdr_struct! {
    /// SETCLIENTID4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// client.verifier.
        pub verifier: Verifier,
        /// client.id.
        pub name: OwnerBytes,
        /// cb_program.
        pub callback_program: u32,
        /// cb_location.
        pub callback_address: NetAddress,
        /// callback_ident.
        pub callback_ident: u32,
    }
}

xdr_struct! {
    /// SETCLIENTID4resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Res {
        /// clientid.
        pub clientid: ClientId,
        /// setclientid_confirm.
        pub confirm: Verifier,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn universal_addresses() {
        let socket: SocketAddr = "10.0.0.1:2049".parse().unwrap();
        let address = NetAddress::from_socket(socket);
        assert_eq!(address.address.0, b"10.0.0.1.8.1");
        assert_eq!(address.to_socket(), Some(socket));
        let six: SocketAddr = "[fe80::1]:1025".parse().unwrap();
        assert_eq!(NetAddress::from_socket(six).to_socket(), Some(six));
        for bad in ["", "1.2.3.4", "0.0.0.0.8.1", "1.2.3.4.0.0", "1.2.3.4.300.1", "a.b.c.d.8.1"] {
            let address = NetAddress { netid: b"tcp"[..].into(), address: bad.as_bytes().into() };
            assert_eq!(address.to_socket(), None, "{bad}");
        }
    }
}
