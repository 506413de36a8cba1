//! TLS on a connection: the request for it, the handshake and its limits, what
//! exports require, and certificates that change.

use super::tests::{NAMED, STRANGER, connection, gateway, gateway_for, gateway_prepared, run};
use crate::server::run::Gateway;
use rustls::ClientConnection;
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;
use zgate_nfs_wire::PROGRAM as NFS;
use zgate_nfs_wire::mount::PROGRAM as MOUNT;
use zgate_test_harness::certificates::{Authority, client, server_files};
use zgate_tls::Certificates;
use zgate_tls::limits::{HANDSHAKE_PATIENCE, MAX_HANDSHAKE_BYTES, MAX_HANDSHAKES_PER_HOST};

pub(super) const SUNRPC: &[&[u8]] = &[b"sunrpc"];
const AUTH_NONE: u32 = 0;
const AUTH_TLS: u32 = 7;
/// REPLY, MSG_DENIED, AUTH_ERROR, AUTH_BADCRED.
const BAD_CREDENTIAL: [u32; 4] = [1, 1, 1, 1];
/// REPLY, MSG_ACCEPTED, verifier AUTH_NONE without a body, SUCCESS.
pub(super) const SUCCESS: [u32; 5] = [1, 0, 0, 0, 0];
pub(super) const ACCES: u32 = 13;

/// One call as a record; `args` are words.
fn call(program: u32, version: u32, procedure: u32, flavor: u32, args: &[u32]) -> Vec<u8> {
    let head = [5, 0, 2, program, version, procedure, flavor, 0, AUTH_NONE, 0];
    let mark = 0x8000_0000 | (4 * (head.len() + args.len())) as u32;
    [mark].iter().chain(&head).chain(args).flat_map(|word| word.to_be_bytes()).collect()
}

fn request_for_tls() -> Vec<u8> {
    call(NFS, 4, 0, AUTH_TLS, &[])
}

pub(super) fn null() -> Vec<u8> {
    call(NFS, 3, 0, AUTH_NONE, &[])
}

/// The words of a reply behind its transaction id.
fn words(record: &[u8]) -> Vec<u32> {
    let words = record.chunks_exact(4).map(|word| u32::from_be_bytes(word.try_into().unwrap()));
    words.skip(1).collect()
}

async fn reply(stream: &mut TcpStream) -> Vec<u32> {
    let mark = stream.read_u32().await.unwrap();
    let mut record = vec![0; (mark & 0x7fff_ffff) as usize];
    stream.read_exact(&mut record).await.unwrap();
    words(&record)
}

async fn ask(stream: &mut TcpStream, call: &[u8]) -> Vec<u32> {
    stream.write_all(call).await.unwrap();
    reply(stream).await
}

/// A client within TLS.
pub(super) struct Secure {
    stream: TcpStream,
    pub(super) tls: ClientConnection,
}

impl Secure {
    /// Asks for TLS and makes the handshake; `Err`: the server refuses it.
    pub(super) async fn begin(
        mut stream: TcpStream,
        tls: ClientConnection,
    ) -> Result<Self, rustls::Error> {
        let granted = ask(&mut stream, &request_for_tls()).await;
        let token = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
        assert_eq!(granted, [1, 0, 0, 8, token(b"STAR"), token(b"TTLS"), 0]);
        let mut this = Self { stream, tls };
        while this.tls.is_handshaking() {
            this.send().await;
            if this.tls.is_handshaking() {
                this.receive().await?;
            }
        }
        this.send().await;
        Ok(this)
    }

