//! NFS over RDMA, with the emulated fabric in a real gateway: chunks of every
//! kind, credits, invalidation, errors, and sessions shared with TCP.

use bytes::Bytes;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};
use zgate_fabric::{ConnectError, EmulatedFabric, Event, Fabric as _, Setup};
use zgate_loader::compound::Ops;
use zgate_nfs_wire::v4::OpNum;
use zgate_rpc::Credential;
use zgate_rpc::message::decode_reply;
use zgate_rpcrdma::client::ReplyError;
use zgate_rpcrdma::{Body, Chunks, ErrorBody, Header, WriteChunk, Xid};
use zgate_test_harness::rdma::{Lent, Offer, RdmaClient, bulk_of, part, segments};
use zgate_test_harness::{Client, Gateway, Opened, free_port, own_credential, wait_for_listener};
use zgate_xdr::{Decoder, Encode, Encoder, Message};

const FILE_BYTES: usize = 100_003;
/// Bytes of a READ's reply before its data: RPC header, COMPOUND header,
/// SEQUENCE, PUTFH, READ's own words.
const BEFORE_DATA: usize = 24 + 12 + 44 + 8 + 16;

struct Fixture {
    gateway: Gateway,
    tcp: Client,
    file: Opened,
    content: Vec<u8>,
    rdma: RdmaClient,
    xid: u32,
}

fn noise(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251 + i / 4093) as u8).collect()
}

async fn rdma_client(address: SocketAddr) -> RdmaClient {
    wait_for_listener(address);
    RdmaClient::connect(address).await
}

impl Fixture {
    /// Starts a gateway, a session created over TCP, a file, and an RDMA
    /// connection.
    async fn new() -> (Self, SocketAddr) {
        let port = free_port();
        let more = format!("[rdma]\nlisten = [\"127.0.0.1:{port}\"]\nfabric = \"emulated\"\n");
        let gateway = Gateway::start_with(90, &more);
        let mut tcp = Client::ready(&gateway, "rdma");
        let root = tcp.root.clone();
        let file = tcp.create(&root, "file").unwrap();
        let content = noise(FILE_BYTES);
        std::fs::write(gateway.export().join("file"), &content).unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let rdma = rdma_client(address).await;
        (Self { gateway, tcp, file, content, rdma, xid: 1000 }, address)
    }

    fn request(&mut self, ops: Ops) -> (u32, Message) {
        self.xid += 1;
        (self.xid, self.tcp.session.request(self.xid, 0, false, ops))
    }

    fn read_ops(&self, offset: u64, count: u32) -> Ops {
        Ops::new().putfh(&self.file.fh).read(self.file.stateid, offset, count)
    }

    fn write_ops(&self, offset: u64, data: &[u8]) -> Ops {
        let data = Bytes::copy_from_slice(data);
        Ops::new().putfh(&self.file.fh).write(
            self.file.stateid,
            offset,
            zgate_nfs_wire::v4::StableHow::FileSync,
            data,
        )
    }

    fn on_disk(&self) -> Vec<u8> {
        std::fs::read(self.gateway.export().join("file")).unwrap()
    }
}

/// Returns the status of the COMPOUND in a reply.
fn compound_status(message: &[u8]) -> u32 {
    let mut d = Decoder::new(message);
    decode_reply(&mut d).unwrap();
    d.u32().unwrap()
}

#[tokio::test]
async fn reads_land_in_the_write_chunk() {
    let (mut fixture, _) = Fixture::new().await;
    assert!(fixture.rdma.server.remote_invalidation);
    let lent = fixture.rdma.lend(&vec![0xee; FILE_BYTES + 500]);
    // Three segments with a gap in the memory between them.
    let chunk = WriteChunk {
        segments: vec![
            part(&lent, 0, 40_000),
            part(&lent, 40_100, 40_000),
            part(&lent, 80_200, 20_300),
        ],
    };
    let (xid, message) = fixture.request(fixture.read_ops(0, FILE_BYTES as u32));
    let offer = Offer { writes: vec![chunk], ..Offer::default() };
    let answer = fixture.rdma.call(xid, &message, &offer).await.unwrap();
    assert_eq!(answer.written, [FILE_BYTES]);
    assert_eq!(answer.invalidated, Some(lent.rkey()));
    assert!((1..=64).contains(&answer.credits));
    assert_eq!(compound_status(&answer.message), 0);
    // Neither data nor padding is in the message.
    assert_eq!(answer.message.len(), BEFORE_DATA);
    let memory = lent.withdraw();
    assert_eq!(memory[..40_000], fixture.content[..40_000]);
    assert!(memory[40_000..40_100].iter().all(|byte| *byte == 0xee));
    assert_eq!(memory[40_100..80_100], fixture.content[40_000..80_000]);
    assert_eq!(memory[80_200..100_203], fixture.content[80_000..]);
    assert!(memory[100_203..].iter().all(|byte| *byte == 0xee), "padding was written");
}

