//! Hosts that no export names, and incomplete records: their share of the
//! gateway's memory and connections, and service of named hosts meanwhile.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use zgate_fabric::{EmulatedFabric, Event};
use zgate_rpc::Credential;
use zgate_test_harness::rdma::{Offer, RdmaClient};
use zgate_test_harness::{Client, Gateway, free_port, own_credential, wait_for_listener};
use zgate_test_initiator::{LoginScript, Session};
use zgate_xdr::{Encode, Encoder};

pub(crate) const MIB: usize = 1 << 20;
/// In no export of the gateway.
const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

pub(crate) fn connect(from: Ipv4Addr, gateway: &Gateway) -> TcpStream {
    connect_to(from, gateway.address)
}

fn connect_to(from: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

fn call_head(xid: u32, program: u32, version: u32, procedure: u32) -> Encoder {
    let mut e = Encoder::new();
    [xid, 0, 2, program, version, procedure].into_iter().for_each(|word| e.u32(word));
    own_credential().to_opaque().encode(&mut e);
    Credential::None.to_opaque().encode(&mut e);
    e
}

fn framed(body: &[u8], len: usize) -> Vec<u8> {
    [&(0x8000_0000 | len as u32).to_be_bytes()[..], body].concat()
}

/// Builds a NULL call of NFSv4.
fn null_call() -> Vec<u8> {
    let body = call_head(7, 100_003, 4, 0).finish().flatten().unwrap();
    framed(&body, body.len())
}

/// Builds the beginning of an NFSv3 WRITE of 4 MiB, up to its data.
pub(crate) fn begun_write() -> Vec<u8> {
    let mut e = call_head(8, 100_003, 3, 7);
    e.opaque(&[5; 28]);
    [0, 0, 4 << 20, 0, 4 << 20].into_iter().for_each(|word| e.u32(word));
    let head = e.finish().flatten().unwrap();
    framed(&head, head.len() + (4 << 20))
}

/// Returns whether the gateway closes the connection within the time limit of a
/// test.
fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 256]) {
        Ok(read) => read == 0,
        Err(error) => matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
    }
}

fn is_answered(stream: &mut TcpStream) -> bool {
    let sent = stream.write_all(&null_call());
    sent.is_ok() && stream.read(&mut [0; 256]).is_ok_and(|read| read >= 28)
}

/// Adds keys to `[server]`, which comes first in the file, and restarts.
pub(crate) fn with_server_keys(mut gateway: Gateway, keys: &str) -> Gateway {
    let path = gateway.dir.path().join("zgate.toml");
    let config = std::fs::read_to_string(&path).unwrap();
    let config = config.replacen("[server]\n", &format!("[server]\n{keys}"), 1);
    std::fs::write(&path, config).unwrap();
    gateway.stop();
    gateway.restart();
    wait_until("the admin socket", || gateway.command(&["status"]).status.success());
    gateway
}

pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "{what} is waited for in vain");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the bytes the buffers hold once they no longer grow.
fn settled(gateway: &Gateway) -> usize {
    let (mut most, mut same) = (gateway.buffers_in_use(), 0);
    while same < 5 {
        std::thread::sleep(Duration::from_millis(50));
        let now = gateway.buffers_in_use();
        same = if now > most { 0 } else { same + 1 };
        most = most.max(now);
    }
    most
}

fn serves(gateway: &Gateway) {
    let mut client = Client::ready(gateway, "named");
    let root = client.root.clone();
    let file = client.create(&root, "probe").unwrap();
    client.write(&file, 0, 2, &vec![7; MIB]).unwrap();
    client.close(&file).unwrap();
}

#[test]
fn a_stranger_gets_null_and_no_memory() {
    let gateway = Gateway::start(90);
    let before = gateway.buffers_in_use();
    let mut begun: Vec<_> = (0..20).map(|_| connect(STRANGER, &gateway)).collect();
    for stream in &mut begun {
        assert!(is_answered(stream));
        stream.write_all(&begun_write()).unwrap();
    }
    assert!(settled(&gateway) < before + MIB / 4, "{} held", gateway.buffers_in_use());
    assert!(begun.iter_mut().all(is_closed));
    // The first marker of a record in many fragments already exceeds the limit.
    let mut fragments = connect(STRANGER, &gateway);
    let mut piece = 3000_u32.to_be_bytes().to_vec();
    piece.extend(vec![0; 3000]);
    fragments.write_all(&piece).unwrap();
    fragments.write_all(&3000_u32.to_be_bytes()).unwrap();
    assert!(is_closed(&mut fragments));
    // Empty fragments are limited, too.
    let mut empty = connect(STRANGER, &gateway);
    let _ = empty.write_all(&vec![0; 64 << 10]);
    assert!(is_closed(&mut empty));
    serves(&gateway);
}

