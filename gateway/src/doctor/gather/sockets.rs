//! TCP sockets of the machine, from /proc/net/tcp and tcp6.

use crate::doctor::facts::Holder;
use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// States of a socket (linux/tcp_states.h).
const ESTABLISHED: u8 = 1;
const LISTEN: u8 = 10;

/// A socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Socket {
    local: SocketAddr,
    remote: SocketAddr,
    state: u8,
    inode: u64,
}

/// "0100007F:0801": words of four bytes, each in the machine's order.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let words: Option<Vec<u32>> = address
        .as_bytes()
        .chunks(8)
        .map(|word| u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok())
        .collect();
    let bytes: Vec<u8> = words?.into_iter().flat_map(u32::to_ne_bytes).collect();
    let address = match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(four) => IpAddr::V4(Ipv4Addr::from(four)),
        Err(_) => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes.as_slice()).ok()?)),
    };
    Some(SocketAddr::new(address.to_canonical(), port))
}

fn parse(text: &str) -> Vec<Socket> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        Some(Socket {
            local: address(words.get(1)?)?,
            remote: address(words.get(2)?)?,
            state: u8::from_str_radix(words.get(3)?, 16).ok()?,
            inode: words.get(9)?.parse().ok()?,
        })
    };
    text.lines().skip(1).filter_map(line).collect()
}

/// All TCP sockets of this network name space.
pub(crate) fn all() -> Vec<Socket> {
    let read = |name| parse(&fs::read_to_string(name).unwrap_or_default());
    let mut sockets = read("/proc/net/tcp");
    sockets.extend(read("/proc/net/tcp6"));
    sockets
}

/// Whether a listener at `theirs` keeps another one from `ours`.
fn overlap(ours: SocketAddr, theirs: SocketAddr) -> bool {
    ours.port() == theirs.port()
        && (ours.ip() == theirs.ip() || ours.ip().is_unspecified() || theirs.ip().is_unspecified())
}

/// Who listens at an address.
pub(crate) fn holder(sockets: &[Socket], address: SocketAddr, gateway: Option<u32>) -> Holder {
    let listening = |socket: &&Socket| socket.state == LISTEN && overlap(address, socket.local);
    let inodes: Vec<u64> = sockets.iter().filter(listening).map(|socket| socket.inode).collect();
    if inodes.is_empty() {
        return Holder::Nobody;
    }
    match inodes.iter().find_map(|inode| process_of(*inode)) {
        Some((pid, _)) if Some(pid) == gateway => Holder::Gateway,
        Some((pid, name)) => Holder::Process { pid, name },
        None => Holder::Kernel,
    }
}

/// Whether anybody listens at a port.
pub(crate) fn listens(sockets: &[Socket], port: u16) -> bool {
    sockets.iter().any(|socket| socket.state == LISTEN && socket.local.port() == port)
}

/// Hosts connected to one of these ports, but this one.
pub(crate) fn peers(sockets: &[Socket], ports: &[u16]) -> BTreeSet<IpAddr> {
    let ours = |socket: &&Socket| {
        socket.state == ESTABLISHED
            && ports.contains(&socket.local.port())
            && !socket.remote.ip().is_loopback()
    };
    let remote = sockets.iter().filter(ours).map(|socket| socket.remote.ip());
    // A connection to an address of our own has both ends here.
    remote.filter(|ip| !sockets.iter().any(|socket| socket.local.ip() == *ip)).collect()
}

/// The process that has a socket open.
fn process_of(inode: u64) -> Option<(u32, String)> {
    let wanted = format!("socket:[{inode}]");
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(open) = fs::read_dir(entry.path().join("fd")) else { continue };
        let has = open.flatten().any(|fd| {
            fs::read_link(fd.path()).is_ok_and(|link| link.as_os_str() == wanted.as_str())
        });
        if has {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            return Some((pid, name.trim().to_owned()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_of_this_process_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let sockets = all();
        let Holder::Process { pid, .. } = holder(&sockets, address, None) else {
            panic!("{:?}", holder(&sockets, address, None))
        };
        assert_eq!(pid, std::process::id());
        assert_eq!(holder(&sockets, address, Some(pid)), Holder::Gateway);
        let wide: SocketAddr = format!("0.0.0.0:{}", address.port()).parse().unwrap();
        assert_eq!(holder(&sockets, wide, Some(pid)), Holder::Gateway);
        assert!(listens(&sockets, address.port()));
        let free: SocketAddr = "127.0.0.1:1".parse().unwrap();
        assert_eq!(holder(&sockets, free, None), Holder::Nobody);
    }

    #[test]
    fn peers_are_other_hosts() {
        let text = "head\n\
            0: 0100090A:0801 0200090A:02E8 01 0:0 0:0 0 0 0 11 1\n\
            1: 0100007F:0801 0100007F:1234 01 0:0 0:0 0 0 0 12 1\n\
            2: 00000000:0801 00000000:0000 0A 0:0 0:0 0 0 0 13 1\n";
        if cfg!(target_endian = "little") {
            let found: Vec<_> = peers(&parse(text), &[2049]).into_iter().collect();
            assert_eq!(found, ["10.9.0.2".parse::<IpAddr>().unwrap()]);
        }
        assert_eq!(
            address("0000000000000000FFFF00000100007F:0801"),
            Some("127.0.0.1:2049".parse().unwrap()).filter(|_| cfg!(target_endian = "little"))
        );
    }
}