#[tokio::test]
async fn each_result_takes_its_chunk_in_order() {
    let (mut fixture, _) = Fixture::new().await;
    std::os::unix::fs::symlink("over/there", fixture.gateway.export().join("link")).unwrap();
    let lent = fixture.rdma.lend(&[0xee; 5000]);
    let chunk = |at, len| WriteChunk { segments: vec![part(&lent, at, len)] };
    let (root, file) = (fixture.tcp.root.clone(), fixture.file.fh.clone());
    let end = FILE_BYTES as u64;
    let ops = fixture
        .read_ops(end, 100)
        .read(fixture.file.stateid, 10, 1001)
        .putfh(&root)
        .lookup(b"link")
        .op(OpNum::Readlink, &())
        .putfh(&file)
        .read(fixture.file.stateid, 20, 7)
        .read(fixture.file.stateid, end, 9)
        .read(fixture.file.stateid, 30, 8);
    let (xid, message) = fixture.request(ops);
    // Chunks for: no result, data, the link, a result that stays inline, no
    // result; the last READ has none.
    let writes = vec![
        chunk(0, 1000),
        chunk(1000, 1500),
        chunk(2500, 500),
        WriteChunk::default(),
        chunk(3000, 1000),
    ];
    let offer = Offer { writes, ..Offer::default() };
    let answer = fixture.rdma.call(xid, &message, &offer).await.unwrap();
    assert_eq!(compound_status(&answer.message), 0);
    assert_eq!(answer.written, [0, 1001, 10, 0, 0]);
    let inline = |data: &[u8]| answer.message.windows(data.len()).any(|at| at == data);
    assert!(inline(&fixture.content[20..27]) && inline(&fixture.content[30..38]));
    assert!(!inline(&fixture.content[10..20]) && !inline(b"over/there"));
    let memory = lent.withdraw();
    assert_eq!(memory[1000..2001], fixture.content[10..1011]);
    assert_eq!(memory[2500..2510], *b"over/there");
    let untouched = [0..1000, 2001..2500, 2510..5000];
    assert!(untouched.into_iter().flat_map(|range| &memory[range]).all(|byte| *byte == 0xee));
}

#[tokio::test]
async fn chunks_of_results_that_never_came_are_returned_unused() {
    let (mut fixture, _) = Fixture::new().await;
    let lent = fixture.rdma.lend(&[0xee; 3000]);
    let chunk =
        |at| WriteChunk { segments: vec![part(&lent, at, 500), part(&lent, at + 500, 500)] };
    let root = fixture.tcp.root.clone();
    // A READ of a directory fails and ends the COMPOUND.
    let ops = fixture.read_ops(3, 900).putfh(&root).read(fixture.file.stateid, 0, 9);
    let (xid, message) = fixture.request(ops.read(fixture.file.stateid, 0, 9));
    let offer = Offer { writes: vec![chunk(0), chunk(1000), chunk(2000)], ..Offer::default() };
    let answer = fixture.rdma.call(xid, &message, &offer).await.unwrap();
    assert_eq!(compound_status(&answer.message), 21, "NFS4ERR_ISDIR");
    assert_eq!(answer.written, [900, 0, 0]);
    let memory = lent.withdraw();
    assert_eq!(memory[..900], fixture.content[3..903]);
    assert!(memory[900..].iter().all(|byte| *byte == 0xee));
}

#[tokio::test]
async fn a_replayed_read_lands_in_the_chunk_of_the_retry() {
    let (mut fixture, _) = Fixture::new().await;
    fixture.xid += 2;
    let (xid, ops) = (fixture.xid, fixture.read_ops(0, 3).read(fixture.file.stateid, 50, 200));
    let first = fixture.tcp.session.request(xid - 1, 0, true, ops.clone());
    fixture.tcp.connection.exchange(&first).unwrap();
    std::fs::write(fixture.gateway.export().join("file"), vec![0; 300]).unwrap();
    let lent = fixture.rdma.lend(&[0; 400]);
    let chunk = |at| WriteChunk { segments: vec![part(&lent, at, 200)] };
    let again = fixture.tcp.session.repeat(xid, 0, true, ops);
    let offer = Offer { writes: vec![chunk(0), chunk(200)], ..Offer::default() };
    let answer = fixture.rdma.call(xid, &again, &offer).await.unwrap();
    assert_eq!(answer.written, [3, 200]);
    assert_eq!(lent.withdraw()[200..], fixture.content[50..250]);
}

