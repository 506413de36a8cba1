//! One state directory, two gateways: one after the other they are the same
//! server to clients, at the same time the second is refused.

use crate::absent::eventually;
use crate::crash::lock;
use socket2::{SockFilter, SockRef};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use zgate_io::send_queue;
use zgate_loader::blocking::Connection;
use zgate_loader::compound::Ops;
use zgate_nfs_wire::v4::op::{exchange_id, open};
use zgate_nfs_wire::v4::{OpNum, Status};
use zgate_test_harness::{Client, Gateway, handles_survive_restarts, own_credential, zgate_binary};
use zgate_xdr::Opaque;

/// Long enough on a loaded machine; grace ends when all have reclaimed.
const LEASE_SECONDS: u32 = 60;
/// Longest wait for what happens at once.
const PATIENCE: Duration = Duration::from_secs(60);
/// Instruction of the kernel's packet filter that drops a packet (linux/bpf_common.h).
const DROP: SockFilter = SockFilter::new(0x06, 0, 0, 0);

/// Returns server owner and scope, as an NFSv4.1 client gets them.
fn identity(gateway: &Gateway) -> (u64, Vec<u8>, Vec<u8>) {
    let mut connection = Connection::connect(gateway.address, Duration::from_secs(30)).unwrap();
    let args = exchange_id::Args {
        verifier: [1; 8],
        owner: Opaque(b"asks for the name only".to_vec()),
        flags: 0,
        protect: exchange_id::Protect::None,
        implementation: None,
    };
    let ops = Ops::new().op(OpNum::ExchangeId, &args);
    let mut results = connection.compound(1, &own_credential(), ops).unwrap();
    let known: exchange_id::Res = results.next(OpNum::ExchangeId).unwrap();
    (known.owner_minor, known.owner_major.0, known.scope.0)
}

