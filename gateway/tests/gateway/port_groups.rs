//! A disk of a pair: the group of this machine is active, that of the other one in
//! standby; a gateway in standby says what the disk is and refuses it.

use bytes::Bytes;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use zgate_test_harness::{Gateway, free_port, zgate_binary};
use zgate_test_initiator::{LoginScript, Lun, Session, read16};

const TARGET: &str = "iqn.2026-11.test.zgate:pair";
const HOST: &str = "iqn.2026-11.test.zgate:host";
const REPORT_GROUPS: [u8; 12] = [0xA3, 0x0A, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
const SET_GROUPS: [u8; 12] = [0xA4, 0x0A, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0];
const CAPACITY: [u8; 16] = [0x9E, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0];
/// DEVICE IDENTIFICATION.
const IDENTITY: [u8; 6] = [0x12, 1, 0x83, 1, 0, 0];
const REGISTER: [u8; 10] = [0x5F, 0, 0, 0, 0, 0, 0, 0, 24, 0];
/// The disk's size in blocks of 512 bytes.
const BLOCKS: u64 = 8 << 11;
const ACTIVE: u8 = 0;
const STANDBY: u8 = 2;
const PATIENCE: Duration = Duration::from_secs(60);

/// Portals of this machine and of another one: TEST-NET-1 (RFC 5737) is nobody's.
fn disk(own: u16, own_tag: u16, path: &str) -> String {
    // Gateways that run at once each listen there in advance.
    let other = format!("192.0.2.1:{}", free_port());
    let portals = if own_tag == 1 {
        ([format!("127.0.0.1:{own}")], [other])
    } else {
        ([other], [format!("127.0.0.1:{own}")])
    };
    format!(
        "[iscsi]\nlisten = {:?}\nasymmetric = true\n{{standby}}\n\
         [[iscsi.group]]\ntag = 2\nlisten = {:?}\n\
         [[target]]\nname = \"{TARGET}\"\nallow_any_initiator = true\n\
         [[target.lun]]\nnumber = 0\npath = \"{path}\"\nsize = \"8MiB\"\n",
        portals.0, portals.1
    )
}

fn login(port: u16) -> Session {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    Session::login(address, &LoginScript::normal(HOST, TARGET)).unwrap()
}

fn data(session: &mut Session, cdb: &[u8]) -> Bytes {
    session.run(Lun(0), cdb, 256, &Bytes::new()).unwrap()
}

/// Returns the sense of a command that is refused.
fn refused(session: &mut Session, cdb: &[u8], write: &[u8]) -> [u8; 3] {
    session.start(Lun(0), cdb, 4096, Bytes::copy_from_slice(write));
    let done = session.wait().unwrap();
    assert_eq!(done.status, 2, "{cdb:?}");
    [done.sense[2] & 15, done.sense[12], done.sense[13]]
}

/// Returns group and state of each target port group.
fn groups(session: &mut Session) -> Vec<(u8, u8)> {
    let list = data(session, &REPORT_GROUPS);
    list[4..].chunks(12).map(|group| (group[3], group[0] & 15)).collect()
}

/// A gateway in standby.
struct Standby {
    child: Child,
    _dir: tempfile::TempDir,
}

impl Drop for Standby {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn standby(port: u16) -> Standby {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("standby.toml");
    let server = format!(
        "[server]\nlisten = [\"127.0.0.1:{}\"]\nstate_dir = \"{1}/state\"\n\
         admin_socket = \"{1}/admin.sock\"\nmetrics_listen = \"127.0.0.1:0\"\n",
        free_port(),
        dir.path().display()
    );
    let disk = disk(port, 2, "/dev/zvol/absent/disk").replace("{standby}", "standby = true");
    std::fs::write(&config, server + &disk).unwrap();
    let child = Command::new(zgate_binary())
        .args(["serve", "--config"])
        .arg(&config)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let standby = Standby { child, _dir: dir };
    let until = Instant::now() + PATIENCE;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < until, "it does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    standby
}

#[test]
fn the_group_with_an_address_of_this_machine_is_active() {
    let port = free_port();
    let more = disk(port, 1, "{dir}/disk.img").replace("{standby}", "");
    let gateway = Gateway::start_with(60, &more);
    let mut session = login(port);
    assert_eq!(data(&mut session, &[0x12, 0, 0, 0, 96, 0])[5] & 0x30, 0x10, "implicit");
    assert_eq!(groups(&mut session), [(1, ACTIVE), (2, STANDBY)]);
    data(&mut session, &read16(0, 8));
    // The cluster says which machine serves, no initiator does.
    assert_eq!(refused(&mut session, &SET_GROUPS, &[0; 8])[0], 5);
    let report = gateway.status();
    assert_eq!(report["port_groups"][1]["state"], "standby", "{report}");
    assert_eq!(report["absent"], serde_json::json!([]), "the other machine's are not missed");
}

#[test]
fn a_gateway_in_standby_says_what_the_disk_is_and_refuses_it() {
    let (serving, waiting) = (free_port(), free_port());
    let more = disk(serving, 1, "{dir}/disk.img").replace("{standby}", "");
    let _gateway = Gateway::start_with(60, &more);
    let _standby = standby(waiting);
    let (mut active, mut session) = (login(serving), login(waiting));
    data(&mut active, &CAPACITY);
    let capacity = data(&mut session, &CAPACITY);
    assert_eq!(capacity[..8], (BLOCKS - 1).to_be_bytes());
    assert_eq!(groups(&mut session), [(1, ACTIVE), (2, STANDBY)]);
    // Both machines name one disk: NAA and T10 come before what differs by port.
    let (one, other) = (data(&mut active, &IDENTITY), data(&mut session, &IDENTITY));
    assert_eq!(one[4..24], other[4..24]);
    assert_ne!(one, other, "and their ports are not the same");
    for (cdb, write) in
        [(&[0_u8; 6][..], &[][..]), (&read16(0, 8)[..], &[]), (&REGISTER[..], &[0; 24])]
    {
        assert_eq!(refused(&mut session, cdb, write), [2, 0x04, 0x0B], "{cdb:?}");
    }
}

#[test]
fn a_standby_that_would_serve_something_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let check = |text: String| {
        let config = dir.path().join("standby.toml");
        std::fs::write(&config, text).unwrap();
        let output = Command::new(zgate_binary()).args(["config", "check"]).arg(&config).output();
        let output = output.unwrap();
        (
            output.status.success(),
            String::from_utf8([output.stdout, output.stderr].concat()).unwrap(),
        )
    };
    let sound = disk(3260, 2, "/dev/zvol/tank/disk").replace("{standby}", "standby = true");
    let (valid, said) = check(sound.clone());
    assert!(valid, "{said}");
    for (wrong, part) in [
        (sound.replace("size = \"8MiB\"\n", ""), "size"),
        (sound.replace("asymmetric = true\n", ""), "asymmetric"),
        (format!("{sound}[[export]]\npath = \"/tank\"\npseudo = \"/tank\"\n"), "storage"),
    ] {
        let (valid, said) = check(wrong);
        assert!(!valid && said.contains(part), "{part}: {said}");
    }
}