#[tokio::test]
async fn short_and_long_replies_without_a_write_chunk() {
    let (mut fixture, _) = Fixture::new().await;
    let (xid, message) = fixture.request(fixture.read_ops(10, 33));
    let answer = fixture.rdma.call(xid, &message, &Offer::default()).await.unwrap();
    assert_eq!(answer.message[BEFORE_DATA..BEFORE_DATA + 33], fixture.content[10..43]);
    assert_eq!(answer.invalidated, None, "no memory was registered for it");
    // A reply that does not fit inline goes to the reply chunk, including
    // padding.
    let lent = fixture.rdma.lend(&vec![0; 70_000]);
    let (xid, message) = fixture.request(fixture.read_ops(0, 50_001));
    let offer = Offer { reply: Some(&lent), ..Offer::default() };
    let answer = fixture.rdma.call(xid, &message, &offer).await.unwrap();
    assert!(answer.long);
    assert_eq!(answer.message.len(), BEFORE_DATA + 50_004);
    let memory = lent.withdraw();
    assert_eq!(memory[BEFORE_DATA..BEFORE_DATA + 50_001], fixture.content[..50_001]);
}

#[tokio::test]
async fn writes_are_pulled_from_the_read_chunk() {
    let (mut fixture, _) = Fixture::new().await;
    let data = noise(77_777);
    let (xid, message) = fixture.request(fixture.write_ops(1000, &data));
    let (at, bulk) = bulk_of(&message);
    let lent = fixture.rdma.lend(&bulk);
    let bulk = Some((at, bulk.len(), segments(&lent, 30_000)));
    let offer = Offer { bulk, ..Offer::default() };
    let answer = fixture.rdma.call(xid, &message, &offer).await.unwrap();
    assert_eq!(compound_status(&answer.message), 0);
    assert_eq!(answer.invalidated, Some(lent.rkey()));
    assert_eq!(fixture.on_disk()[1000..78_777], data);
}

#[tokio::test]
async fn a_long_call_is_pulled_as_a_whole() {
    let (mut fixture, _) = Fixture::new().await;
    let data = noise(30_001);
    let (xid, message) = fixture.request(fixture.write_ops(5, &data));
    let lent = fixture.rdma.lend(&message.flatten().unwrap());
    let offer = Offer { whole: segments(&lent, 7_000), ..Offer::default() };
    let answer = fixture.rdma.call(xid, &message, &offer).await.unwrap();
    assert_eq!(compound_status(&answer.message), 0);
    assert_eq!(fixture.on_disk()[5..30_006], data);
}

#[tokio::test]
async fn too_little_memory_is_an_error_and_no_end() {
    let (mut fixture, _) = Fixture::new().await;
    let lent = fixture.rdma.lend(&[0; 4096]);
    let chunk = WriteChunk { segments: segments(&lent, 4096) };
    let (xid, message) = fixture.request(fixture.read_ops(0, 50_000));
    let offer = Offer { writes: vec![chunk], ..Offer::default() };
    let refused = fixture.rdma.call(xid, &message, &offer).await;
    assert_eq!(refused.unwrap_err(), ReplyError::Chunk);
    let (xid, message) = fixture.request(fixture.read_ops(0, 50_000));
    let refused = fixture.rdma.call(xid, &message, &Offer::default()).await;
    assert_eq!(refused.unwrap_err(), ReplyError::Chunk);
    let (xid, message) = fixture.request(fixture.read_ops(0, 8));
    assert!(fixture.rdma.call(xid, &message, &Offer::default()).await.is_ok());
}

