//! Hosts that request much and read nothing, or never give up the data of what they
//! write, and a host that connects later: the buffers each of them gets, with and
//! without shares. Prints the numbers with `--nocapture`.

use bytes::Bytes;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::time::Duration;
use zgate_fabric::EmulatedFabric;
use zgate_rpc::Credential;
use zgate_store::Payload;
use zgate_test_harness::rdma::{Lent, Offer, RdmaClient, bulk_of, segments, stuck};
use zgate_test_harness::{Client, Gateway, free_port, own_credential, wait_for_listener};
use zgate_xdr::{Encode, Encoder, Message};

const EACH: usize = 1 << 20;
const SLOW: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const LATE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));
const SLOW_CONNECTIONS: usize = 6;

/// Begins a call of NFSv3 for a file, at its first byte.
fn call_v3(xid: u32, procedure: u32, fh: &[u8]) -> Encoder {
    let mut e = Encoder::new();
    [xid, 0, 2, 100_003, 3, procedure].into_iter().for_each(|word| e.u32(word));
    own_credential().to_opaque().encode(&mut e);
    Credential::None.to_opaque().encode(&mut e);
    e.opaque(fh);
    e.u64(0);
    e
}

/// READ of NFSv3 (RFC 1813 §3.3.6): no session limits its size.
fn read_v3(xid: u32, fh: &[u8]) -> Message {
    let mut e = call_v3(xid, 6, fh);
    e.u32(EACH as u32);
    e.finish()
}

/// WRITE of NFSv3 (RFC 1813 §3.3.7).
fn write_v3(xid: u32, fh: &[u8], len: usize) -> Message {
    let mut e = call_v3(xid, 7, fh);
    [len as u32, 0].into_iter().for_each(|word| e.u32(word));
    e.bulk(Payload::Bytes(Bytes::from(vec![7; len])));
    e.finish()
}

/// Connects, and lends the data of a WRITE to the gateway.
async fn writer(host: IpAddr, address: SocketAddr, message: &Message) -> (RdmaClient, Lent) {
    let fabric = EmulatedFabric::new().from_address(host);
    let client = RdmaClient::connect_over(fabric, address).await;
    let (_, bulk) = bulk_of(message);
    let lent = client.lend(&bulk);
    (client, lent)
}

/// Returns the offer of that data.
fn data_of(message: &Message, lent: &Lent) -> Offer<'static> {
    let (at, bulk) = bulk_of(message);
    Offer { bulk: Some((at, bulk.len(), segments(lent, bulk.len()))), ..Offer::default() }
}

/// Opens one connection of a host that requests 64 MiB and reads nothing.
/// Dropping the result closes it.
fn stuck_connection(host: IpAddr, address: SocketAddr, fh: &[u8]) -> mpsc::Sender<()> {
    let calls = (0..64).map(|xid| (xid, read_v3(xid, fh))).collect();
    stuck(EmulatedFabric::new().from_address(host), address, EACH, calls)
}

/// Returns the bytes of the buffers once they are constant.
async fn settled(gateway: &Gateway) -> usize {
    let (mut before, mut same) = (gateway.buffers_in_use(), 0);
    while same < 6 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = gateway.buffers_in_use();
        same = if now == before { same + 1 } else { 0 };
        before = now;
    }
    before
}

/// Starts a gateway with these keys of `[server]`; returns its address for RDMA, too, and
/// the handle of /shared/file.
fn start(keys: &str) -> (Gateway, SocketAddr, Vec<u8>) {
    let port = free_port();
    let more = format!(
        "[rdma]\nlisten = [\"127.0.0.1:{port}\"]\nfabric = \"emulated\"\n\
         [[export]]\npath = \"{{dir}}/shared\"\npseudo = \"/shared\"\n\
         clients = [{{ match = \"127.0.0.0/8\", access = \"rw\", squash = \"none\" }}]\n"
    );
    let gateway = Gateway::start_prepared(90, &more, |dir| {
        std::fs::create_dir(dir.join("shared")).unwrap();
        std::fs::write(dir.join("shared/file"), vec![7; EACH]).unwrap();
    });
    let mut gateway = gateway;
    // `[server]` comes first in the file.
    let path = gateway.dir.path().join("zgate.toml");
    let config = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, config.replacen("[server]\n", &format!("[server]\n{keys}"), 1)).unwrap();
    gateway.stop();
    gateway.restart();
    let file = Client::ready(&gateway, "fair").lookup_shared();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    wait_for_listener(address);
    (gateway, address, file)
}

