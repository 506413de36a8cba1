//! Bytes on a connection before and within the handshake of TLS (RFC 9289 §4.1),
//! over a socket: whatever comes, the gateway answers calls it was sent or ends the
//! connection, sends nothing in the clear behind its consent to TLS, and serves the
//! next client.
#![allow(clippy::unwrap_used, reason = "a test: what fails stops it")]

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::OnceLock;
use std::time::Duration;
use zgate_fuzz::{Dice, target};
use zgate_gateway::Running;
use zgate_test_harness::certificates::{Authority, client, server_files};
use zgate_test_harness::tls_tunnel;

target!(starttls, 1500, connection);

const AUTH_TLS: u32 = 7;
const NFS: u32 = 100_003;
/// Most bytes of one message.
const MOST_BYTES: usize = 400;
/// A peer that has said all gets the end within the limits of idle hosts.
const PATIENCE: Duration = Duration::from_secs(20);
/// Inputs between two looks at a client that does as it should.
const SOUND_CLIENT_EVERY: u8 = 64;

struct Server {
    address: SocketAddr,
    authority: Authority,
    _running: Running,
    _dir: tempfile::TempDir,
}

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        server_files(dir.path(), &authority, Some(&authority));
        std::fs::create_dir(dir.path().join("export")).unwrap();
        let at = dir.path().display();
        let text = format!(
            "[server]\nlisten = [\"127.0.0.1:0\"]\nmetrics_listen = \"127.0.0.1:0\"\n\
             state_dir = \"{at}/state\"\ncores = 1\n\
             [tls]\ncertificate = \"{at}/server.pem\"\nkey = \"{at}/server.key\"\n\
             client_ca = \"{at}/ca.pem\"\n\
             [[export]]\npath = \"{at}/export\"\npseudo = \"/export\"\n\
             clients = [{{ match = \"127.0.0.1\", transport = \"tls\" }}]\n"
        );
        let config = zgate_config::parse(&text, dir.path()).unwrap();
        let running = Running::start(&config, true).unwrap();
        let address = running.nfs_addresses()[0];
        Server { address, authority, _running: running, _dir: dir }
    })
}

/// A call of procedure 0 as a record; `body` is that of the credential.
fn call(xid: u32, version: u32, procedure: u32, flavor: u32, body: &[u32]) -> Vec<u8> {
    let head = [xid, 0, 2, NFS, version, procedure, flavor, 4 * body.len() as u32];
    let words = head.iter().chain(body).chain(&[0, 0]);
    let bytes: Vec<u8> = words.flat_map(|word| word.to_be_bytes()).collect();
    [&(0x8000_0000 | bytes.len() as u32).to_be_bytes()[..], &bytes].concat()
}

/// One message of a peer; true: it is a sound request for TLS.
fn message(dice: &mut Dice<'_>) -> (Vec<u8>, bool) {
    let xid = u32::from(dice.byte());
    match dice.below(8) {
        0 => (call(xid, 3, 0, 0, &[]), false),
        1 | 2 => (call(xid, 4, 0, AUTH_TLS, &[]), true),
        3 => (call(xid, 4, dice.u32(), AUTH_TLS, &vec![0; dice.below(4)]), false),
        // The form of a record of TLS, around anything.
        4 => {
            let content = dice.raw(MOST_BYTES);
            let kind = 20 + dice.below(5) as u8;
            let length = (content.len() as u16).to_be_bytes();
            ([&[kind, 3, 3, length[0], length[1]], content].concat(), false)
        }
        // A client's first message, changed in some places.
        5 | 6 => {
            let mut hello = Vec::new();
            let mut tls = client(&server().authority, None, &[b"sunrpc"]);
            tls.write_tls(&mut hello).unwrap();
            for _ in 0..dice.below(4) {
                let at = dice.below(hello.len());
                hello[at] = dice.byte();
            }
            hello.truncate(hello.len() - dice.below(20).min(hello.len()));
            (hello, false)
        }
        _ => (dice.raw(MOST_BYTES).to_vec(), false),
    }
}

fn connection(dice: &mut Dice<'_>) {
    let server = server();
    if dice.byte().is_multiple_of(SOUND_CLIENT_EVERY) {
        let tls = client(&server.authority, None, &[b"sunrpc"]);
        assert!(tls_tunnel::begin(server.address, tls).is_ok(), "a sound client is served");
    }
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut answered = Vec::new();
    let mut is_sound = true;
    for _ in 0..6 {
        if dice.is_spent() {
            break;
        }
        let (bytes, asks) = message(dice);
        if stream.write_all(&bytes).is_err() {
            break;
        }
        // Handshakes are reached only by those who wait for the consent.
        if asks && is_sound {
            let mut some = [0; 512];
            match stream.read(&mut some) {
                Ok(got @ 1..) => answered.extend_from_slice(&some[..got]),
                _ => break,
            }
        }
        is_sound &= asks;
    }
    let _ = stream.shutdown(Shutdown::Write);
    match stream.read_to_end(&mut answered) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the gateway neither answers nor ends: {error}"),
    }
    check(&answered);
}

/// Checks what the gateway has sent: replies in the clear, and behind the consent
/// to TLS records of TLS alone.
fn check(mut rest: &[u8]) {
    let mut has_consented = false;
    while !rest.is_empty() {
        if has_consented {
            let Some((head, behind)) = rest.split_at_checked(5) else { return };
            assert!((20..=23).contains(&head[0]) && head[1] == 3, "in the clear: {rest:?}");
            let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
            rest = behind.get(length..).unwrap_or(&[]);
            continue;
        }
        let Some((mark, behind)) = rest.split_at_checked(4) else { return };
        let mark = u32::from_be_bytes(mark.try_into().unwrap());
        assert!(mark >> 31 == 1 && mark << 1 < 1 << 10, "no reply: {rest:?}");
        let (reply, behind) = behind.split_at((mark & 0x7fff_ffff) as usize);
        assert_eq!(&reply[4..8], &[0, 0, 0, 1], "a reply");
        has_consented = reply.get(20..28) == Some(b"STARTTLS");
        rest = behind;
    }
}