#[tokio::test]
async fn headers_that_cannot_be_processed_get_their_errors() {
    let (mut fixture, _) = Fixture::new().await;
    let call = |credits| Header { xid: Xid(9), credits, body: Body::Message(Chunks::default()) };
    let mut other_version = call(1).encode();
    other_version[7] = 2;
    let mut bad_list = call(1).encode();
    bad_list[19] = 7;
    let no_call = Header { xid: Xid(9), credits: 32, body: Body::NoMessage(Chunks::default()) };
    let cases = [
        (other_version, 1, ErrorBody::Version { asked: 1, low: 1, high: 1 }),
        (bad_list, 1, ErrorBody::Chunk),
        (no_call.encode(), 32, ErrorBody::Chunk),
        // A header without a call behind it.
        (call(0).encode(), 32, ErrorBody::Chunk),
    ];
    for (bytes, credits, expected) in cases {
        let version = bytes[7];
        fixture.rdma.send_raw(bytes);
        let (mut answer, _) = fixture.rdma.receive().await;
        assert_eq!(std::mem::replace(&mut answer[7], 1), version);
        let header = Header::decode(&answer).unwrap().header;
        assert_eq!((header.xid, header.body), (Xid(9), Body::Error(expected)));
        assert_eq!(header.credits, credits);
    }
    // What is too short for any header is not answered.
    fixture.rdma.send_raw(call(1).encode()[..24].to_vec());
    // Errors and messages of older protocols are not answered.
    for body in [Body::Error(ErrorBody::Chunk), Body::Done] {
        fixture.rdma.send_raw(Header { xid: Xid(9), credits: 1, body }.encode());
    }
    let (xid, message) = fixture.request(fixture.read_ops(0, 8));
    assert!(fixture.rdma.call(xid, &message, &Offer::default()).await.is_ok());
}

#[tokio::test]
async fn a_reply_lost_on_tcp_is_replayed_over_rdma() {
    let (mut fixture, _) = Fixture::new().await;
    fixture.xid += 1;
    let xid = fixture.xid;
    let ops = fixture.write_ops(0, b"once");
    let message = fixture.tcp.session.request(xid, 0, true, ops.clone());
    let first = fixture.tcp.connection.exchange(&message).unwrap();
    std::fs::write(fixture.gateway.export().join("file"), b"changed since").unwrap();
    let again = fixture.tcp.session.repeat(xid + 1, 0, true, ops);
    let answer = fixture.rdma.call(xid + 1, &again, &Offer::default()).await.unwrap();
    // Equal except for the transaction id; and the call did not run again.
    assert_eq!(answer.message[4..], first[4..]);
    assert_eq!(fixture.on_disk(), b"changed since");
}

/// REMOVE of NFSv3 (RFC 1813 §3.3.12).
fn remove_v3(xid: u32, dir: &[u8], name: &[u8]) -> Message {
    let mut e = Encoder::new();
    [xid, 0, 2, 100_003, 3, 12].into_iter().for_each(|word| e.u32(word));
    own_credential().to_opaque().encode(&mut e);
    Credential::None.to_opaque().encode(&mut e);
    e.opaque(dir);
    e.opaque(name);
    e.finish()
}

#[tokio::test]
async fn a_retry_over_a_new_connection_does_not_run_again() {
    let (mut fixture, address) = Fixture::new().await;
    let root = fixture.tcp.root.0.clone();
    let removed = fixture.rdma.call(9, &remove_v3(9, &root, b"file"), &Offer::default()).await;
    assert_eq!(compound_status(&removed.unwrap().message), 0);
    // As after a lost reply: the connection manager gives it another port.
    let mut fresh = rdma_client(address).await;
    let again = fresh.call(9, &remove_v3(9, &root, b"file"), &Offer::default()).await;
    assert_eq!(compound_status(&again.unwrap().message), 0);
    let new = fresh.call(10, &remove_v3(10, &root, b"file"), &Offer::default()).await;
    assert_eq!(compound_status(&new.unwrap().message), 2, "NFS3ERR_NOENT");
}

#[tokio::test]
async fn many_calls_at_once_and_a_client_that_vanishes() {
    let (mut fixture, address) = Fixture::new().await;
    let lent = fixture.rdma.lend(&vec![0; 64 << 10]);
    let chunk = WriteChunk { segments: segments(&lent, 64 << 10) };
    let mut sent = Vec::new();
    for slot in 0..8 {
        fixture.xid += 1;
        let ops = fixture.read_ops(slot * 1000, 5000);
        let message = fixture.tcp.session.request(fixture.xid, slot as u32, false, ops);
        let offer = Offer { writes: vec![chunk.clone()], ..Offer::default() };
        sent.push((fixture.xid, fixture.rdma.send(fixture.xid, &message, &offer)));
    }
    // It reads one answer and disconnects while the others are in flight.
    let (xid, offered) = sent.remove(0);
    assert!(fixture.rdma.answer(xid, &offered, &Offer::default()).await.is_ok());
    let Fixture { gateway, rdma, tcp, .. } = fixture;
    drop(rdma);
    drop(lent);
    let mut fresh = rdma_client(address).await;
    let other = Client::ready(&gateway, "other");
    let mut session = other.session;
    let message = session.request(77, 0, false, Ops::new().putrootfh());
    assert!(fresh.call(77, &message, &Offer::default()).await.is_ok());
    drop(tcp);
}