    /// Sends bytes past TLS.
    pub(super) async fn send_in_the_clear(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    pub(super) async fn send(&mut self) {
        let mut bytes = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut bytes).unwrap();
        }
        self.stream.write_all(&bytes).await.unwrap();
    }

    pub(super) async fn receive(&mut self) -> Result<(), rustls::Error> {
        let mut bytes = vec![0; 64 << 10];
        let got = self.stream.read(&mut bytes).await.unwrap_or(0);
        let mut rest = &bytes[..got];
        loop {
            self.tls.read_tls(&mut rest).unwrap();
            self.tls.process_new_packets()?;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// `None`: the server has taken leave.
    pub(super) async fn read(&mut self, mut wanted: usize) -> Option<Vec<u8>> {
        let mut all = Vec::new();
        while wanted > 0 {
            let mut some = vec![0; wanted];
            match self.tls.reader().read(&mut some) {
                Ok(0) => return None,
                Ok(got) => {
                    all.extend_from_slice(&some[..got]);
                    wanted -= got;
                }
                Err(_) => self.receive().await.unwrap(),
            }
        }
        Some(all)
    }

    pub(super) async fn send_call(&mut self, call: &[u8]) {
        self.tls.writer().write_all(call).unwrap();
        self.send().await;
    }

    pub(super) async fn ask(&mut self, call: &[u8]) -> Vec<u32> {
        self.send_call(call).await;
        let mark = self.read(4).await.unwrap();
        let mark = u32::from_be_bytes(mark.try_into().unwrap()) & 0x7fff_ffff;
        words(&self.read(mark as usize).await.unwrap())
    }
}

fn offer(gateway: &Gateway, dir: &Path, server: &Authority, clients: Option<&Authority>) {
    offer_with(gateway, dir, server, clients, None);
}

/// As [`offer`], with a revocation list; users are of the domain `lab.example`.
pub(super) fn offer_with(
    gateway: &Gateway,
    dir: &Path,
    server: &Authority,
    clients: Option<&Authority>,
    revoked: Option<&str>,
) {
    let certificates = certificates(dir, server, clients, revoked);
    gateway.shared.network.tls.replace(Some(certificates));
}

fn certificates(
    dir: &Path,
    server: &Authority,
    clients: Option<&Authority>,
    revoked: Option<&str>,
) -> Certificates {
    let files = server_files(dir, server, clients);
    let list = dir.join("crl.pem");
    if let Some(revoked) = revoked {
        std::fs::write(&list, revoked).unwrap();
    }
    let files = zgate_config::TlsConfig {
        certificate: files.certificate,
        key: files.key,
        client_ca: files.client_ca,
        client_crl: revoked.map(|_| list),
        user_domain: Some("lab.example".to_owned()),
        kernel_records: true,
    };
    Certificates::read(&files).unwrap()
}

/// Connects, and serves the other end on a task of its own.
pub(super) fn connect(gateway: &Gateway, address: std::net::IpAddr) -> TcpStream {
    let (client, served) = connection(gateway, address);
    tokio::task::spawn_local(served);
    client
}

/// Number of connections that ended so far for this reason.
pub(super) fn ended(gateway: &Gateway, reason: &str) -> u64 {
    let ends = gateway.shared.network.ends.counts();
    ends.filter(|(kind, _)| kind.reason == reason).map(|(_, count)| count).sum()
}

#[test]
fn a_client_that_asks_for_tls_gets_it_once() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = gateway(dir.path());
    let ca = Authority::new();
    offer(&gateway, dir.path(), &ca, None);
    run(false, async {
        let mut plain = connect(&gateway, NAMED);
        // A connection may be used in the clear before, but not while it waits.
        assert_eq!(ask(&mut plain, &null()).await, SUCCESS);
        let mut secure = Secure::begin(plain, client(&ca, None, SUNRPC)).await.unwrap();
        assert_eq!(secure.tls.alpn_protocol(), Some(SUNRPC[0]));
        assert_eq!(secure.ask(&null()).await, SUCCESS);
        assert_eq!(secure.ask(&request_for_tls()).await, BAD_CREDENTIAL);
        // Two calls in one record, and one in two, and keys that change.
        secure.tls.refresh_traffic_keys().unwrap();
        let two = [null(), null()].concat();
        assert_eq!(secure.ask(&two).await, SUCCESS);
        assert_eq!(secure.read(28).await.unwrap().len(), 28);
        let one = null();
        secure.tls.writer().write_all(&one[..7]).unwrap();
        secure.send().await;
        assert_eq!(secure.ask(&one[7..]).await, SUCCESS);
        // Without ALPN, as tlshd; with a foreign one, not.
        let bare = client(&ca, None, &[]);
        let mut bare = Secure::begin(connect(&gateway, NAMED), bare).await.unwrap();
        assert_eq!(bare.ask(&null()).await, SUCCESS);
        let foreign = client(&ca, None, &[b"h2"]);
        let refused = Secure::begin(connect(&gateway, NAMED), foreign).await.err().unwrap();
        assert!(refused.to_string().contains("NoApplicationProtocol"), "{refused}");
        gateway.shared.network.drain.begin();
        assert_eq!(secure.read(1).await, None, "the server takes leave within TLS");
    });
    let counts = gateway.shared.network.tls.counts();
    assert_eq!((counts.completed, counts.failed, counts.in_progress), (2, 1, 0));
    gateway.stop();
}