/// Returns the last words of a gateway that does not start.
fn refusal(config: &Path) -> String {
    let output = Command::new(zgate_binary())
        .args(["serve", "--config"])
        .arg(config)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(!output.status.success(), "it started");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_gateway_that_takes_the_state_over_is_the_same_server() {
    if !handles_survive_restarts("a_gateway_that_takes_the_state_over_is_the_same_server") {
        return;
    }
    let mut gateway = Gateway::start(LEASE_SECONDS);
    let before = identity(&gateway);
    let mut owner = Client::ready(&gateway, "owner");
    let root = owner.root.clone();
    let file = owner.create(&root, "locked").unwrap();
    owner.write(&file, 0, 2, b"stable").unwrap();
    let unstable = owner.write(&file, 6, 0, b"unstable").unwrap();
    lock(&mut owner, &file, false, 100).unwrap();

    gateway.kill();
    // As if the lock had been another host's.
    let held = r#"{"pid":12,"host":"the-other-host","boot_id":"of another machine"}"#;
    fs::write(gateway.dir.path().join("state/lock"), held).unwrap();
    let address = gateway.address;
    gateway.restart_elsewhere();
    assert_ne!(gateway.address, address);
    assert!(gateway.log().contains("process 12 on host the-other-host"), "{}", gateway.log());

    assert_eq!(identity(&gateway), before, "clients reclaim only from the same server");
    let mut stranger = Client::ready(&gateway, "stranger");
    let refused = stranger.open_existing(&root, "locked").unwrap_err();
    assert_eq!(refused.status(), Some(Status::Grace));
    let mut owner = Client::connect(&gateway, "owner").unwrap();
    assert_eq!(owner.root, root, "handles are the same");
    let ended = owner.read(&file.fh, file.stateid, 0, 6).unwrap_err();
    assert_eq!(ended.status(), Some(Status::BadStateid), "an open of before is not taken for one");
    let reclaim = owner.open(&file.fh, 3, open::How::NoCreate, open::Claim::Previous(0));
    let file = reclaim.unwrap();
    lock(&mut owner, &file, true, 100).unwrap();
    owner.session.reclaim_complete(&mut owner.connection).unwrap();
    let verifier = owner.commit(&file.fh).unwrap();
    assert_ne!(verifier, unstable.verifier, "unstable data has to be written again");
    let (_, data) = owner.read(&file.fh, file.stateid, 0, 6).unwrap();
    assert_eq!(data, b"stable");
    // The only client that was known is back: grace has ended.
    let others = stranger.open_existing(&root, "locked").unwrap();
    assert_eq!(lock(&mut stranger, &others, false, 105), Err(Status::Denied));
}

/// A request that a machine has acknowledged before it was reset is not sent again: its client
/// would wait for its own timers.
#[test]
fn a_client_of_a_gateway_that_vanished_is_reset_by_the_next_one() {
    // Raw sockets are root's, too.
    if !handles_survive_restarts("a_client_of_a_gateway_that_vanished_is_reset_by_the_next_one") {
        return;
    }
    let mut gateway = Gateway::start(LEASE_SECONDS);
    let mut client = TcpStream::connect(gateway.address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let (peer, list) = (client.local_addr().unwrap(), gateway.dir.path().join("state/connections"));
    let line = format!("{} {peer}\n", gateway.address);
    eventually("it is listed", || {
        fs::read_to_string(&list).is_ok_and(|list| list.contains(&line)).then_some(())
    });
    gateway.freeze();
    client.write_all(b"call").unwrap();
    eventually("it is acknowledged", || {
        (send_queue::unacknowledged_bytes(&client).unwrap() == 0).then_some(())
    });
    // What nobody has read makes the kernel end the connection at once; the client does not
    // hear of it.
    SockRef::from(&client).attach_filter(&[DROP]).unwrap();
    gateway.kill();
    SockRef::from(&client).detach_filter().unwrap();
    gateway.restart_elsewhere();
    assert_eq!(client.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    eventually("it is logged", || {
        gateway.log().contains("are asked to connect again").then_some(())
    });
}

#[test]
fn two_servers_have_two_names() {
    let (one, other) = (Gateway::start(LEASE_SECONDS), Gateway::start(LEASE_SECONDS));
    let (one, other) = (identity(&one), identity(&other));
    assert_ne!(one.1, other.1, "clients would treat them as one server");
    assert_ne!(one.2, other.2);
}

#[test]
fn a_second_gateway_on_the_same_state_is_refused_and_told_by_whom() {
    let gateway = Gateway::start(LEASE_SECONDS);
    let pid = gateway.status()["pid"].as_u64().unwrap();
    let (config, _) = gateway.configure_elsewhere();
    let said = refusal(&config);
    let state = gateway.dir.path().join("state");
    for part in [
        format!("{} is in use by another zgate, process {pid};", state.display()),
        "stop it, or give this gateway its own state_dir".to_owned(),
    ] {
        assert!(said.contains(&part), "{part:?} is missing in {said}");
    }
    Client::ready(&gateway, "client");
}

#[test]
fn a_second_gateway_with_the_same_live_changes_is_refused() {
    let gateway = Gateway::start_prepared(LEASE_SECONDS, "", |dir| {
        fs::create_dir(dir.join("conf.d")).unwrap();
    });
    let pid = gateway.status()["pid"].as_u64().unwrap();
    let (config, _) = gateway.configure_elsewhere();
    let shared = gateway.dir.path().join("conf.d");
    let text = fs::read_to_string(&config).unwrap().replace("/state\"", "/other\"");
    let line = format!("[server]\nconf_dir = \"{}\"\n", shared.display());
    fs::write(&config, text.replacen("[server]\n", &line, 1)).unwrap();
    let said = refusal(&config);
    for part in [
        format!("{} is in use by another zgate, process {pid};", shared.display()),
        "server.conf_dir".to_owned(),
    ] {
        assert!(said.contains(&part), "{part:?} is missing in {said}");
    }
}

#[test]
fn whether_every_core_answers_can_be_asked() {
    let mut gateway = Gateway::start(LEASE_SECONDS);
    let alive = gateway.command(&["status", "--alive"]);
    assert!(alive.status.success() && alive.stdout.is_empty(), "{alive:?}");
    assert_eq!(gateway.status()["silent_cores"], serde_json::json!([]));
    gateway.kill();
    let gone = gateway.command(&["status", "--alive"]);
    assert!(!gone.status.success());
}
