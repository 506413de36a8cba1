//! Access to disks: rules in the file and by live commands, portal groups,
//! garbage, and logins that never end.

use bytes::Bytes;
use socket2::{Domain, Socket, Type};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;
use zgate_test_harness::{Gateway, Random, free_port};
use zgate_test_initiator::{LoginScript, Lun, Session, read16, write16};

const OPEN: &str = "iqn.2026-11.test.zgate:open";
const OWN: &str = "iqn.2026-11.test.zgate:own";
const HOST: &str = "iqn.2026-11.test.zgate:host";
const MEMORY_BYTES: u64 = 512 << 20;

/// Starts a gateway with two portal groups, one target for everybody and one
/// for nobody yet.
fn start() -> (Gateway, SocketAddr, SocketAddr) {
    let (first, second) = (free_port(), free_port());
    let more = format!(
        "[iscsi]\nlisten = [\"127.0.0.1:{first}\"]\n\
         [[iscsi.group]]\ntag = 9\nlisten = [\"127.0.0.1:{second}\"]\n\
         [[target]]\nname = \"{OPEN}\"\nallow_any_initiator = true\n\
         [[target.lun]]\nnumber = 0\npath = \"{{dir}}/open.img\"\nsize = \"8MiB\"\n\
         [[target]]\nname = \"{OWN}\"\n\
         [[target.lun]]\nnumber = 0\npath = \"{{dir}}/own0.img\"\nsize = \"8MiB\"\n\
         [[target.lun]]\nnumber = 1\npath = \"{{dir}}/own1.img\"\nsize = \"8MiB\"\n\
         [[target.initiator]]\nname = \"iqn.2026-11.test.zgate:chap\"\n\
         chap = {{ user = \"u\", secret_file = \"{{dir}}/secret\" }}\n"
    );
    let gateway = Gateway::start_prepared(60, &more, |dir| {
        std::fs::write(dir.join("secret"), "twelve bytes and more\n").unwrap();
    });
    let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    (gateway, at(first), at(second))
}

fn login(address: SocketAddr, name: &str, target: &str) -> std::io::Result<Session> {
    Session::login(address, &LoginScript::normal(name, target))
}

fn works(address: SocketAddr) {
    let mut session = login(address, HOST, OPEN).unwrap();
    let data = Bytes::from(vec![7; 4096]);
    session.run(Lun(0), &write16(8, 8, true), 0, &data).unwrap();
    assert_eq!(session.run(Lun(0), &read16(8, 8), 4096, &Bytes::new()).unwrap(), data);
}

