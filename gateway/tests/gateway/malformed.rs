//! Malformed input: every stream gets an answer defined by an RFC or a closed
//! connection, memory stays bounded, and the next client is served.

use crate::screens::metrics;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use zgate_test_harness::{Client, Gateway, Random};

/// More memory than a gateway of two cores needs for all of this, in bytes.
const MEMORY_BYTES: u64 = 512 << 20;
const ROUNDS: u64 = 300;

fn connect(gateway: &Gateway) -> TcpStream {
    let stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

fn record(body: &[u8]) -> Vec<u8> {
    let mut raw = (0x8000_0000 | body.len() as u32).to_be_bytes().to_vec();
    raw.extend_from_slice(body);
    raw
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// One reply, without its record mark, as words.
fn reply(stream: &mut TcpStream) -> Vec<u32> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).unwrap();
    let mut body = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut body).unwrap();
    body.chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect()
}

/// Returns whether the server closed the connection.
fn closed(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

/// Checks that the gateway serves a well-behaved client.
fn serves(gateway: &mut Gateway) {
    assert!(gateway.is_alive());
    let mut client = Client::ready(gateway, "well-behaved");
    let root = client.root.clone();
    let file = client.create(&root, "probe").unwrap();
    client.write(&file, 0, 2, b"still here").unwrap();
    let (_, data) = client.read(&file.fh, file.stateid, 0, 100).unwrap();
    assert_eq!(data, b"still here");
    client.close(&file).unwrap();
    assert!(gateway.peak_memory_bytes() < MEMORY_BYTES, "{}", gateway.peak_memory_bytes());
}

#[test]
fn calls_that_cannot_be_served_are_refused_as_the_rfc_says() {
    let mut gateway = Gateway::start(60);
    let mut stream = connect(&gateway);
    // xid, CALL, RPC version, program, version, procedure, credential, verifier.
    let call = |rpc, program, version, procedure, flavor| {
        record(&words(&[7, 0, rpc, program, version, procedure, flavor, 0, 0, 0]))
    };
    const NFS: u32 = 100_003;
    for (request, answer) in [
        // RFC 5531 §9: MSG_DENIED, RPC_MISMATCH, lowest and highest version.
        (call(3, NFS, 4, 0, 0), vec![7, 1, 1, 0, 2, 2]),
        // MSG_ACCEPTED, verifier, PROG_UNAVAIL.
        (call(2, 200_000, 1, 0, 0), vec![7, 1, 0, 0, 0, 1]),
        // PROG_MISMATCH with the supported versions.
        (call(2, NFS, 2, 0, 0), vec![7, 1, 0, 0, 0, 2, 3, 4]),
        (call(2, NFS, 5, 0, 0), vec![7, 1, 0, 0, 0, 2, 3, 4]),
        // PROC_UNAVAIL.
        (call(2, NFS, 4, 2, 0), vec![7, 1, 0, 0, 0, 3]),
        (call(2, NFS, 3, 22, 0), vec![7, 1, 0, 0, 0, 3]),
        // NULL needs no arguments and no credential.
        (call(2, NFS, 4, 0, 0), vec![7, 1, 0, 0, 0, 0]),
        // COMPOUND without arguments: GARBAGE_ARGS.
        (call(2, NFS, 4, 1, 0), vec![7, 1, 0, 0, 0, 4]),
    ] {
        stream.write_all(&request).unwrap();
        assert_eq!(reply(&mut stream), answer, "{request:?}");
    }
    // MSG_DENIED, AUTH_ERROR for an unknown flavour.
    stream.write_all(&call(2, NFS, 4, 1, 77)).unwrap();
    let answer = reply(&mut stream);
    assert_eq!(answer[..4], [7, 1, 1, 1], "{answer:?}");
    serves(&mut gateway);
}

#[test]
fn impossible_records_close_the_connection_before_they_are_received() {
    let mut gateway = Gateway::start(60);
    for start in [
        // A record of 2 GiB, and one just above the bound.
        vec![0xff, 0xff, 0xff, 0xff],
        (0x8000_0000_u32 | ((4 << 20) + (64 << 10) + 1)).to_be_bytes().to_vec(),
        // Empty fragments without end.
        vec![0; 64 << 10],
        // A reply where calls are expected, much too short.
        record(&words(&[1])),
    ] {
        let mut stream = connect(&gateway);
        // The server may close the connection while this is being sent.
        let _ = stream.write_all(&start);
        assert!(closed(&mut stream), "{:?}", &start[..4.min(start.len())]);
    }
    serves(&mut gateway);
}

#[test]
fn noise_does_no_harm() {
    let mut random = Random::from_environment();
    let mut gateway = Gateway::start(60);
    // A valid COMPOUND, to be damaged: PUTROOTFH, GETFH, GETATTR, READDIR.
    let mut valid = words(&[9, 0, 2, 100_003, 4, 1, 1, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4]);
    valid.extend(words(&[24, 10, 9, 2, 0xffff_ffff, 0xffff_ffff]));
    valid.extend(words(&[26, 0, 0, 0, 0, 4096, 65_536, 1, 0x12]));
    for round in 0..ROUNDS {
        let mut stream = connect(&gateway);
        let mut body = valid.clone();
        if round % 3 == 0 {
            body = (0..random.below(600)).map(|_| random.u64() as u8).collect();
        } else {
            for _ in 0..=random.below(6) {
                let at = random.below(body.len() as u64) as usize;
                body[at] = random.u64() as u8;
            }
            body.truncate(body.len() - random.below(8) as usize);
        }
        let _ = stream.write_all(&record(&body));
        let _ = stream.shutdown(std::net::Shutdown::Write);
        assert!(closed(&mut stream), "an answer or nothing, then the end");
    }
    serves(&mut gateway);
}

#[test]
fn many_slow_connections_do_not_stop_the_others() {
    let mut gateway = Gateway::start(60);
    // Each announces a large record and sends little of it.
    let slow: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = connect(&gateway);
            stream.write_all(&(0x8000_0000_u32 | (4 << 20)).to_be_bytes()).unwrap();
            stream.write_all(&[0; 200]).unwrap();
            stream
        })
        .collect();
    serves(&mut gateway);
    drop(slow);
    serves(&mut gateway);
}

