//! Hundreds of calls queued at once on each of some connections: workers and the
//! core answer them together, each exactly once.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use zgate_rpc::Credential;
use zgate_test_harness::{Client, Gateway, own_credential};
use zgate_xdr::{Encode, Encoder};

const CONNECTIONS: u32 = 4;
const CALLS: u32 = 700;
/// Time after which a reply counts as lost.
const PATIENCE: Duration = Duration::from_secs(60);

/// A record with CREATE of NFSv3 (RFC 1813 §3.3.8), GUARDED.
fn create_v3(xid: u32, dir: &[u8], name: &str) -> Vec<u8> {
    let mut e = Encoder::new();
    [xid, 0, 2, 100_003, 3, 8].into_iter().for_each(|word| e.u32(word));
    own_credential().to_opaque().encode(&mut e);
    Credential::None.to_opaque().encode(&mut e);
    e.opaque(dir);
    e.opaque(name.as_bytes());
    // GUARDED, mode 0644, and no other attribute.
    [1, 1, 0o644, 0, 0, 0, 0, 0].into_iter().for_each(|word| e.u32(word));
    let call = e.finish().flatten().unwrap();
    let marker = 0x8000_0000 | call.len() as u32;
    [&marker.to_be_bytes()[..], &call[..]].concat()
}

/// Sends all calls of a connection at once.
fn queued(gateway: &Gateway, dir: &[u8], connection: u32) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let call = |xid| create_v3(xid, dir, &format!("{connection}-{xid}"));
    let calls: Vec<u8> = (0..CALLS).flat_map(call).collect();
    stream.write_all(&calls).unwrap();
    stream
}

/// Reads a reply; returns its transaction id and the status of NFS.
fn reply(stream: &mut TcpStream) -> (u32, u32) {
    let mut marker = [0; 4];
    stream.read_exact(&mut marker).unwrap();
    let mut record = vec![0; (u32::from_be_bytes(marker) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut record).unwrap();
    let word = |at: usize| u32::from_be_bytes(record[4 * at..4 * at + 4].try_into().unwrap());
    // xid, REPLY, MSG_ACCEPTED, a verifier of two words, SUCCESS, the status.
    assert_eq!((word(1), word(2), word(5)), (1, 0, 0));
    (word(0), word(6))
}

#[test]
fn calls_that_are_queued_at_once_are_answered_once_each() {
    let gateway = Gateway::start(90);
    let root = Client::ready(&gateway, "pipelined").root.clone();
    // A connection that is closed at once leaves the others alone.
    drop(queued(&gateway, &root.0, CONNECTIONS));
    let streams: Vec<_> =
        (0..CONNECTIONS).map(|connection| queued(&gateway, &root.0, connection)).collect();
    for mut stream in streams {
        let mut seen = HashSet::new();
        for _ in 0..CALLS {
            let (xid, status) = reply(&mut stream);
            assert_eq!(status, 0, "call {xid}");
            assert!(xid < CALLS && seen.insert(xid), "call {xid} is answered twice");
        }
        stream.set_nonblocking(true).unwrap();
        let more = stream.read(&mut [0; 1]).map_err(|error| error.kind());
        assert_eq!(more, Err(std::io::ErrorKind::WouldBlock), "a reply to no call");
    }
}
