//! Calls under RPCSEC_GSS over RDMA, on the emulated fabric. Behind a signed
//! header (krb5) data goes by chunks as always. What is signed or encrypted as a
//! whole goes as a long call and into the reply chunk: no part of it is placed
//! directly (RFC 8166 §8.2.2).

use super::calls::{accepted, status};
use super::gateway::{Session, TestGateway, with_kerberos};
use crate::net::arrival::{Protocol, RdmaArrival};
use crate::net::connections::Standing;
use crate::net::peer::Peer;
use crate::nfs::rdma::serve;
use crate::nfs::tcp::tests::NAMED;
use bytes::Bytes;
use std::os::unix::fs::PermissionsExt;
use zgate_fabric::{EmulatedFabric, Fabric};
use zgate_nfs_wire::bulk::{BulkPosition, bulk_position};
use zgate_nfs_wire::v4::COMPOUND;
use zgate_nfs_wire::{PROGRAM, v4::OpNum};
use zgate_rpc::gss::Service;
use zgate_rpcrdma::WriteChunk;
use zgate_test_harness::rdma::{Answer, Lent, Offer, RdmaClient, segments};
use zgate_xdr::{Encode, Encoder, Message};

/// Longer than an inline message, and not a multiple of four.
const FILE_BYTES: usize = 100_003;
/// Room for a reply with all data in it.
const REPLY_BYTES: usize = FILE_BYTES + 4096;
const COMPOUND4: [u32; 4] = [9, PROGRAM, 4, COMPOUND];
/// Longest piece of lent memory in a segment.
const SEGMENT_BYTES: usize = 40_000;

/// Connects a client of the host that the export names.
async fn connect(gateway: &TestGateway) -> RdmaClient {
    let fabric = EmulatedFabric::new();
    let mut listener = fabric.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let local = listener.local_address();
    let service = gateway.service();
    let slot = gateway.gateway.shared.network.connections.admit(NAMED, Standing::Named).unwrap();
    let peer = Peer { address: NAMED, port: 0, connection: slot.id, rdma: true };
    tokio::task::spawn_local(async move {
        let request = listener.accept().await.unwrap();
        let arrival = RdmaArrival { request, can_invalidate: true, protocol: Protocol::Rpc, local };
        serve(arrival, peer, slot, service).await;
    });
    RdmaClient::connect(local).await
}

/// A COMPOUND of minor version 0 on the file of the export, with the anonymous
/// stateid.
fn compound(last: OpNum, arguments: impl FnOnce(&mut Encoder)) -> Vec<u8> {
    let mut e = Encoder::new();
    e.opaque(b"");
    e.u32(0);
    e.u32(4);
    OpNum::Putrootfh.encode(&mut e);
    for name in ["export", "file"] {
        OpNum::Lookup.encode(&mut e);
        e.opaque(name.as_bytes());
    }
    last.encode(&mut e);
    e.raw(&[0; 16]);
    e.u64(0);
    arguments(&mut e);
    e.finish().flatten().unwrap().to_vec()
}

fn read() -> Vec<u8> {
    compound(OpNum::Read, |e| e.u32(FILE_BYTES as u32))
}

fn write(data: &[u8]) -> Vec<u8> {
    // FILE_SYNC
    compound(OpNum::Write, |e| {
        e.u32(2);
        e.opaque(data);
    })
}

fn noise(seed: usize) -> Vec<u8> {
    (0..FILE_BYTES).map(|i| (i * 31 + i / 251 + seed) as u8).collect()
}

/// Sends a call, with the whole of it in lent memory if it is long.
async fn ask(client: &mut RdmaClient, record: Vec<u8>, mut offer: Offer<'_>) -> Answer {
    let lent = client.lend(&record);
    let is_long = record.len() > 1024 && offer.bulk.is_none();
    if is_long {
        offer.whole = segments(&lent, SEGMENT_BYTES);
    }
    client.call(9, &Message::from(Bytes::from(record)), &offer).await.unwrap()
}

/// Reads by the reply chunk; returns the opened results.
async fn read_protected(
    client: &mut RdmaClient,
    session: &Session,
    (sequence, service): (u32, Service),
) -> Bytes {
    let (reply, direct) = (client.lend(&[0; REPLY_BYTES]), client.lend(&[0xee; REPLY_BYTES]));
    let record = session.call((sequence, service), COMPOUND4, &read()).record();
    // A chunk for the data, which Linux does not offer: it stays unused.
    let writes = vec![WriteChunk { segments: segments(&direct, SEGMENT_BYTES) }];
    let offer = Offer { writes, reply: Some(&reply), ..Offer::default() };
    let answer = ask(client, record, offer).await;
    assert!(answer.long, "in the reply chunk");
    assert_eq!(answer.written, [0], "nothing is placed directly");
    assert!(content(direct).iter().all(|byte| *byte == 0xee));
    let whole = content(reply);
    accepted(session, (sequence, service), &whole[..answer.message.len()]).unwrap()
}

