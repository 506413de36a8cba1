//! A client that vanishes with READs outstanding, without a packet.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};
use zgate_fabric::EmulatedFabric;
use zgate_loader::compound::Ops;
use zgate_rpcrdma::WriteChunk;
use zgate_test_harness::rdma::{Offer, RdmaClient, segments, stuck};
use zgate_test_harness::{Client, Gateway, free_port, wait_for_listener};

const EACH: usize = 1 << 20;
const OUTSTANDING: u32 = 64;
/// Time limit of the gateway for a client that completes nothing.
const STALL: Duration = Duration::from_secs(6);
/// Bound of one connection, and the rounding of buffers.
const MOST_HELD: usize = 66 << 20;

#[tokio::test]
async fn its_buffers_come_back_and_nobody_else_waits_for_it() {
    let port = free_port();
    let more = format!(
        "[rdma]\nlisten = [\"127.0.0.1:{port}\"]\nfabric = \"emulated\"\nstall_seconds = {}\n",
        STALL.as_secs()
    );
    let gateway = Gateway::start_with(90, &more);
    let mut tcp = Client::ready(&gateway, "stall");
    let root = tcp.root.clone();
    let file = tcp.create(&root, "file").unwrap();
    std::fs::write(gateway.export().join("file"), vec![7; EACH]).unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    wait_for_listener(address);

    let read = || Ops::new().putfh(&file.fh).read(file.stateid, 0, EACH as u32);
    let calls = (0..OUTSTANDING)
        .map(|call| (1000 + call, tcp.session.request(1000 + call, 1 + call % 7, false, read())))
        .collect();
    let mut other = RdmaClient::connect(address).await;
    let idle = gateway.buffers_in_use();
    let began = Instant::now();
    let vanished = stuck(EmulatedFabric::new(), address, EACH, calls);
    assert_eq!(gateway.status()["rdma"]["connections"], 2);

    // Other clients are served while its buffers are held, and these are
    // bounded.
    let (mut most, mut slowest, mut served) = (0, Duration::ZERO, 0);
    while began.elapsed() < STALL {
        // Each answer invalidates its memory.
        let lent = other.lend(&vec![0; EACH]);
        let asked = Instant::now();
        let message = tcp.session.request(5000 + served, 0, false, read());
        let writes = vec![WriteChunk { segments: segments(&lent, EACH) }];
        let offer = Offer { writes, ..Offer::default() };
        let answer = other.call(5000 + served, &message, &offer).await.unwrap();
        assert_eq!(answer.written, [EACH]);
        slowest = slowest.max(asked.elapsed());
        most = most.max(gateway.buffers_in_use());
        served += 1;
    }
    assert!(((16 << 20)..idle + MOST_HELD).contains(&most), "{most} bytes held");
    assert!(slowest < STALL, "one READ took {slowest:?}");

    let deadline = Instant::now() + 10 * STALL;
    while gateway.buffers_in_use() > idle {
        assert!(Instant::now() < deadline, "{} bytes stay", gateway.buffers_in_use());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(began.elapsed() >= STALL, "given up after {:?}", began.elapsed());
    assert_eq!(gateway.status()["rdma"]["connections"], 1);
    drop(vanished);
}
