//! Packet captures as tcpdump writes them: the TCP segments in them.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// The magic number of a file with microseconds or nanoseconds, as its writer's
/// processor stores it.
const MAGIC: [u32; 2] = [0xa1b2_c3d4, 0xa1b2_3c4d];
const FILE_HEADER_BYTES: usize = 24;
const PACKET_HEADER_BYTES: usize = 16;
/// Link types: Ethernet, and Linux "cooked" of version 1 and 2, which `-i any` gives.
const ETHERNET: u32 = 1;
const COOKED: u32 = 113;
const COOKED2: u32 = 276;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TCP: u8 = 6;

/// One TCP segment, cut to what was captured of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TcpSegment {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) sequence: u32,
    pub(crate) syn: bool,
    pub(crate) data: Vec<u8>,
}

/// All TCP segments of a file, in order.
///
/// # Errors
/// A file that cannot be read, or is no packet capture of a known kind.
pub(crate) fn read(path: &Path) -> io::Result<Vec<TcpSegment>> {
    let bytes = std::fs::read(path)?;
    parse(&bytes).ok_or_else(|| {
        let why = format!("{}: no pcap file of Ethernet or Linux cooked packets", path.display());
        io::Error::new(io::ErrorKind::InvalidData, why)
    })
}

fn parse(bytes: &[u8]) -> Option<Vec<TcpSegment>> {
    let magic: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
    let word: fn([u8; 4]) -> u32 = if MAGIC.contains(&u32::from_le_bytes(magic)) {
        u32::from_le_bytes
    } else if MAGIC.contains(&u32::from_be_bytes(magic)) {
        u32::from_be_bytes
    } else {
        return None;
    };
    let at = |at: usize| Some(word(bytes.get(at..at + 4)?.try_into().ok()?));
    let link = at(20)?;
    if ![ETHERNET, COOKED, COOKED2].contains(&link) {
        return None;
    }
    let (mut segments, mut next) = (Vec::new(), FILE_HEADER_BYTES);
    // A capture that was killed ends within a packet.
    while let Some(captured) = at(next + 8) {
        let start = next + PACKET_HEADER_BYTES;
        next = start + captured as usize;
        let Some(packet) = bytes.get(start..next) else { break };
        segments.extend(segment(link, packet));
    }
    Some(segments)
}

/// The segment in a packet; `None`: something else.
fn segment(link: u32, packet: &[u8]) -> Option<TcpSegment> {
    let (kind_at, header) = match link {
        ETHERNET => (12, 14),
        COOKED => (14, 16),
        _ => (0, 20),
    };
    let ip = packet.get(header..)?;
    let (addresses, total, tcp) = match u16_at(packet, kind_at)? {
        IPV4 if ip.get(9) == Some(&TCP) => {
            let address =
                |at: usize| Some(IpAddr::from(<[u8; 4]>::try_from(ip.get(at..at + 4)?).ok()?));
            let header = usize::from(ip[0] & 15) * 4;
            let total = usize::from(u16_at(ip, 2)?).checked_sub(header)?;
            ((address(12)?, address(16)?), total, ip.get(header..)?)
        }
        IPV6 if ip.get(6) == Some(&TCP) => {
            let address =
                |at: usize| Some(IpAddr::from(<[u8; 16]>::try_from(ip.get(at..at + 16)?).ok()?));
            ((address(8)?, address(24)?), usize::from(u16_at(ip, 4)?), ip.get(40..)?)
        }
        _ => return None,
    };
    let header = usize::from(tcp.get(12)? >> 4) * 4;
    // Short frames are filled up behind the packet.
    let data = tcp.get(header..tcp.len().min(total.max(header)))?;
    Some(TcpSegment {
        from: SocketAddr::new(addresses.0, u16_at(tcp, 0)?),
        to: SocketAddr::new(addresses.1, u16_at(tcp, 2)?),
        sequence: u32::from_be_bytes(tcp.get(4..8)?.try_into().ok()?),
        syn: tcp.get(13)? & 2 != 0,
        data: data.to_vec(),
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 packet of one segment from port 700 to 2049.
    fn packet(data: &[u8]) -> Vec<u8> {
        let mut ip = vec![0x45, 0, 0, 40 + data.len() as u8, 0, 0, 0, 0, 64, 6, 0, 0];
        ip.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        ip.extend([2, 188, 8, 1, 0, 0, 0, 9, 0, 0, 0, 0, 0x50, 0x18, 0, 0, 0, 0, 0, 0]);
        ip.extend(data);
        ip
    }

    fn file(link: u32, packet: &[u8]) -> Vec<u8> {
        let mut file =
            [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 600, link].map(u32::to_le_bytes).concat();
        file.extend(
            [0, 0, packet.len() as u32, packet.len() as u32].map(u32::to_le_bytes).concat(),
        );
        file.extend(packet);
        file
    }

    #[test]
    fn segments_are_found_behind_every_link_header() {
        let cooked2 = [&[8, 0][..], &[0; 18]].concat();
        let ethernet = [&[0; 12][..], &[8, 0]].concat();
        let cooked = [&[0; 14][..], &[8, 0]].concat();
        for (link, header) in [(COOKED2, cooked2), (ETHERNET, ethernet), (COOKED, cooked)] {
            // Behind the packet a frame is filled up.
            let bytes = file(link, &[header, packet(b"hello"), vec![0; 3]].concat());
            let [segment] = &parse(&bytes).unwrap()[..] else { panic!("one segment") };
            assert_eq!((segment.from.port(), segment.to.port()), (700, 2049));
            assert_eq!(
                (segment.sequence, segment.syn, &segment.data[..]),
                (9, false, &b"hello"[..])
            );
            // A capture that ends within a packet.
            assert_eq!(parse(&bytes[..bytes.len() - 1]).unwrap(), []);
        }
        assert!(parse(b"no capture at all").is_none());
    }
}