/// Returns the bytes held by stuck hosts, and those that a later one gets.
async fn measure(fair_shares: bool) -> (usize, usize) {
    let keys = format!("buffers = \"128MiB\"\nfair_shares = {fair_shares}\n");
    let (gateway, address, file) = start(&keys);
    let idle = settled(&gateway).await;
    let stuck: Vec<_> =
        (0..SLOW_CONNECTIONS).map(|_| stuck_connection(SLOW, address, &file)).collect();
    let by_stuck = settled(&gateway).await - idle;
    let late = stuck_connection(LATE, address, &file);
    let by_late = settled(&gateway).await - idle - by_stuck;
    drop((stuck, late));
    (by_stuck >> 20, by_late >> 20)
}

trait Shared {
    fn lookup_shared(&mut self) -> Vec<u8>;
}

impl Shared for Client {
    /// Returns the handle of /shared/file.
    fn lookup_shared(&mut self) -> Vec<u8> {
        use zgate_loader::compound::Ops;
        use zgate_nfs_wire::v4::Fh;
        use zgate_nfs_wire::v4::OpNum;
        let ops = Ops::new().putrootfh().lookup(b"shared").lookup(b"file").getfh();
        let mut results = self.call(ops).unwrap();
        results.skip(OpNum::Putrootfh).unwrap();
        results.skip(OpNum::Lookup).unwrap();
        results.skip(OpNum::Lookup).unwrap();
        results.next::<Fh>(OpNum::Getfh).unwrap().0.to_vec()
    }
}

#[tokio::test]
async fn who_comes_late_finds_room_beside_hosts_that_are_stuck() {
    let (by_stuck, by_late) = measure(false).await;
    println!("without shares: the stuck hosts hold {by_stuck} MiB, the late one gets {by_late}");
    assert!(by_stuck > 64, "{by_stuck} MiB held by the stuck hosts");
    assert!(by_late < 16, "there was room for {by_late} MiB");
    let (by_stuck, by_late) = measure(true).await;
    println!("with shares: the stuck hosts hold {by_stuck} MiB, the late one gets {by_late}");
    // Half of 128 MiB, then up to a third; plus the rounding of requests.
    assert!(by_stuck < 80, "{by_stuck} MiB held by the stuck hosts");
    assert!(by_late >= 20, "{by_late} MiB for the late one");
}

#[tokio::test]
async fn writes_whose_data_never_comes_leave_room_for_others() {
    let (gateway, address, file) = start("buffers = \"64MiB\"\n");
    // One WRITE of 4 MiB on each of many connections: more than there are buffers.
    let message = write_v3(1, &file, 4 << 20);
    let mut stuck = Vec::new();
    for _ in 0..24 {
        let (mut client, lent) = writer(SLOW, address, &message).await;
        client.fabric.stop_taking();
        client.send(1, &message, &data_of(&message, &lent));
        stuck.push((client, lent));
    }
    // The host's share is a half; the receives of its connections are besides.
    let held = settled(&gateway).await >> 20;
    println!("the stuck writes hold {held} MiB");
    assert!((16..44).contains(&held), "{held} MiB held by the stuck writes");
    let usual = write_v3(1, &file, EACH);
    let (mut late, lent) = writer(LATE, address, &usual).await;
    let offer = data_of(&usual, &lent);
    let answered = late.call(1, &usual, &offer);
    tokio::time::timeout(Duration::from_secs(30), answered).await.unwrap().unwrap();
    drop(stuck);
}