/// Errors that a peer can cause at will do not fill the log.
#[test]
fn garbage_is_one_line_in_the_log_and_a_count() {
    let mut gateway = Gateway::start(90);
    for _ in 0..60 {
        let mut stream = connect(&gateway);
        stream.write_all(&[0xff; 64]).unwrap();
        assert!(closed(&mut stream));
    }
    let log = std::fs::read_to_string(gateway.dir.path().join("zgate.log")).unwrap();
    let lines = log.lines().filter(|line| line.contains("closing the connection")).count();
    assert!((1..=3).contains(&lines), "{lines} lines for 60 connections");
    let count = "zgate_closed_connections_total{fault=\"peer\",reason=\"protocol\"} 60\n";
    let deadline = Instant::now() + Duration::from_secs(20);
    while !metrics(&gateway).contains(count) {
        assert!(Instant::now() < deadline, "{}", metrics(&gateway));
        std::thread::sleep(Duration::from_millis(50));
    }
    serves(&mut gateway);
}

/// A client may have any name; a terminal shows it without other effect.
#[test]
fn names_that_clients_choose_move_no_cursor() {
    let gateway = Gateway::start(90);
    let _client = Client::ready(&gateway, "evil\x1b]0;owned\x07\r\n\u{9b}2J\u{202e}name");
    for args in [&["clients"][..], &["clients", "--json"], &["status", "--json"]] {
        let shown = String::from_utf8(gateway.command(args).stdout).unwrap();
        assert!(shown.contains("evil") && shown.contains("name"), "{args:?}: {shown}");
        let harmless = |c: char| c == '\n' || c.is_ascii_graphic() || c == ' ';
        assert!(shown.chars().all(harmless), "{args:?}: {}", shown.escape_debug());
        assert!(!shown.contains("\\u001b"), "{args:?}: escaped by JSON alone");
    }
}