#[test]
fn a_record_that_is_not_ended_counts_in_the_share_of_its_host() {
    let more = "[[export]]\npath = \"{dir}/export\"\npseudo = \"/more\"\n\
                clients = [{ match = \"127.0.0.2\", access = \"rw\" }]\n";
    let gateway = with_server_keys(Gateway::start_with(90, more), "buffers = \"64MiB\"\n");
    let mut begun: Vec<_> = (0..40).map(|_| connect(STRANGER, &gateway)).collect();
    for stream in &mut begun {
        stream.write_all(&begun_write()).unwrap();
    }
    let held = settled(&gateway);
    // Half of the budget is free for all; the last record may begin just below
    // it.
    assert!(held >= 16 * MIB, "{held}");
    assert!(held <= 40 * MIB, "{} MiB for records that are not ended", held / MIB);
    serves(&gateway);
    // A waiting connection may be closed by its client; one that stays
    // continues when memory is released.
    let connections = || gateway.status()["connections"].as_u64().unwrap();
    begun.truncate(25);
    wait_until("connections", || connections() <= 27);
    begun.drain(..15);
    wait_until("connections", || connections() <= 12);
    wait_until("memory", || gateway.buffers_in_use() >= 16 * MIB);
    drop(begun);
    wait_until("no memory", || gateway.buffers_in_use() < MIB);
}

#[test]
fn strangers_leave_connections_to_named_hosts() {
    let gateway = with_server_keys(Gateway::start(90), "max_connections = 40\n");
    let mut answered: Vec<_> = (0..40)
        .map(|n| connect(Ipv4Addr::new(127, 0, 1, n), &gateway))
        .filter_map(|mut stream| is_answered(&mut stream).then_some(stream))
        .collect();
    assert_eq!(answered.len(), 10);
    serves(&gateway);
    // A released slot is available again.
    answered.truncate(9);
    wait_until("a place", || is_answered(&mut connect(STRANGER, &gateway)));
}

#[test]
fn a_host_that_is_not_named_any_more_is_a_stranger_from_then_on() {
    let gateway = Gateway::start(90);
    let path = gateway.dir.path().join("zgate.toml");
    let config = std::fs::read_to_string(&path).unwrap();
    let mut stream = connect(Ipv4Addr::LOCALHOST, &gateway);
    assert!(is_answered(&mut stream));
    stream.write_all(&begun_write()).unwrap();
    wait_until("memory", || gateway.buffers_in_use() >= 4 * MIB);
    std::fs::write(&path, config.replace("match = \"127.0.0.1\"", "match = \"127.0.0.9\""))
        .unwrap();
    assert!(gateway.command(&["reload"]).status.success());
    // Its next bytes are those of an outsider with a large record.
    stream.write_all(&[0; 64]).unwrap();
    assert!(is_closed(&mut stream));
    assert!(gateway.buffers_in_use() < MIB);
    let mut again = connect(Ipv4Addr::LOCALHOST, &gateway);
    assert!(is_answered(&mut again));
    let _ = again.write_all(&begun_write());
    assert!(is_closed(&mut again));
    std::fs::write(&path, config).unwrap();
    assert!(gateway.command(&["reload"]).status.success());
    serves(&gateway);
}

#[tokio::test]
async fn a_stranger_is_refused_over_rdma_before_a_receive_is_posted() {
    let port = free_port();
    let rdma = format!("[rdma]\nlisten = [\"127.0.0.1:{port}\"]\nfabric = \"emulated\"\n");
    let gateway = Gateway::start_with(90, &rdma);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    wait_for_listener(address);
    let before = gateway.buffers_in_use();
    let fabric = EmulatedFabric::new().from_address(IpAddr::V4(STRANGER));
    let mut refused = 0;
    for _ in 0..8 {
        let tried = RdmaClient::try_connect_over(fabric.clone(), address).await;
        refused += u32::from(tried.is_err());
    }
    assert_eq!(refused, 8);
    assert!(gateway.buffers_in_use() <= before);
    assert!(RdmaClient::try_connect_over(EmulatedFabric::new(), address).await.is_ok());
}

