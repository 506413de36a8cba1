//! Time limits of a connection, in virtual time; and reports of a core that
//! itself takes too long.

use super::*;
use crate::exports::open::Opening;
use crate::exports::settings::{ExportSet, ExportSettings};
use crate::iscsi::settings::IscsiSettings;
use crate::net::accept::bind;
use crate::net::connections::{ConnectionLimits, Standing};
use crate::net::core::Core;
use crate::net::rdma::fabric::RdmaSettings;
use crate::nfs::limits::{
    CHECK_PERIOD, IDLE_CHECK_PERIOD, SILENT_CHECKS, UNNAMED_CHECKS, UNREAD_CHECKS,
};
use crate::server::run::Gateway;
use crate::server::settings::Settings;
use crate::server::shared::Shared;
use std::net::{IpAddr, TcpListener};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::LocalSet;
use tokio::time::Instant;
use zgate_io::continuation::Home;
use zgate_nfs::namespace::export::Versions;
use zgate_nfs::v4::state::grace::GracePeriod;

pub(crate) const NAMED: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
pub(super) const STRANGER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 1));

pub(super) fn gateway(dir: &std::path::Path) -> Gateway {
    gateway_for(dir, "any")
}

/// A gateway whose export requires this transport of [`NAMED`].
pub(super) fn gateway_for(dir: &std::path::Path, transport: &str) -> Gateway {
    gateway_with(dir, &format!("transport = \"{transport}\""))
}

/// A gateway whose export has these keys in its client entry for [`NAMED`].
pub(crate) fn gateway_with(dir: &std::path::Path, entry: &str) -> Gateway {
    gateway_prepared(dir, entry, |_| Ok(()))
}

/// As [`gateway_with`]; `prepare` runs before it listens.
pub(super) fn gateway_prepared(
    dir: &std::path::Path,
    entry: &str,
    prepare: impl FnOnce(&Shared) -> std::io::Result<()>,
) -> Gateway {
    for part in ["state", "export"] {
        std::fs::create_dir_all(dir.join(part)).unwrap();
    }
    let settings = Settings {
        rdma: RdmaSettings { stall: Duration::from_secs(60), ..RdmaSettings::default() },
        memory_max_bytes: 0,
        buffer_bytes: 64 << 20,
        fair_shares: true,
        metrics_clients: 0,
        state_dir: dir.join("state"),
        nfs: vec!["127.0.0.1:0".parse().unwrap()],
        interfaces: Vec::new(),
        cores: 1,
        lease_seconds: 90,
        grace: GracePeriod { seconds: 0, max_seconds: 0 },
        server_owner: "test".to_owned(),
        server_scope: String::new(),
        connections: ConnectionLimits { total: 16, per_client: 16 },
        engine: zgate_io::EngineChoice::Threads,
        worker_threads: 1,
        poll_microseconds: 0,
        core_nice: 0,
        fd_cache_entries: 16,
        drain: Duration::ZERO,
    };
    let export = ExportSettings {
        path: dir.join("export"),
        pseudo_path: "/export".to_owned(),
        id: None,
        clients: vec![toml::from_str(&format!("match = \"{NAMED}\"\n{entry}")).unwrap()],
        read_only: false,
        max_transfer_bytes: 1 << 20,
        versions: Versions::ALL,
        tcp: true,
        rdma: true,
        delegations: false,
        delegated_times: false,
        sync_names: false,
        reserved_port_only: false,
        snapshots_visible: false,
        direct_io: zgate_posix::DirectIo::Never,
        rates: zgate_config::Rates::default(),
        dataset: None,
    };
    Gateway::start(
        &settings,
        &ExportSet { exports: vec![export], ..ExportSet::default() },
        &IscsiSettings::default(),
        (&[], &[]),
        Opening::StrictStart,
        prepare,
    )
    .unwrap()
}

/// Runs a test; `paused`: in virtual time.
pub(super) fn run<T>(paused: bool, work: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(paused).build();
    LocalSet::new().block_on(&runtime.unwrap(), work)
}

