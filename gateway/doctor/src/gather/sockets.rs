//! TCP sockets of the machine, from /proc/net/tcp and tcp6.

use crate::facts::Holder;
use procfs::net::{TcpNetEntry, TcpState};
use procfs::process::{FDTarget, all_processes};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// All TCP sockets of this network name space.
pub(crate) fn all() -> Vec<TcpNetEntry> {
    let both = [procfs::net::tcp(), procfs::net::tcp6()];
    both.into_iter().flatten().flatten().map(canonical).collect()
}

/// The socket with IPv4-mapped addresses as IPv4 addresses.
fn canonical(mut socket: TcpNetEntry) -> TcpNetEntry {
    for address in [&mut socket.local_address, &mut socket.remote_address] {
        address.set_ip(address.ip().to_canonical());
    }
    socket
}

/// Returns whether a listener at `theirs` prevents one at `ours`.
fn overlap(ours: SocketAddr, theirs: SocketAddr) -> bool {
    ours.port() == theirs.port()
        && (ours.ip() == theirs.ip() || ours.ip().is_unspecified() || theirs.ip().is_unspecified())
}

/// Returns the holder of an address.
pub(crate) fn holder(sockets: &[TcpNetEntry], address: SocketAddr, gateway: Option<u32>) -> Holder {
    let listening = |socket: &&TcpNetEntry| {
        socket.state == TcpState::Listen && overlap(address, socket.local_address)
    };
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

/// Returns whether a socket listens on a port.
pub(crate) fn listens(sockets: &[TcpNetEntry], port: u16) -> bool {
    sockets
        .iter()
        .any(|socket| socket.state == TcpState::Listen && socket.local_address.port() == port)
}

/// Hosts connected to one of these ports, except this host.
pub(crate) fn peers(sockets: &[TcpNetEntry], ports: &[u16]) -> BTreeSet<IpAddr> {
    let ours = |socket: &&TcpNetEntry| {
        socket.state == TcpState::Established
            && ports.contains(&socket.local_address.port())
            && !socket.remote_address.ip().is_loopback()
    };
    let remote = sockets.iter().filter(ours).map(|socket| socket.remote_address.ip());
    // A connection to a local address has both ends on this host.
    remote.filter(|ip| !sockets.iter().any(|socket| socket.local_address.ip() == *ip)).collect()
}

/// Returns the process that has a socket open.
fn process_of(inode: u64) -> Option<(u32, String)> {
    all_processes().ok()?.flatten().find_map(|process| {
        let mut open = process.fd().ok()?.flatten();
        open.any(|fd| fd.target == FDTarget::Socket(inode)).then_some(())?;
        Some((process.pid().cast_unsigned(), process.stat().ok()?.comm))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::FromReadSI;
    use procfs::net::TcpNetEntries;

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
        let little = procfs::ExplicitSystemInfo {
            boot_time_secs: 0,
            ticks_per_second: 100,
            page_size: 4096,
            is_little_endian: true,
        };
        let parse = |text: &str| -> Vec<TcpNetEntry> {
            let entries = TcpNetEntries::from_read(text.as_bytes(), &little).unwrap();
            entries.0.into_iter().map(canonical).collect()
        };
        let found: Vec<_> = peers(&parse(text), &[2049]).into_iter().collect();
        assert_eq!(found, ["10.9.0.2".parse::<IpAddr>().unwrap()]);
        let mapped = "head\n\
            0: 0000000000000000FFFF00000100007F:0801 0200090A:02E8 01 0:0 0:0 0 0 0 11 1\n";
        assert_eq!(parse(mapped)[0].local_address, "127.0.0.1:2049".parse().unwrap());
    }
}
