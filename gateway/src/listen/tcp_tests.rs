//! How long a connection may take, in virtual time; and what is said about a core
//! that takes too long itself.

use super::*;
use crate::block::settings::BlockSettings;
use crate::lifecycle::run::{ExportSettings, Gateway, Settings};
use crate::serve::attention::Attention;
use crate::serve::connections::{ConnectionLimits, Standing};
use crate::serve::limits::{CHECK_PERIOD, IDLE_CHECK_PERIOD, SILENT_CHECKS, UNNAMED_CHECKS};
use std::net::{IpAddr, TcpListener};
use tokio::io::AsyncWriteExt;
use tokio::task::LocalSet;
use zgate_nfs::namespace::policy::Network;
use zgate_nfs::namespace::{ClientRule, export::Versions};
use zgate_nfs::v4::server::Identity;
use zgate_nfs::v4::state::grace::GracePeriod;

const NAMED: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
const STRANGER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 1));

fn gateway(dir: &std::path::Path) -> Gateway {
    let settings = Settings {
        rdma: Default::default(),
        buffer_bytes: 64 << 20,
        fair_shares: true,
        state_dir: dir.join("state"),
        nfs: vec!["127.0.0.1:0".parse().unwrap()],
        interfaces: Vec::new(),
        cores: 1,
        lease_seconds: 90,
        grace: GracePeriod { seconds: 0, max_seconds: 0 },
        identity: Identity { owner_major: vec![1], owner_minor: 0, scope: vec![1] },
        connections: ConnectionLimits { total: 16, per_client: 16 },
        engine: zgate_io::EngineChoice::Threads,
        worker_threads: 1,
        poll_microseconds: 0,
        core_nice: 0,
        fd_cache_entries: 16,
        drain: Duration::ZERO,
    };
    let networks = vec![Network { address: NAMED, prefix_bits: 32 }];
    let export = ExportSettings {
        path: dir.to_owned(),
        pseudo_path: "/export".to_owned(),
        id: None,
        clients: vec![ClientRule { networks, ..ClientRule::open_to_all() }],
        read_only: false,
        max_transfer_bytes: 1 << 20,
        versions: Versions::ALL,
        tcp: true,
        rdma: false,
        delegations: false,
        delegated_times: false,
        sync_names: false,
        reserved_port_only: false,
        snapshots_visible: false,
        direct_io: zgate_posix::DirectIo::Never,
        dataset: None,
    };
    Gateway::start(&settings, &[export], &BlockSettings::default(), &[]).unwrap()
}

/// A connection from `address` that sends these bytes and nothing more: how long
/// it is kept, and how many there are then; `None`: for longer than a day.
async fn kept(gateway: &Gateway, address: IpAddr, bytes: &[u8]) -> Option<Duration> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    for stream in [&client, &server] {
        stream.set_nonblocking(true).unwrap();
    }
    let mut client = TcpStream::from_std(client).unwrap();
    client.write_all(bytes).await.unwrap();
    let shared = std::sync::Arc::clone(&gateway.shared);
    let slot = shared.connections.admit(address, Standing::Unnamed).unwrap();
    let peer = Peer { address, port: 700, connection: slot.id, rdma: false };
    let service =
        Rc::new(Service { shared, attention: Attention::new(0), admitted: Default::default() });
    let begun = Instant::now();
    let served = serve(TcpStream::from_std(server).unwrap(), peer, slot, service);
    let ended = tokio::time::timeout(Duration::from_secs(86_400), served).await;
    ended.is_ok().then(|| begun.elapsed())
}

#[test]
fn silence_has_its_end_where_something_is_owed() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = gateway(dir.path());
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    LocalSet::new().block_on(&runtime.unwrap(), async {
        let half: &[u8] = &[0x80, 0, 0, 100, 1, 2, 3];
        // A host that no export names: whatever it sends or does not.
        let soon = CHECK_PERIOD * UNNAMED_CHECKS;
        for bytes in [&[][..], half] {
            let kept = kept(&gateway, STRANGER, bytes).await.unwrap();
            assert!((soon..=soon + CHECK_PERIOD).contains(&kept), "{kept:?}");
        }
        // One that is named may be idle for ever, and not within a record.
        assert_eq!(kept(&gateway, NAMED, &[]).await, None);
        let bound = CHECK_PERIOD * SILENT_CHECKS;
        let kept = kept(&gateway, NAMED, half).await.unwrap();
        assert!((bound..=bound + IDLE_CHECK_PERIOD + CHECK_PERIOD).contains(&kept), "{kept:?}");
    });
    assert_eq!(gateway.shared.connections.len(), 0);
    gateway.stop();
}

/// The status line and the body of an answer to GET.
fn get(address: std::net::SocketAddr, path: &str) -> (String, String) {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

#[test]
fn a_core_that_hangs_is_unhealthy_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = gateway(dir.path());
    let shared = std::sync::Arc::clone(&gateway.shared);
    let http = crate::observe::http::start("127.0.0.1:0".parse().unwrap(), shared).unwrap();
    let health = || get(http.address, "/healthz");
    assert_eq!(health(), ("HTTP/1.1 200 OK".to_owned(), "ok\n".to_owned()));
    // The table of connections is held, and a new one needs a place in it.
    let connections = std::sync::Arc::clone(&gateway.shared.connections);
    let _slot = connections.admit(NAMED, Standing::Named).unwrap();
    let (let_go, held) = std::sync::mpsc::channel::<()>();
    let (holds, is_held) = std::sync::mpsc::channel();
    let holder = std::thread::spawn(move || {
        connections.exports_changed(|_| {
            holds.send(()).unwrap();
            held.recv().is_ok()
        });
    });
    is_held.recv().unwrap();
    let _waiting = std::net::TcpStream::connect(gateway.addresses[0]).unwrap();
    let (status, body) = health();
    assert_eq!(status, "HTTP/1.1 503 Service Unavailable");
    assert!(body.contains("core 0"), "{body}");
    let_go.send(()).unwrap();
    holder.join().unwrap();
    assert_eq!(health().0, "HTTP/1.1 200 OK");
    gateway.stop();
}