/// The client's end of a connection from `address`, and what serves the other one.
pub(super) fn connection(
    gateway: &Gateway,
    address: IpAddr,
) -> (TcpStream, impl Future<Output = ()> + use<>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    for stream in [&client, &server] {
        stream.set_nonblocking(true).unwrap();
    }
    let shared = std::sync::Arc::clone(&gateway.shared);
    let slot = shared.network.connections.admit(address, Standing::Unnamed).unwrap();
    let peer = Peer { address, port: 700, connection: slot.id, rdma: false };
    let core = Rc::new(Core::new(0, std::sync::Arc::clone(&shared.network)));
    let (home, returning) = Home::new(tokio::runtime::Handle::current());
    tokio::task::spawn_local(returning.run());
    let service = Service::new(std::sync::Arc::clone(&shared.nfs), core, home);
    let served = serve(TcpStream::from_std(server).unwrap(), peer, slot, service);
    (TcpStream::from_std(client).unwrap(), served)
}

/// Connects from `address` and sends only these bytes; returns how long the
/// connection is kept, and how many there are then; `None`: for longer than a
/// day.
async fn kept(gateway: &Gateway, address: IpAddr, bytes: &[u8]) -> Option<Duration> {
    let (mut client, served) = connection(gateway, address);
    client.write_all(bytes).await.unwrap();
    let begun = Instant::now();
    let ended = tokio::time::timeout(Duration::from_secs(86_400), served).await;
    ended.is_ok().then(|| begun.elapsed())
}

#[test]
fn calls_that_are_held_back_go_on_when_the_replies_have_left() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = gateway(dir.path());
    let pool = gateway.shared.network.pool.clone();
    let too_many: Vec<_> = (0..17).map(|_| pool.take(4 << 20)).collect();
    run(true, async {
        let (mut client, served) = connection(&gateway, NAMED);
        let calls: Vec<u8> = (0..3_u32)
            .flat_map(|xid| [0x8000_0028, xid, 0, 2, 100_003, 3, 0, 0, 0, 0, 0])
            .flat_map(u32::to_be_bytes)
            .collect();
        client.write_all(&calls).await.unwrap();
        let begun = Instant::now();
        let served = tokio::task::spawn_local(served);
        // Each reply: its marker, and six words.
        client.read_exact(&mut [0; 3 * 28]).await.unwrap();
        assert!(begun.elapsed() < CHECK_PERIOD, "{:?}", begun.elapsed());
        drop(client);
        served.await.unwrap();
    });
    drop(too_many);
    gateway.stop();
}

#[test]
fn silence_has_its_end_where_something_is_owed() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = gateway(dir.path());
    run(true, async {
        let half: &[u8] = &[0x80, 0, 0, 100, 1, 2, 3];
        // A host that no export names: the limit is the same whatever it sends.
        let soon = CHECK_PERIOD * UNNAMED_CHECKS;
        for bytes in [&[][..], half] {
            let kept = kept(&gateway, STRANGER, bytes).await.unwrap();
            assert!((soon..=soon + CHECK_PERIOD).contains(&kept), "{kept:?}");
        }
        // A named host may be idle forever, but not within a record.
        assert_eq!(kept(&gateway, NAMED, &[]).await, None);
        let bound = CHECK_PERIOD * SILENT_CHECKS;
        let kept = kept(&gateway, NAMED, half).await.unwrap();
        assert!((bound..=bound + IDLE_CHECK_PERIOD + CHECK_PERIOD).contains(&kept), "{kept:?}");
    });
    assert_eq!(gateway.shared.network.connections.len(), 0);
    gateway.stop();
}

/// Calls NULL for ever; reads replies only every so often, or never. Returns how long
/// the connection is kept; `None`: for as long as it was tried.
async fn kept_with_replies(
    gateway: &Gateway,
    reads_every: Option<Duration>,
    tried: Duration,
) -> Option<Duration> {
    let (client, served) = connection(gateway, NAMED);
    // The kernel has too little room for what nobody reads.
    socket2::SockRef::from(&client).set_recv_buffer_size(128 << 10).unwrap();
    let (mut reader, mut writer) = client.into_split();
    let writes = tokio::task::spawn_local(async move {
        let calls = (0..1000).flat_map(|xid| [0x8000_0028, xid, 0, 2, 100_003, 3, 0, 0, 0, 0, 0]);
        let calls: Vec<u8> = calls.flat_map(u32::to_be_bytes).collect();
        while writer.write_all(&calls).await.is_ok() {}
    });
    let reads = tokio::task::spawn_local(async move {
        let mut replies = vec![0; 256 << 10];
        if let Some(pause) = reads_every {
            while reader.read(&mut replies).await.is_ok_and(|got| got > 0) {
                tokio::time::sleep(pause).await;
            }
        }
        // Its end stays open.
        std::future::pending::<()>().await;
    });
    let begun = Instant::now();
    let ended = tokio::time::timeout(tried, served).await;
    reads.abort();
    writes.abort();
    ended.is_ok().then(|| begun.elapsed())
}