fn content(lent: Lent) -> Vec<u8> {
    lent.withdraw().to_vec()
}

fn with_file(security: &str, test: impl AsyncFnOnce(&TestGateway, &std::path::Path)) {
    with_kerberos(&format!("{security}\naccess = \"rw\""), async |gateway| {
        let file = gateway.export.join("file");
        std::fs::write(&file, noise(1)).unwrap();
        // The user of the calls is another one than that of the test.
        for (path, mode) in [(&gateway.export, 0o777), (&file, 0o666)] {
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        }
        test(gateway, &file).await;
    });
}

#[test]
fn data_behind_a_signed_header_goes_by_chunks() {
    with_file(r#"["krb5"]"#, async |gateway, file| {
        let session = gateway.session(0x33, "alice").await;
        let mut client = connect(gateway).await;
        let lent = client.lend(&[0xee; REPLY_BYTES]);
        let writes = vec![WriteChunk { segments: segments(&lent, SEGMENT_BYTES) }];
        let record = session.call((1, Service::None), COMPOUND4, &read()).record();
        let answer = ask(&mut client, record, Offer { writes, ..Offer::default() }).await;
        assert_eq!((&answer.written[..], answer.long), (&[FILE_BYTES][..], false));
        let results = accepted(&session, (1, Service::None), &answer.message).unwrap();
        assert_eq!(status(&results), 0);
        assert!(results.len() < 100, "without the data");
        let memory = content(lent);
        assert_eq!(memory[..FILE_BYTES], noise(1));
        assert!(memory[FILE_BYTES..].iter().all(|byte| *byte == 0xee));

        let record = session.call((2, Service::None), COMPOUND4, &write(&noise(2))).record();
        let BulkPosition::At { offset, len } = bulk_position(&record) else { panic!("no data") };
        let data = client.lend(&record[offset..offset + len]);
        let bulk = Some((offset, len, segments(&data, SEGMENT_BYTES)));
        let answer = ask(&mut client, record, Offer { bulk, ..Offer::default() }).await;
        assert_eq!(status(&accepted(&session, (2, Service::None), &answer.message).unwrap()), 0);
        assert_eq!(std::fs::read(file).unwrap(), noise(2));
    });
}

#[test]
fn what_is_signed_or_encrypted_goes_as_a_whole() {
    with_file(r#"["krb5i", "krb5p"]"#, async |gateway, file| {
        let session = gateway.session(0x33, "alice").await;
        let mut client = connect(gateway).await;
        let mut before = noise(1);
        for (number, service) in [(1, Service::Integrity), (2, Service::Privacy)] {
            let (reads, writes) = ((number * 10, service), (number * 10 + 1, service));
            let results = read_protected(&mut client, &session, reads).await;
            assert_eq!(status(&results), 0, "{service:?}");
            // The data and one byte of padding end the results.
            assert_eq!(results[results.len() - FILE_BYTES - 1..][..FILE_BYTES], before);

            let data = noise(50 + number as usize);
            let record = session.call(writes, COMPOUND4, &write(&data)).record();
            let answer = ask(&mut client, record, Offer::default()).await;
            assert_eq!(status(&accepted(&session, writes, &answer.message).unwrap()), 0);
            assert_eq!(std::fs::read(file).unwrap(), data, "{service:?}");
            before = data;
        }
    });
}

/// A client that has the signed arguments' data in a chunk of its own gets it
/// put back in its place before anything is verified.
#[test]
fn a_chunk_within_signed_arguments_is_part_of_them() {
    with_file(r#"["krb5i"]"#, async |gateway, file| {
        let session = gateway.session(0x33, "alice").await;
        let mut client = connect(gateway).await;
        for (sequence, changed) in [(1, false), (2, true)] {
            let data = noise(70 + sequence as usize);
            let numbers = (sequence, Service::Integrity);
            let record = session.call(numbers, COMPOUND4, &write(&data)).record();
            let at = record.windows(64).position(|window| window == &data[..64]).unwrap();
            let mut lent = record[at..at + FILE_BYTES].to_vec();
            if changed {
                lent[FILE_BYTES / 2] ^= 1;
            }
            let lent = client.lend(&lent);
            let bulk = Some((at, FILE_BYTES, segments(&lent, SEGMENT_BYTES)));
            let answer = ask(&mut client, record, Offer { bulk, ..Offer::default() }).await;
            let results = accepted(&session, numbers, &answer.message);
            if changed {
                // GARBAGE_ARGS
                assert_eq!(results, Err(4));
            } else {
                assert_eq!(status(&results.unwrap()), 0);
            }
            assert_eq!(std::fs::read(file).unwrap(), noise(71));
        }
    });
}
