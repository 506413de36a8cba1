//! Tickle acknowledgements: peers of connections that ended without a word connect again.
//!
//! A machine that is reset, or whose address moves, closes no connection. Its clients send again
//! what was not acknowledged, at intervals that double, up to a minute and more; a client whose
//! request was acknowledged and not answered sends nothing at all. The kernel that has the
//! address now would reset such a connection if it heard of it.
//!
//! So the peer is sent an acknowledgement whose numbers are 0: they lie in no window, but by
//! chance. It has to answer with its own (RFC 9293 §3.10.7.4), which belongs to no connection of
//! this machine, and is answered with a reset (RFC 9293 §3.10.7.1 and §3.10.7.2). A peer whose
//! connection is in order answers, too, and nothing comes of it; one that has no such connection
//! resets nothing. Where both numbers lie in windows, data on its way would count as received:
//! peers of connections that the gateway has are not asked.

use super::peer::TcpEnds;
use socket2::{Domain, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr};

/// IPPROTO_RAW: what is sent has an IP header of its own, and nothing is received (raw(7)).
const RAW: i32 = 255;
/// IPPROTO_TCP.
const TCP: u8 = 6;
const IPV4_BYTES: u8 = 20;
const TCP_BYTES: u8 = 20;
/// Flag of a segment that acknowledges.
const ACK: u8 = 0x10;
/// Most routers on the way.
const HOPS: u8 = 64;
/// Most packets of one socket. Those that wait for the hardware addresses of their peers fill its
/// send buffer, 256 of them, for seconds where a peer is away: no other peer would be asked.
const PACKETS_PER_SOCKET: usize = 64;

/// Asks the peers of connections that this machine does not have whether they are there, all of
/// them from the address `local`, which this machine has. A packet that is lost on the way is not
/// sent again.
///
/// # Errors
/// Those of a raw socket: `PermissionDenied` without CAP_NET_RAW.
pub(crate) fn tickle(local: IpAddr, connections: &[TcpEnds]) -> io::Result<()> {
    let own = SocketAddr::new(local, 0);
    for some in connections.chunks(PACKETS_PER_SOCKET) {
        let socket = Socket::new(Domain::for_address(own), Type::RAW, Some(RAW.into()))?;
        socket.set_nonblocking(true)?;
        socket.bind(&own.into())?;
        for ends in some {
            let Some(packet) = packet(ends) else { continue };
            // The port of a raw socket would be a protocol.
            let to = SocketAddr::new(ends.peer.ip(), 0);
            if let Err(error) = socket.send_to(&packet, &to.into()) {
                tracing::debug!(%error, %ends, "a tickle acknowledgement does not leave");
            }
        }
    }
    Ok(())
}

/// Returns an IP packet from the gateway's end to the peer's with an acknowledgement whose
/// numbers are 0; `None` if the ends have addresses of two kinds.
fn packet(ends: &TcpEnds) -> Option<Vec<u8>> {
    let segment = |own: &[u8], peer: &[u8]| {
        let mut segment = [0; TCP_BYTES as usize];
        segment[..2].copy_from_slice(&ends.local.port().to_be_bytes());
        segment[2..4].copy_from_slice(&ends.peer.port().to_be_bytes());
        // The length in words, in the upper half.
        segment[12] = (TCP_BYTES / 4) << 4;
        segment[13] = ACK;
        // RFC 9293 §3.1, and RFC 8200 §8.1: zeros of a longer pseudo-header add nothing.
        let pseudo = [0, TCP, 0, TCP_BYTES];
        let sum = checksum(&[own, peer, &pseudo, &segment]);
        segment[16..18].copy_from_slice(&sum.to_be_bytes());
        segment
    };
    match (ends.local.ip(), ends.peer.ip()) {
        (IpAddr::V4(own), IpAddr::V4(peer)) => {
            let (own, peer) = (own.octets(), peer.octets());
            // Identification and checksum are the kernel's.
            let header = [0x45, 0, 0, IPV4_BYTES + TCP_BYTES, 0, 0, 0, 0, HOPS, TCP, 0, 0];
            Some([&header[..], &own, &peer, &segment(&own, &peer)].concat())
        }
        (IpAddr::V6(own), IpAddr::V6(peer)) => {
            let (own, peer) = (own.octets(), peer.octets());
            let header = [0x60, 0, 0, 0, 0, TCP_BYTES, TCP, HOPS];
            Some([&header[..], &own, &peer, &segment(&own, &peer)].concat())
        }
        _ => None,
    }
}

/// Returns the checksum of parts of even lengths (RFC 1071): that of all with the checksum itself
/// is 0.
fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks_exact(2));
    let sum: u32 = words.map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::super::silence::{be_silent, hear};
    use super::*;
    use socket2::SockRef;
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
    use std::time::Duration;

    /// Longer than the kernel takes to answer.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn ends(local: &str, peer: &str) -> TcpEnds {
        TcpEnds::new(local.parse().unwrap(), peer.parse().unwrap()).unwrap()
    }

    #[test]
    fn an_acknowledgement_names_both_ends_and_has_their_checksum() {
        let packet = |local: &str, peer: &str| packet(&ends(local, peer)).unwrap();
        let four = packet("10.0.0.1:2049", "192.0.2.7:700");
        assert_eq!(four.len(), 40);
        assert_eq!((four[0], four[3], four[9]), (0x45, 40, TCP));
        assert_eq!(four[12..20], [10, 0, 0, 1, 192, 0, 2, 7]);
        assert_eq!(four[20..24], [0x08, 0x01, 0x02, 0xbc]);
        assert_eq!(four[24..32], [0; 8], "sequence and acknowledgement numbers");
        assert_eq!((four[32], four[33]), (0x50, ACK));
        assert_eq!(checksum(&[&four[12..], &[0, TCP, 0, 20]]), 0);
        let six = packet("[fd00::1]:2049", "[fd00::7]:700");
        assert_eq!(six.len(), 60);
        assert_eq!(six[..8], [0x60, 0, 0, 0, 0, 20, TCP, HOPS]);
        assert_eq!((six[8], six[23], six[24], six[39]), (0xfd, 1, 0xfd, 7));
        assert_eq!(checksum(&[&six[8..], &[0, TCP, 0, 20]]), 0);
    }

    #[test]
    fn a_peer_whose_gateway_has_vanished_is_reset_and_one_whose_gateway_is_there_is_not() {
        for own in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            // Not every machine has IPv6.
            let Ok(listener) = TcpListener::bind((own, 0)) else { continue };
            let connect = || {
                let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                client.set_read_timeout(Some(PATIENCE)).unwrap();
                (client, listener.accept().unwrap().0)
            };
            let ((mut left, vanished), (mut kept, mut there)) = (connect(), connect());
            // The kernel of the gateway forgets the connection, and its peer does not hear of it.
            be_silent(&left).unwrap();
            SockRef::from(&vanished).set_linger(Some(Duration::ZERO)).unwrap();
            drop(vanished);
            hear(&left).unwrap();
            let ends = |client: &TcpStream| {
                TcpEnds::new(client.peer_addr().unwrap(), client.local_addr().unwrap()).unwrap()
            };
            // Behind more than one socket takes.
            let mut all = vec![ends(&kept); PACKETS_PER_SOCKET];
            all.push(ends(&left));
            match tickle(own, &all) {
                // It takes the right to use raw sockets.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return,
                sent => sent.unwrap(),
            }
            let error = left.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
            there.write_all(b"k").unwrap();
            let mut got = [0];
            kept.read_exact(&mut got).unwrap();
            assert_eq!(&got, b"k");
        }
    }
}