/// Sends READs of a mebibyte whose data the client's device does not complete.
async fn reads_nobody_takes(fixture: &mut Fixture, count: u32) -> Lent {
    const EACH: usize = 1 << 20;
    std::fs::write(fixture.gateway.export().join("file"), vec![7; EACH]).unwrap();
    let lent = fixture.rdma.lend(&vec![0; EACH]);
    let chunk = WriteChunk { segments: segments(&lent, EACH) };
    fixture.rdma.fabric.stop_taking();
    for call in 0..count {
        fixture.xid += 1;
        let ops = fixture.read_ops(0, EACH as u32);
        let message = fixture.tcp.session.request(fixture.xid, call % 8, false, ops);
        let offer = Offer { writes: vec![chunk.clone()], ..Offer::default() };
        fixture.rdma.send(fixture.xid, &message, &offer);
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    lent
}

#[tokio::test]
async fn a_client_that_takes_nothing_and_vanishes_leaves_no_buffers() {
    let (mut fixture, _) = Fixture::new().await;
    let idle = fixture.gateway.buffers_in_use();
    let lent = reads_nobody_takes(&mut fixture, 60).await;
    let held = || fixture.gateway.buffers_in_use().saturating_sub(idle);
    // A loaded machine takes longer to read that much.
    let deadline = Instant::now() + Duration::from_secs(20);
    while held() < 16 << 20 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let held = held();
    assert!(((16 << 20)..(66 << 20)).contains(&held), "{held} bytes held");
    // Disconnects, which frees all memory kept for it.
    let Fixture { gateway, rdma, tcp, .. } = fixture;
    drop((rdma, lent));
    let deadline = Instant::now() + Duration::from_secs(20);
    while gateway.buffers_in_use() > idle {
        assert!(Instant::now() < deadline, "{} bytes stay", gateway.buffers_in_use());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop(tcp);
}

/// Waits for the end of a connection.
async fn is_disconnected(rdma: &mut RdmaClient) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    let ended = async {
        loop {
            match rdma.connection.event().await {
                Event::Received { id, buffer, .. } => rdma.connection.post_receive(id, buffer),
                Event::Disconnected(_) => return,
                _ => {}
            }
        }
    };
    tokio::time::timeout_at(deadline, ended).await.unwrap();
}

#[tokio::test]
async fn wrong_headers_whose_answers_nobody_takes_end_the_connection() {
    let (mut fixture, address) = Fixture::new().await;
    let idle = fixture.gateway.buffers_in_use();
    fixture.rdma.fabric.stop_taking();
    let body = Body::Message(Chunks::default());
    let mut other_version = Header { xid: Xid(9), credits: 1, body }.encode();
    other_version[7] = 2;
    for _ in 0..2000 {
        fixture.rdma.send_raw(other_version.clone());
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let held = fixture.gateway.buffers_in_use().saturating_sub(idle);
    assert!(held <= 2 << 20, "{held} bytes held");
    fixture.rdma.fabric.take_again();
    is_disconnected(&mut fixture.rdma).await;
    let mut fresh = rdma_client(address).await;
    let (xid, message) = fixture.request(fixture.read_ops(0, 8));
    assert!(fresh.call(xid, &message, &Offer::default()).await.is_ok());
}

#[tokio::test]
async fn more_calls_than_credits_end_the_connection() {
    let (mut fixture, address) = Fixture::new().await;
    let idle = fixture.gateway.buffers_in_use();
    let _lent = reads_nobody_takes(&mut fixture, 200).await;
    let held = fixture.gateway.buffers_in_use().saturating_sub(idle);
    assert!(held <= 66 << 20, "{held} bytes held");
    fixture.rdma.fabric.take_again();
    is_disconnected(&mut fixture.rdma).await;
    let mut fresh = rdma_client(address).await;
    let (xid, message) = fixture.request(fixture.read_ops(0, 8));
    assert!(fresh.call(xid, &message, &Offer::default()).await.is_ok());
}

/// On a connection of a gateway that is handed over nothing would be served.
#[tokio::test]
async fn a_gateway_that_is_handed_over_accepts_nobody_until_it_serves_again() {
    let (fixture, address) = Fixture::new().await;
    let hand_over = |args: &[&str]| {
        let output = fixture.gateway.command(&[&["handover"], args].concat());
        assert!(output.status.success(), "{output:?}");
    };
    let connect = || EmulatedFabric::new().connect(address, Setup::default());
    hand_over(&["--seconds", "300"]);
    assert!(matches!(connect().await, Err(ConnectError::Rejected(_))));
    hand_over(&["--cancel"]);
    connect().await.unwrap();
}
