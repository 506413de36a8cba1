//! RDMA devices that are added and removed while the gateway runs.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};
use zgate_fabric::Event;
use zgate_loader::compound::Ops;
use zgate_test_harness::rdma::{Offer, RdmaClient};
use zgate_test_harness::{Client, Gateway, free_port};

/// Waits until the gateway serves RDMA, or reports why it does not.
async fn wait_for_rdma(gateway: &Gateway, served: bool) -> serde_json::Value {
    let deadline = Instant::now() + Duration::from_secs(40);
    loop {
        let status = gateway.status();
        let addresses = status["rdma_addresses"].as_array().unwrap().len();
        if (addresses > 0) == served {
            return status;
        }
        assert!(Instant::now() < deadline, "served={served} never: {}", status["rdma"]);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn device(gateway: &Gateway, says: &str) {
    std::fs::write(gateway.dir.path().join("state/emulated-device"), says).unwrap();
}

#[tokio::test]
async fn a_device_that_comes_late_is_used_and_one_that_goes_is_let_go() {
    let port = free_port();
    let more = format!(
        "[rdma]\nlisten = [\"127.0.0.1:{port}\"]\nfabric = \"emulated\"\n\
         [[interface]]\naddress = \"127.0.0.1\"\nclients = [\"127.0.0.0/8\"]\n"
    );
    let gateway = Gateway::start_prepared(90, &more, |dir| {
        std::fs::create_dir(dir.join("state")).unwrap();
        std::fs::write(dir.join("state/emulated-device"), "gone").unwrap();
    });
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let hint = || {
        let said = gateway.command(&["mount-hint", "/export", "--client", "127.0.0.1"]).stdout;
        String::from_utf8(said).unwrap()
    };
    // Without a device TCP is served, and the reason is reported.
    let mut tcp = Client::ready(&gateway, "devices");
    let said = wait_for_rdma(&gateway, false).await;
    let problem = said["rdma"]["problem"].as_str().unwrap_or_default();
    assert!(problem.contains("no RDMA device"), "{said}");
    assert!(hint().contains("proto=tcp"), "{}", hint());

    device(&gateway, "");
    wait_for_rdma(&gateway, true).await;
    assert!(hint().contains("proto=rdma"), "{}", hint());
    let mut ask = async |rdma: &mut RdmaClient, xid: u32| {
        let message = tcp.session.request(xid, 0, false, Ops::new().putrootfh());
        rdma.call(xid, &message, &Offer::default()).await.unwrap();
    };
    let mut rdma = RdmaClient::connect(address).await;
    ask(&mut rdma, 1).await;
    assert_eq!(gateway.status()["rdma"]["connections"], 1);

    // The device is removed, and its connections end.
    device(&gateway, "gone");
    let ended = async { while !matches!(rdma.connection.event().await, Event::Disconnected(_)) {} };
    tokio::time::timeout(Duration::from_secs(20), ended).await.unwrap();
    let said = wait_for_rdma(&gateway, false).await;
    assert!(said["rdma"]["portals"][0]["problem"].is_string(), "{said}");
    assert_eq!(said["interfaces"][0]["rdma_port"], serde_json::Value::Null);

    device(&gateway, "down");
    wait_for_rdma(&gateway, true).await;
    let mut rdma = RdmaClient::connect(address).await;
    ask(&mut rdma, 2).await;
}