/// A client that comes back after a restart asks at once, and takes a refusal as final.
#[test]
fn tls_is_offered_before_the_gateway_listens() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Authority::new();
    let gateway = gateway_prepared(dir.path(), "transport = \"tls\"", |shared| {
        assert_eq!(shared.nfs_addresses.get(), None, "nothing listens yet");
        shared.network.tls.replace(Some(certificates(dir.path(), &ca, None, None)));
        Ok(())
    });
    run(false, async {
        let stream = connect(&gateway, NAMED);
        let mut secure = Secure::begin(stream, client(&ca, None, SUNRPC)).await.unwrap();
        assert_eq!(secure.ask(&null()).await, SUCCESS);
    });
    gateway.stop();
}

#[test]
fn other_calls_with_its_flavor_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = gateway(dir.path());
    run(false, async {
        let mut plain = connect(&gateway, NAMED);
        assert_eq!(ask(&mut plain, &request_for_tls()).await, BAD_CREDENTIAL, "not configured");
        offer(&gateway, dir.path(), &Authority::new(), None);
        for (program, version, procedure) in [(NFS, 4, 1), (NFS, 3, 1), (MOUNT, 3, 1)] {
            let call = call(program, version, procedure, AUTH_TLS, &[]);
            assert_eq!(ask(&mut plain, &call).await, BAD_CREDENTIAL);
        }
        // Accepted, but not run; no token, so no handshake.
        let unknown = ask(&mut plain, &call(100_000, 2, 0, AUTH_TLS, &[])).await;
        assert_eq!(unknown, [1, 0, 0, 0, 1]);
        let with_body = [5_u32, 0, 2, NFS, 4, 0, AUTH_TLS, 4, 1, AUTH_NONE, 0];
        let mut record = (0x8000_0000_u32 | 44).to_be_bytes().to_vec();
        record.extend(with_body.iter().flat_map(|word| word.to_be_bytes()));
        assert_eq!(ask(&mut plain, &record).await, BAD_CREDENTIAL);
        assert_eq!(ask(&mut plain, &null()).await, SUCCESS, "it goes on in the clear");
        let mut stranger = connect(&gateway, STRANGER);
        assert_eq!(ask(&mut stranger, &request_for_tls()).await, BAD_CREDENTIAL);
    });
    assert_eq!(gateway.shared.network.tls.counts().failed, 0);
    gateway.stop();
}