#[tokio::test]
async fn an_rdma_connection_of_a_host_that_is_not_named_any_more_ends_with_its_next_call() {
    let port = free_port();
    let rdma = format!("[rdma]\nlisten = [\"127.0.0.1:{port}\"]\nfabric = \"emulated\"\n");
    let gateway = Gateway::start_with(90, &rdma);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    wait_for_listener(address);
    let mut client = RdmaClient::connect(address).await;
    let null = |xid| call_head(xid, 100_003, 4, 0).finish();
    client.call(1, &null(1), &Offer::default()).await.unwrap();
    let path = gateway.dir.path().join("zgate.toml");
    let config = std::fs::read_to_string(&path).unwrap();
    let config = config.replace("match = \"127.0.0.1\"", "match = \"127.0.0.9\"");
    std::fs::write(&path, config).unwrap();
    assert!(gateway.command(&["reload"]).status.success());
    client.send(2, &null(2), &Offer::default());
    let ended = async {
        loop {
            match client.connection.event().await {
                Event::Disconnected(_) => return true,
                Event::Received { .. } => return false,
                _ => {}
            }
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(10), ended).await.unwrap());
}

const TARGET: &str = "iqn.2026-11.test.zgate:disk";

/// Starts a gateway with one disk at a portal.
fn with_target(port: u16) -> Gateway {
    let more = format!(
        "[iscsi]\nlisten = [\"127.0.0.1:{port}\"]\n\
         [[target]]\nname = \"{TARGET}\"\nallow_any_initiator = true\n\
         [[target.lun]]\nnumber = 0\npath = \"{{dir}}/disk.img\"\nsize = \"8MiB\"\n"
    );
    Gateway::start_with(60, &more)
}

/// Incomplete logins make room for a genuine one.
#[test]
fn idle_logins_of_many_hosts_keep_nobody_out() {
    let port = free_port();
    let gateway = with_target(port);
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let idle: Vec<_> = (0..320_u16)
        .map(|n| {
            let mut stream = connect_to(Ipv4Addr::new(127, 0, 2, (n / 32) as u8 + 1), to);
            // Half a header.
            let _ = stream.write_all(&[0x43; 20]);
            stream
        })
        .collect();
    // They are old enough by then.
    std::thread::sleep(Duration::from_millis(600));
    for _ in 0..3 {
        let script = LoginScript::normal("iqn.2026-11.test.zgate:host", TARGET);
        Session::login(to, &script).unwrap();
    }
    drop(idle);
    serves(&gateway);
}

#[test]
fn the_connections_of_a_host_are_bounded_over_iscsi_too() {
    let port = free_port();
    let gateway = with_target(port);
    let gateway = with_server_keys(gateway, "max_connections_per_client = 4\n");
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    wait_for_listener(to);
    wait_until("no connections", || gateway.status()["connections"].as_u64() == Some(0));
    let login = |name: &str| {
        let name = format!("iqn.2026-11.test.zgate:{name}");
        Session::login(to, &LoginScript::normal(&name, TARGET))
    };
    let mut hosts: Vec<_> = (0..4).map(|n| login(&format!("host{n}")).unwrap()).collect();
    let refused = login("one-more").err().unwrap();
    assert_eq!(refused.to_string(), "login refused: 0302", "RFC 7143 §11.13.5");
    assert!(!is_answered(&mut connect(Ipv4Addr::LOCALHOST, &gateway)), "NFS of the same host");
    // A session that is reinstated has the place of the old one.
    hosts[0] = login("host0").unwrap();
    hosts.truncate(3);
    wait_until("a place", || login("one-more").is_ok());
}

/// The memory needs of login and full feature phase differ by some megabytes.
#[tokio::test]
async fn iser_connections_that_do_not_log_in_hold_little() {
    let port = free_port();
    let more = format!(
        "[rdma]\nfabric = \"emulated\"\n[iscsi]\niser_listen = [\"127.0.0.1:{port}\"]\n\
         [[target]]\nname = \"{TARGET}\"\nallow_any_initiator = true\n\
         [[target.lun]]\nnumber = 0\npath = \"{{dir}}/disk.img\"\nsize = \"8MiB\"\n"
    );
    let gateway = Gateway::start_with(60, &more);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    wait_for_listener(address);
    let before = gateway.buffers_in_use();
    let mut idle = Vec::new();
    for _ in 0..20 {
        let client = RdmaClient::try_connect_over(EmulatedFabric::new(), address).await;
        idle.push(client.unwrap());
    }
    let held = gateway.buffers_in_use() - before;
    assert!(held <= 20 * (64 << 10), "{held} bytes before login");
}