/// Replies that a peer does not read hold memory, whether it lives or not.
#[test]
fn who_reads_no_replies_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = gateway(dir.path());
    run(true, async {
        let bound = CHECK_PERIOD * UNREAD_CHECKS;
        let kept = kept_with_replies(&gateway, None, 10 * bound).await.unwrap();
        let most = bound + IDLE_CHECK_PERIOD + CHECK_PERIOD;
        assert!((bound..=most).contains(&kept), "{kept:?}");
        let slowly = kept_with_replies(&gateway, Some(bound / 2), 3 * bound).await;
        assert_eq!(slowly, None, "who reads slowly stays");
    });
    gateway.stop();
}

#[test]
fn ends_are_counted_by_fault() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = gateway(dir.path());
    run(true, async {
        kept(&gateway, NAMED, &[0xff; 64]).await.unwrap();
        kept(&gateway, STRANGER, &[]).await.unwrap();
        let (client, served) = connection(&gateway, NAMED);
        drop(client);
        served.await;
    });
    let page = crate::server::metrics::render(&gateway.shared);
    for (fault, reason, count) in
        [("peer", "protocol", 1), ("peer", "slow", 1), ("none", "closed", 1), ("gateway", "bug", 0)]
    {
        let line = format!(
            "zgate_closed_connections_total{{fault=\"{fault}\",reason=\"{reason}\"}} {count}\n"
        );
        assert!(page.contains(&line), "{line}{page}");
    }
    gateway.stop();
}

#[test]
fn work_of_a_thread_that_is_no_core_is_done_by_one() {
    use zgate_nfs::runtime::Runtime as _;
    let dir = tempfile::tempdir().unwrap();
    let gateway = gateway(dir.path());
    let limit = Duration::from_secs(30);
    assert!(run(false, gateway.shared.health.silent_cores(limit)).is_empty(), "it runs");
    let runtime = std::sync::Arc::clone(&gateway.shared.nfs.runtime);
    let (told, where_it_ran) = std::sync::mpsc::channel();
    let work = async move {
        told.send(std::thread::current().name().map(ToOwned::to_owned)).unwrap();
    };
    std::thread::spawn(move || runtime.spawn(Box::pin(work))).join().unwrap();
    let name = where_it_ran.recv_timeout(limit).unwrap();
    assert_eq!(name.as_deref(), Some("zgate-core0"));
    let connections = std::sync::Arc::clone(&gateway.shared.network.connections);
    let of_no_core = crate::nfs::runtime::GatewayRuntime::new(
        connections,
        std::sync::Arc::default(),
        std::sync::Arc::default(),
    );
    let (told, dropped) = std::sync::mpsc::channel();
    of_no_core.unwrap().spawn(Box::pin(async move { told.send(()).unwrap() }));
    assert!(dropped.recv().is_err(), "there is no core to do it");
    gateway.stop();
}

/// Returns the status line and the body of an answer to GET.
fn get(address: std::net::SocketAddr, path: &str) -> (String, String) {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
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
    let http = crate::observe::http::start(
        bind("127.0.0.1:0".parse().unwrap()).unwrap(),
        shared,
        axum::Router::new(),
        None,
    )
    .unwrap();
    let health = || get(http.address, "/healthz");
    assert_eq!(health(), ("HTTP/1.1 200 OK".to_owned(), "ok\n".to_owned()));
    // The table of connections is locked, and a new connection needs a slot in
    // it.
    let connections = std::sync::Arc::clone(&gateway.shared.network.connections);
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