#[test]
fn a_bad_handshake_costs_its_connection_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = gateway(dir.path());
    let ca = Authority::new();
    offer(&gateway, dir.path(), &ca, None);
    run(true, async {
        // Data behind the request never runs, neither as a call nor as TLS.
        let (mut plain, served) = connection(&gateway, NAMED);
        plain.write_all(&[request_for_tls(), null()].concat()).await.unwrap();
        served.await;
        assert_eq!(plain.read(&mut [0; 64]).await.unwrap_or(0), 0);
        assert_eq!(ended(&gateway, "protocol"), 1);
        // In the clear after the answer, and garbage of all kinds.
        let hello = &[22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff][..];
        for bytes in [&null()[..], &[0; 64], &[0xff; 64], hello] {
            let (mut plain, served) = connection(&gateway, NAMED);
            let served = tokio::task::spawn_local(served);
            ask(&mut plain, &request_for_tls()).await;
            plain.write_all(bytes).await.unwrap();
            served.await.unwrap();
        }
        assert_eq!(ended(&gateway, "protocol") + ended(&gateway, "slow"), 5);
        // A message that is cut into many records, and is longer than allowed:
        // the peer is not waited for.
        let (mut plain, served) = connection(&gateway, NAMED);
        let served = tokio::task::spawn_local(served);
        ask(&mut plain, &request_for_tls()).await;
        let before = ended(&gateway, "protocol");
        let mut message = vec![1, 0, 0xf0, 0];
        message.resize(MAX_HANDSHAKE_BYTES + 1000, 0);
        for part in message.chunks(1000) {
            let head = [22, 3, 1, (part.len() >> 8) as u8, part.len() as u8];
            if plain.write_all(&[&head, part].concat()).await.is_err() {
                break;
            }
        }
        served.await.unwrap();
        assert_eq!(ended(&gateway, "protocol"), before + 1);
        // Silence has its end.
        let (mut plain, served) = connection(&gateway, NAMED);
        let served = tokio::task::spawn_local(served);
        ask(&mut plain, &request_for_tls()).await;
        let begun = Instant::now();
        served.await.unwrap();
        let soon = HANDSHAKE_PATIENCE - Duration::from_secs(1)..=HANDSHAKE_PATIENCE * 2;
        assert!(soon.contains(&begun.elapsed()), "{:?}", begun.elapsed());
    });
    run(false, async {
        // There is room again for each of them; beyond, the connection is closed.
        let tls = &gateway.shared.network.tls;
        let held: Vec<_> = std::iter::from_fn(|| tls.admit(NAMED)).collect();
        assert_eq!(held.len(), MAX_HANDSHAKES_PER_HOST);
        let (mut plain, served) = connection(&gateway, NAMED);
        plain.write_all(&request_for_tls()).await.unwrap();
        served.await;
        assert_eq!(ended(&gateway, "overload"), 1);
        drop(held);
        let stream = connect(&gateway, NAMED);
        let mut secure = Secure::begin(stream, client(&ca, None, SUNRPC)).await.unwrap();
        assert_eq!(secure.ask(&null()).await, SUCCESS);
    });
    gateway.stop();
}

/// Asks for the root of the export by MNT, then for its attributes (NFSv3);
/// returns the status of the latter.
pub(super) async fn getattr(asked: impl AsyncFn(Vec<u8>) -> Vec<u32>) -> u32 {
    let path = b"/export\0".chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap()));
    let path: Vec<_> = [7].into_iter().chain(path).collect();
    let mounted = asked(call_as_root(MOUNT, 1, &path)).await;
    let (head, rest) = mounted.split_at(SUCCESS.len());
    assert_eq!((head, rest[0]), (&SUCCESS[..], 0), "MNT needs no TLS");
    let len = 1 + (rest[1] as usize).div_ceil(4);
    asked(call_as_root(NFS, 1, &rest[1..=len])).await[SUCCESS.len()]
}

/// A call of version 3 with AUTH_SYS.
fn call_as_root(program: u32, procedure: u32, args: &[u32]) -> Vec<u8> {
    let head = [5, 0, 2, program, 3, procedure, 1, 20, 0, 0, 0, 0, 0, AUTH_NONE, 0];
    let mark = 0x8000_0000 | (4 * (head.len() + args.len())) as u32;
    [mark].iter().chain(&head).chain(args).flat_map(|word| word.to_be_bytes()).collect()
}

