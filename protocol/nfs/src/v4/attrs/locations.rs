//! fs_locations: the other addresses of this server (RFC 8881 §11.5.1, §11.16).
//! A client that supports several paths connects to them and checks that they
//! belong to the same server (RFC 8881 §2.10.5).

use std::net::IpAddr;
use zgate_xdr::Encoder;

fn pathname(path: &str, e: &mut Encoder) {
    let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
    e.u32(names.len() as u32);
    names.into_iter().for_each(|name| e.opaque(name.as_bytes()));
}

/// fs_locations4 of the export at `path`, at all `addresses`; no location if
/// there is no other address than the one the client uses.
pub(super) fn write(path: &str, addresses: &[IpAddr], e: &mut Encoder) {
    if addresses.len() < 2 {
        // An empty root path and no locations.
        e.u32(0);
        e.u32(0);
        return;
    }
    pathname(path, e);
    e.u32(1);
    e.u32(addresses.len() as u32);
    addresses.iter().for_each(|address| e.opaque(address.to_string().as_bytes()));
    pathname(path, e);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v4::server::ServerAddresses;
    use zgate_xdr::Decoder;

    #[test]
    fn one_location_with_all_addresses() {
        let addresses = ServerAddresses {
            tcp: vec!["192.0.2.1".parse().unwrap()],
            rdma: vec!["10.9.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
        };
        let mut e = Encoder::new();
        write("/a/models", addresses.of(true), &mut e);
        let bytes = e.finish().flatten().unwrap();
        let mut d = Decoder::new(&bytes);
        let mut strings = || -> Vec<Vec<u8>> {
            (0..d.u32().unwrap()).map(|_| d.opaque(64).unwrap().to_vec()).collect()
        };
        let path = [b"a".to_vec(), b"models".to_vec()];
        assert_eq!(strings(), path);
        let mut d = Decoder::new(&bytes[bytes.len() - 56..]);
        // One location: two servers and the same path.
        assert_eq!(d.u32(), Ok(1));
        let mut strings = || -> Vec<Vec<u8>> {
            (0..d.u32().unwrap()).map(|_| d.opaque(64).unwrap().to_vec()).collect()
        };
        assert_eq!(strings(), [b"10.9.0.1".to_vec(), b"fd00::1".to_vec()]);
        assert_eq!(strings(), path);
        assert_eq!(d.finish(), Ok(()));
        let mut e = Encoder::new();
        write("/a", addresses.of(false), &mut e);
        assert_eq!(e.finish().flatten().unwrap()[..], [0; 8]);
    }
}
