//! The gateway's counters of transferred and copied data, for every path of
//! data over RDMA (emulated fabric) and TCP.

use bytes::Bytes;
use std::net::{Ipv4Addr, SocketAddr};
use zgate_loader::compound::Ops;
use zgate_rpcrdma::WriteChunk;
use zgate_test_harness::rdma::{Offer, RdmaClient, bulk_of, segments};
use zgate_test_harness::{Client, Gateway, Opened, free_port, wait_for_listener};

const MEBIBYTE: usize = 1 << 20;
/// Most bytes of a large WRITE's body that the read of the previous record's
/// end includes: the only bytes of a large WRITE over TCP that are copied.
const HEAD_BYTES: u64 = 512;
/// Bytes of a read behind short requests.
const STREAM_BYTES: u64 = 64 << 10;

struct Fixture {
    gateway: Gateway,
    tcp: Client,
    file: Opened,
    rdma: RdmaClient,
    xid: u32,
}

impl Fixture {
    async fn new() -> Self {
        let port = free_port();
        let more = format!("[rdma]\nlisten = [\"127.0.0.1:{port}\"]\nfabric = \"emulated\"\n");
        let gateway = Gateway::start_with(90, &more);
        let mut tcp = Client::ready(&gateway, "zero-copy");
        let root = tcp.root.clone();
        let file = tcp.create(&root, "file").unwrap();
        std::fs::write(gateway.export().join("file"), vec![0x5a; 2 * MEBIBYTE]).unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        wait_for_listener(address);
        let rdma = RdmaClient::connect(address).await;
        Self { gateway, tcp, file, rdma, xid: 1000 }
    }

    /// Returns the bytes transferred and copied so far.
    fn figures(&self, transport: &str, direction: &str) -> (u64, u64) {
        self.gateway.carried(transport, direction)
    }

    async fn rdma_read(&mut self, offset: u64, len: usize) {
        let ops = Ops::new().putfh(&self.file.fh).read(self.file.stateid, offset, len as u32);
        self.xid += 1;
        let message = self.tcp.session.request(self.xid, 0, false, ops);
        let lent = self.rdma.lend(&vec![0; len]);
        let chunk = WriteChunk { segments: segments(&lent, 256 << 10) };
        let offer = Offer { writes: vec![chunk], ..Offer::default() };
        let answer = self.rdma.call(self.xid, &message, &offer).await.unwrap();
        assert_eq!(answer.written, [len]);
        assert!(lent.withdraw().iter().all(|byte| *byte == 0x5a));
    }

    fn write_request(&mut self, offset: u64, data: &[u8]) -> zgate_xdr::Message {
        let data = Bytes::copy_from_slice(data);
        let ops = Ops::new().putfh(&self.file.fh).write(
            self.file.stateid,
            offset,
            zgate_nfs_wire::v4::StableHow::Unstable,
            data,
        );
        self.xid += 1;
        self.tcp.session.request(self.xid, 0, false, ops)
    }

    async fn rdma_write(&mut self, offset: u64, data: &[u8]) {
        let message = self.write_request(offset, data);
        let (at, bulk) = bulk_of(&message);
        let lent = self.rdma.lend(&bulk);
        let bulk = Some((at, bulk.len(), segments(&lent, 256 << 10)));
        let offer = Offer { bulk, ..Offer::default() };
        self.rdma.call(self.xid, &message, &offer).await.unwrap();
        let disk = std::fs::read(self.gateway.export().join("file")).unwrap();
        assert_eq!(disk[offset as usize..][..data.len()], *data);
    }
}

#[tokio::test]
async fn aligned_bulk_over_rdma_is_not_copied() {
    let mut fixture = Fixture::new().await;
    for len in [64 << 10, 256 << 10, MEBIBYTE] {
        fixture.rdma_read(4096, len).await;
        fixture.rdma_write(8192, &vec![0x5a; len]).await;
    }
    let moved = (64 << 10) + (256 << 10) + MEBIBYTE as u64;
    assert_eq!(fixture.figures("rdma", "read"), (moved, 0));
    assert_eq!(fixture.figures("rdma", "write"), (moved, 0));
    // Odd lengths and offsets also get their own buffers.
    fixture.rdma_read(4097, 77_777).await;
    fixture.rdma_write(99, &[0x5a; 55_555]).await;
    assert_eq!(fixture.figures("rdma", "read"), (moved + 77_777, 0));
    assert_eq!(fixture.figures("rdma", "write"), (moved + 55_555, 0));
}

#[tokio::test]
async fn short_data_over_rdma_are_copied_once_at_most() {
    let mut fixture = Fixture::new().await;
    // A WRITE that fits into the message is copied out of the receive, which is
    // needed again at once.
    let message = fixture.write_request(0, &[7; 1000]);
    fixture.rdma.call(fixture.xid, &message, &Offer::default()).await.unwrap();
    assert_eq!(fixture.figures("rdma", "write"), (1000, 1000));
    // A WRITE that is read as a whole by RDMA is used where it was placed.
    let message = fixture.write_request(0, &[7; 30_000]);
    let lent = fixture.rdma.lend(&message.flatten().unwrap());
    let offer = Offer { whole: segments(&lent, 7_000), ..Offer::default() };
    fixture.rdma.call(fixture.xid, &message, &offer).await.unwrap();
    assert_eq!(fixture.figures("rdma", "write"), (31_000, 1000));
    // Data sent inline is not copied here either.
    let ops = Ops::new().putfh(&fixture.file.fh).read(fixture.file.stateid, 0, 600);
    fixture.xid += 1;
    let message = fixture.tcp.session.request(fixture.xid, 0, false, ops);
    fixture.rdma.call(fixture.xid, &message, &Offer::default()).await.unwrap();
    assert_eq!(fixture.figures("rdma", "read"), (600, 0));
}

#[tokio::test]
async fn what_tcp_copies() {
    let mut fixture = Fixture::new().await;
    let file = fixture.file.clone();
    for _ in 0..4 {
        fixture.tcp.read(&file.fh, file.stateid, 0, MEBIBYTE as u32).unwrap();
    }
    for _ in 0..4 {
        fixture.tcp.write(&file, 0, 0, &vec![0x5a; MEBIBYTE]).unwrap();
    }
    let moved = 4 * MEBIBYTE as u64;
    assert_eq!(fixture.figures("tcp", "read"), (moved, 0));
    // The first WRITE behind short requests is read together with them; after
    // that only heads are read ahead.
    let (written, copied) = fixture.figures("tcp", "write");
    assert_eq!(written, moved);
    assert!(copied <= STREAM_BYTES + 3 * HEAD_BYTES, "{copied}");
    let before = copied;
    fixture.tcp.write(&file, 0, 0, &[1; 2000]).unwrap();
    assert_eq!(fixture.figures("tcp", "write"), (moved + 2000, before + 2000));
    assert_eq!(fixture.figures("rdma", "read"), (0, 0));
}