#[test]
fn an_export_gets_the_protection_it_requires() {
    let (ca, foreign) = (Authority::new(), Authority::new());
    for (transport, plain, tls, mutual) in
        [("any", 0, 0, 0), ("tls", ACCES, 0, 0), ("mtls", ACCES, ACCES, 0)]
    {
        let dir = tempfile::tempdir().unwrap();
        let gateway = gateway_for(dir.path(), transport);
        offer(&gateway, dir.path(), &ca, Some(&ca));
        run(false, async {
            let stream = tokio::sync::Mutex::new(connect(&gateway, NAMED));
            let status = getattr(async |call| ask(&mut *stream.lock().await, &call).await).await;
            assert_eq!(status, plain, "{transport}: in the clear");
            for (identity, expected) in [(None, tls), (Some(&ca), mutual)] {
                let tls = client(&ca, identity, SUNRPC);
                let secure = Secure::begin(connect(&gateway, NAMED), tls).await.unwrap();
                let secure = tokio::sync::Mutex::new(secure);
                let status = getattr(async |call| secure.lock().await.ask(&call).await).await;
                assert_eq!(status, expected, "{transport}: {}", identity.is_some());
            }
            // The client learns of it with its first answer (RFC 8446 §4.4.2.4).
            let tls = client(&ca, Some(&foreign), SUNRPC);
            if let Ok(mut secure) = Secure::begin(connect(&gateway, NAMED), tls).await {
                let refused = secure.receive().await.unwrap_err().to_string();
                assert!(refused.contains("UnknownCA"), "{refused}");
            }
        });
        gateway.stop();
    }
}

#[test]
fn certificates_change_without_an_end_of_connections() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = gateway(dir.path());
    let (old, new) = (Authority::new(), Authority::new());
    offer(&gateway, dir.path(), &old, None);
    run(false, async {
        let stream = connect(&gateway, NAMED);
        let mut first = Secure::begin(stream, client(&old, None, SUNRPC)).await.unwrap();
        offer(&gateway, dir.path(), &new, None);
        assert_eq!(first.ask(&null()).await, SUCCESS);
        let stream = connect(&gateway, NAMED);
        let mut second = Secure::begin(stream, client(&new, None, SUNRPC)).await.unwrap();
        let refused = Secure::begin(connect(&gateway, NAMED), client(&old, None, SUNRPC)).await;
        let refused = refused.err().unwrap().to_string();
        assert!(refused.contains("UnknownIssuer"), "{refused}");
        let tls = &gateway.shared.network.tls;
        while tls.counts().in_progress > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let page = crate::server::metrics::render(&gateway.shared);
        for line in [
            "zgate_tls_handshakes_total{result=\"completed\"} 2\n",
            "zgate_tls_handshakes_total{result=\"failed\"} 1\n",
            "zgate_tls_certificate_expiry_seconds{file=\"certificate\"} 4100000000\n",
        ] {
            assert!(page.contains(line), "{line}{page}");
        }
        gateway.shared.network.tls.replace(None);
        for secure in [&mut first, &mut second] {
            assert_eq!(secure.ask(&null()).await, SUCCESS);
        }
        let mut plain = connect(&gateway, NAMED);
        assert_eq!(ask(&mut plain, &request_for_tls()).await, BAD_CREDENTIAL);
    });
    gateway.stop();
}

/// Callback replies that nobody waits for are no load, so that nothing holds their
/// sender back.
#[test]
fn a_connection_that_always_has_more_lets_others_run() {
    const STREAM_BYTES: u64 = 64 << 10;
    let dir = tempfile::tempdir().unwrap();
    let gateway = gateway(dir.path());
    let ca = Authority::new();
    offer(&gateway, dir.path(), &ca, None);
    run(false, async {
        let stream = connect(&gateway, NAMED);
        let mut secure = Secure::begin(stream, client(&ca, None, SUNRPC)).await.unwrap();
        assert_eq!(secure.ask(&null()).await, SUCCESS);
        let replies: Vec<u8> =
            [0x8000_0008_u32, 7, 1].iter().flat_map(|word| word.to_be_bytes()).collect();
        let replies = replies.repeat(2048);
        let received = || gateway.shared.nfs.metrics.bytes().0;
        let mut before = received();
        let all = before + 64 * replies.len() as u64;
        let watch = async {
            while before < all {
                let now = received();
                assert!(now - before <= STREAM_BYTES, "one buffer at a time: {}", now - before);
                before = now;
                tokio::task::yield_now().await;
            }
        };
        let flood = async {
            for _ in 0..64 {
                secure.send_call(&replies).await;
            }
        };
        tokio::join!(watch, flood);
        assert_eq!(secure.ask(&null()).await, SUCCESS);
    });
    gateway.stop();
}
