//! Announcement of this server's interfaces to clients: other addresses in
//! fs_locations, lines of `mount-hint`.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};
use zgate_loader::compound::Ops;
use zgate_nfs_wire::v4::Bitmap;
use zgate_test_harness::rdma::{Offer, RdmaClient};
use zgate_test_harness::{Client, Gateway, free_port};
use zgate_xdr::Decoder;

const FS_LOCATIONS: u32 = 24;

fn gateway(fabric: &str, port: u16) -> Gateway {
    let more = format!(
        "[rdma]\nlisten = [\"0.0.0.0:{port}\"]\nfabric = \"{fabric}\"\n\
         [[interface]]\naddress = \"127.0.0.1\"\nclients = [\"10.9.0.0/24\"]\n\
         [[interface]]\naddress = \"127.0.0.2\"\nrole = \"rdma\"\nclients = [\"10.9.1.0/24\"]\n"
    );
    Gateway::start_with(90, &more)
}

fn hint(gateway: &Gateway, client: &str) -> String {
    let output = gateway.command(&["mount-hint", "/export", "--client", client]);
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn each_transport_is_told_its_own_addresses() {
    let port = free_port();
    let gateway = gateway("emulated", port);
    let mut tcp = Client::ready(&gateway, "ways");
    let root = tcp.root.clone();
    // One address over TCP: nothing to announce.
    assert_eq!(tcp.getattr(&root, &[FS_LOCATIONS]).unwrap().values.0, [0; 8]);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let deadline = Instant::now() + Duration::from_secs(20);
    while tokio::net::TcpStream::connect(address).await.is_err() {
        assert!(Instant::now() < deadline, "no RDMA listener");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut rdma = RdmaClient::connect(address).await;
    let ops = Ops::new().putfh(&root).getattr(&Bitmap::of(&[FS_LOCATIONS]));
    let message = tcp.session.request(77, 0, false, ops);
    let answer = rdma.call(77, &message, &Offer::default()).await.unwrap();
    // fs_locations4 ends the reply: "/export", one location with two servers
    // and the same path.
    let mut d = Decoder::new(&answer.message[answer.message.len() - 72..]);
    let mut strings = |count: u32| -> Vec<Vec<u8>> {
        assert_eq!(d.u32(), Ok(count));
        (0..count).map(|_| d.opaque(64).unwrap().to_vec()).collect()
    };
    assert_eq!(strings(1), [b"export".to_vec()]);
    assert_eq!(d.u32(), Ok(1));
    let mut strings = |count: u32| -> Vec<Vec<u8>> {
        assert_eq!(d.u32(), Ok(count));
        (0..count).map(|_| d.opaque(64).unwrap().to_vec()).collect()
    };
    assert_eq!(strings(2), [b"127.0.0.1".to_vec(), b"127.0.0.2".to_vec()]);
    assert_eq!(strings(1), [b"export".to_vec()]);
}

#[test]
fn hosts_are_told_their_way() {
    let port = free_port();
    let served = gateway("emulated", port);
    let fast = hint(&served, "10.9.1.7");
    assert_eq!(
        fast.trim(),
        format!(
            "10.9.1.0/24  mount -t nfs -o vers=4.2,proto=rdma,port={port},hard 127.0.0.2:/export /mnt"
        )
    );
    // If no interface is for a host, the lines of all are printed.
    assert!(hint(&served, "192.0.2.7").contains("Linux  mount"));
}

/// Without a device the hosts of an RDMA network are directed to TCP, with the
/// reason.
#[test]
fn a_missing_device_is_said_and_tcp_is_served() {
    if std::path::Path::new("/sys/class/infiniband")
        .read_dir()
        .is_ok_and(|mut d| d.next().is_some())
    {
        return;
    }
    let gateway = gateway("auto", free_port());
    let said = hint(&gateway, "10.9.0.7");
    assert!(said.contains("proto=tcp,nconnect=4"), "{said}");
    assert!(said.contains("zgate doctor rdma"), "{said}");
    // Devices are searched for in the background.
    let log = || std::fs::read_to_string(gateway.dir.path().join("zgate.log")).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !log().contains("no RDMA") && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    let log = log();
    assert_eq!(log.lines().filter(|line| line.contains("no RDMA")).count(), 1, "{log}");
    let mut client = Client::ready(&gateway, "tcp");
    let root = client.root.clone();
    assert!(client.create(&root, "file").is_ok());
}