fn said(gateway: &Gateway, args: &[&str]) -> (bool, String) {
    let output = gateway.command(args);
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn rules_change_live_and_none_is_weakened() {
    let (gateway, address, _) = start();
    assert!(login(address, HOST, OWN).is_err());
    let (done, _) = said(&gateway, &["acl", "add", OWN, HOST, "--luns", "1"]);
    assert!(done);
    let mut session = login(address, HOST, OWN).unwrap();
    let luns = session.run(Lun(0), &[0xA0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], 256, &Bytes::new());
    assert_eq!(luns.unwrap()[..16], [0, 0, 0, 8, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    // A rule with a secret is not replaced by one without.
    let chap = "iqn.2026-11.test.zgate:chap";
    let (done, text) = said(&gateway, &["acl", "add", OWN, chap]);
    assert!(!done && text.contains("has a rule already"), "{text}");
    assert!(login(address, chap, OWN).is_err());
    for wrong in [["acl", "add", OWN, "iqn.*"], ["acl", "add", OWN, "joe"]] {
        assert!(!said(&gateway, &wrong).0, "{wrong:?}");
    }
    let (done, text) = said(&gateway, &["acl", "add", OWN, "iqn.2026-11.x:y", "--luns", "5"]);
    assert!(!done && text.contains("no lun 5"), "{text}");
    // A host without a rule loses its session.
    assert!(said(&gateway, &["acl", "remove", OWN, HOST]).0);
    let mut rest = || session.run(Lun(0x0001_0000_0000_0000), &[0; 6], 0, &Bytes::new());
    assert!((0..3).any(|_| rest().is_err()));
    assert!(login(address, HOST, OWN).is_err());
    // A reload restores the files' rules.
    assert!(said(&gateway, &["acl", "add", OWN, HOST, "--runtime-only"]).0);
    assert!(login(address, HOST, OWN).is_ok());
    assert!(said(&gateway, &["reload", "--force"]).0);
    assert!(login(address, HOST, OWN).is_err());
}

#[test]
fn a_rule_that_becomes_read_only_does_so_for_sessions_that_are_there() {
    let (gateway, address, _) = start();
    let file = gateway.dir.path().join("zgate.toml");
    let append = |more: &str| {
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text + more).unwrap();
        let (done, text) = said(&gateway, &["reload"]);
        assert!(done, "{text}");
    };
    append(&format!("[[target.initiator]]\nname = \"{HOST}\"\n"));
    let mut session = login(address, HOST, OWN).unwrap();
    let data = Bytes::from(vec![7; 4096]);
    let (write, read) = (write16(8, 8, true), read16(8, 8));
    session.run(Lun(0), &write, 0, &data).unwrap();
    append("read_only = true\n");
    assert!(session.run(Lun(0), &write, 0, &data).is_err());
    assert_eq!(session.run(Lun(0), &read, 4096, &Bytes::new()).unwrap(), data, "it goes on");
}

#[test]
fn each_portal_group_is_a_port_of_its_own() {
    let (_gateway, first, second) = start();
    for (address, tag) in [(first, 1u16), (second, 9)] {
        let mut session = login(address, HOST, OPEN).unwrap();
        let cdb = [0x12, 1, 0x83, 4, 0, 0];
        let page = session.run(Lun(0), &cdb, 1024, &Bytes::new()).unwrap();
        let name = format!("{OPEN},t,0x{tag:04x}");
        assert!(page.windows(name.len()).any(|part| part == name.as_bytes()), "{tag}");
        let groups = [0xA3, 0x0A, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
        let groups = session.run(Lun(0), &groups, 256, &Bytes::new()).unwrap();
        assert_eq!((groups.len(), groups[7], groups[19]), (28, 1, 9));
    }
}

#[test]
fn one_host_that_never_logs_in_keeps_out_nobody_else() {
    let (mut gateway, address, _) = start();
    let silent: Vec<TcpStream> = (0..200)
        .map(|_| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
            socket.connect(&address.into()).unwrap();
            TcpStream::from(socket)
        })
        .collect();
    works(address);
    // Connections beyond the limit were closed at once.
    let closed = |mut stream: &TcpStream| {
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        matches!(stream.read(&mut [0; 1]), Ok(0))
            || stream.take_error().is_ok_and(|error| error.is_some())
    };
    assert!(silent.iter().filter(|stream| closed(stream)).count() >= 100);
    drop(silent);
    works(address);
    assert!(gateway.is_alive());
}

#[test]
fn noise_on_a_portal_does_no_harm() {
    let (mut gateway, address, _) = start();
    let mut random = Random::from_environment();
    for round in 0..200 {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        // Every other one begins like a login request.
        let mut noise: Vec<u8> = (0..48 + random.below(4000)).map(|_| random.u64() as u8).collect();
        if round % 2 == 0 {
            noise[..8].copy_from_slice(&[0x43, 0x87, 0, 0, 0, 0, 0x03, random.u64() as u8]);
        }
        // The gateway may have closed the connection by now.
        let _ = stream.write_all(&noise);
        let _ = stream.read(&mut [0; 512]);
    }
    works(address);
    assert!(gateway.is_alive());
    assert!(gateway.peak_memory_bytes() < MEMORY_BYTES, "{}", gateway.peak_memory_bytes());
}
