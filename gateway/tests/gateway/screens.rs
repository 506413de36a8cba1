//! Screens for people and answers for scripts of a running gateway: `status`,
//! `top`, `reload`, `release`, and metrics of single clients.

use crate::web_page::address;
use bytes::Bytes;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use zgate_test_harness::{Client, Gateway, free_port};
use zgate_test_initiator::{LoginScript, Lun, Session, read16};

const TARGET: &str = "iqn.2026-11.test.zgate:screens";
const HOST: &str = "iqn.2026-11.test.zgate:host";
const BLOCK: u32 = 4096;
/// The longest `status` may take to have rates.
const RATES_TIMEOUT: Duration = Duration::from_secs(20);

/// Starts a gateway with one export and one LUN; returns it and its portal.
fn start() -> (Gateway, SocketAddr) {
    let port = free_port();
    let more = format!(
        "[iscsi]\nlisten = [\"127.0.0.1:{port}\"]\n\
         [[target]]\nname = \"{TARGET}\"\nallow_any_initiator = true\n\
         [[target.lun]]\nnumber = 3\npath = \"{{dir}}/three.img\"\nsize = \"8MiB\"\n"
    );
    (Gateway::start_with(60, &more), SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}

/// Runs a command that must succeed; returns its output.
fn shown(gateway: &Gateway, args: &[&str]) -> String {
    let output = gateway.command(args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(gateway: &Gateway, args: &[&str]) -> Value {
    serde_json::from_str(&shown(gateway, args)).unwrap()
}

/// Reads from the export and from the LUN until it is told to stop.
fn read_until(stop: &AtomicBool, gateway: &Gateway, portal: SocketAddr) {
    let mut client = Client::ready(gateway, "reader");
    let root = client.root.clone();
    let file = client.create(&root, "file").unwrap();
    client.write(&file, 0, 2, &[7; BLOCK as usize]).unwrap();
    let mut disk = Session::login(portal, &LoginScript::normal(HOST, TARGET)).unwrap();
    while !stop.load(Ordering::Relaxed) {
        client.read(&file.fh, file.stateid, 0, BLOCK).unwrap();
        disk.run(Lun(0x0003_0000_0000_0000), &read16(0, 8), BLOCK, &Bytes::new()).unwrap();
    }
}

#[test]
fn status_is_one_screen_for_people_and_the_same_for_programs() {
    let (gateway, portal) = start();
    let _client = Client::ready(&gateway, "gpu05");
    let _disk = Session::login(portal, &LoginScript::normal(HOST, TARGET)).unwrap();
    // The rates are there after the first second.
    let until = Instant::now() + RATES_TIMEOUT;
    let mut screen = shown(&gateway, &["status"]);
    while !screen.contains("requests/s") && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(100));
        screen = shown(&gateway, &["status"]);
    }
    for part in [
        " is healthy, up ",
        "1 export, 1 client, 1 LUN, 1 initiator session, ",
        "requests/s, read ",
        "/export  ",
        "127.0.0.1 rw  tcp ",
        "gpu05",
        "three.img",
        "8.00 MiB",
        HOST,
    ] {
        assert!(screen.contains(part), "{part:?} is missing in\n{screen}");
    }
    assert!(!screen.to_lowercase().contains("rdma"), "there is none:\n{screen}");
    assert!(!screen.contains('\u{1b}'), "no colours without a terminal:\n{screen}");
    assert!(screen.lines().count() < 24, "{screen}");
    let status = json(&gateway, &["status", "--json"]);
    assert_eq!(status["health"]["verdict"], "healthy");
    assert_eq!(status["exports"][0]["transports"], serde_json::json!(["tcp", "rdma"]));
    assert_eq!(status["targets"][0]["luns"][0]["number"], 3);
    assert_eq!(status["sessions"][0]["initiator"], HOST);
    for field in ["uptime_seconds", "connections", "buffers_in_use_bytes", "grace_seconds_left"] {
        assert!(status[field].is_u64(), "{field}");
    }
}

#[test]
fn lists_are_tables_for_people_and_stay_the_same_for_programs() {
    let (gateway, portal) = start();
    for (command, none) in [("clients", "no NFSv4 clients"), ("sessions", "no initiators are")] {
        assert!(shown(&gateway, &[command]).starts_with(none), "{command}");
    }
    let mut client = Client::ready(&gateway, "gpu05");
    let root = client.root.clone();
    client.create(&root, "file").unwrap();
    let _disk = Session::login(portal, &LoginScript::normal(HOST, TARGET)).unwrap();
    let lists: [(&str, &[&str], &str); 4] = [
        ("exports", &["EXPORT ", "HOSTS ", "/export  ", "127.0.0.1  rw"], "pseudo_path"),
        ("clients", &["CLIENT ", "DELEGATIONS", "127.0.0.1  ", "gpu05", "active"], "courtesy"),
        ("targets", &["TARGET ", "SERIAL", "WRITTEN", "three.img", "8.00 MiB"], "luns"),
        ("sessions", &["INITIATOR ", HOST, TARGET, "127.0.0.1:", "(core "], "connections"),
    ];
    for (command, parts, field) in lists {
        let text = shown(&gateway, &[command]);
        for part in parts {
            assert!(text.contains(part), "{part:?} is missing in\n{text}");
        }
        assert!(!text.contains("_bytes") && !text.contains("expired"), "{text}");
        let rows = json(&gateway, &[command, "--json"]);
        assert!(!rows[0][field].is_null(), "{command}: {field}");
    }
}

#[test]
fn an_rdma_address_without_a_device_is_a_problem() {
    let port = free_port();
    let more = format!("[rdma]\nlisten = [\"198.51.100.7:{port}\"]\n");
    let gateway = Gateway::start_with(60, &more);
    let status = json(&gateway, &["status", "--json"]);
    assert_eq!(status["health"]["verdict"], "failing", "{status}");
    let screen = shown(&gateway, &["status"]);
    assert!(screen.contains(" is failing") && screen.contains("\nfailing  RDMA"), "{screen}");
}

#[test]
fn top_shows_who_reads_and_how_much() {
    let (gateway, portal) = start();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| read_until(&stop, &gateway, portal));
        let deadline = Instant::now() + Duration::from_secs(60);
        let busy = |row: &Value| row["requests_per_second"].as_f64().is_some_and(|rate| rate > 0.0);
        let top = loop {
            let top = json(&gateway, &["top", "--once", "--json"]);
            let tables = ["clients", "exports", "initiators", "luns"];
            if tables.iter().all(|table| busy(&top[table][0])) || Instant::now() > deadline {
                break top;
            }
        };
        let screen = shown(&gateway, &["top", "--once", "--show", "clients"]);
        stop.store(true, Ordering::Relaxed);
        for (table, key, name) in [
            ("clients", "address", "127.0.0.1"),
            ("exports", "pseudo_path", "/export"),
            ("initiators", "initiator", HOST),
            ("luns", "target", TARGET),
        ] {
            let row = &top[table][0];
            assert_eq!(row[key], name, "{top}");
            assert!(busy(row), "{table}: {top}");
            let of = |key: &str| row[key].as_f64().unwrap();
            let read = of("read_bytes_per_second");
            // Each request reads one block, except those that open the file.
            assert!(read > 0.0 && read <= of("requests_per_second") * f64::from(BLOCK) * 1.01);
            assert!(of("mean_seconds") > 0.0 && of("queue") > 0.0, "{table}: {top}");
            assert!((0.9..30.0).contains(&top["interval_seconds"].as_f64().unwrap()));
        }
        assert_eq!(top["clients"][0]["name"], "reader");
        let throughput = &top["throughput"]["read"];
        assert!(throughput["percentile_99_seconds"].as_f64().unwrap() > 0.0, "{top}");
        assert!(screen.contains("CLIENT") && screen.contains("127.0.0.1"), "{screen}");
        assert!(!screen.contains("EXPORT"), "{screen}");
    });
    // A client that has left is not shown any more.
    let deadline = Instant::now() + Duration::from_secs(30);
    while json(&gateway, &["top", "--once", "--json"])["clients"] != serde_json::json!([]) {
        assert!(Instant::now() < deadline, "the client is still there");
    }
}

#[test]
fn a_reload_says_what_has_changed() {
    let (gateway, _) = start();
    let config = gateway.dir.path().join("zgate.toml");
    let text = fs::read_to_string(&config).unwrap();
    assert!(shown(&gateway, &["reload"]).contains("no entry has changed"));
    fs::create_dir(gateway.dir.path().join("second")).unwrap();
    let dir = gateway.dir.path().display();
    let second = format!(
        "[[export]]\npath = \"{dir}/second\"\npseudo = \"/second\"\n\
         clients = [{{ match = \"127.0.0.1\" }}]\n"
    );
    let lun = format!("[[target.lun]]\nnumber = 4\npath = \"{dir}/four.img\"\nsize = \"8MiB\"\n");
    let other = text.replace("access = \"rw\"", "access = \"ro\"");
    fs::write(&config, format!("{other}{lun}{second}")).unwrap();
    let expected = format!(
        "added    LUN 4 of target {TARGET} ({dir}/four.img)\n\
         added    export /second ({dir}/second)\n\
         changed  rule 127.0.0.1 of export /export: access rw -> ro\n\
         added    rule 127.0.0.1 of export /second (ro)\n\
         4 changes\n"
    );
    assert_eq!(shown(&gateway, &["reload"]), expected);
    fs::write(&config, text.replace("lease_seconds = 60", "lease_seconds = 61")).unwrap();
    let answer = json(&gateway, &["reload", "--json"]);
    let events = answer["entries"].as_array().unwrap().iter();
    let removed = events.filter(|entry| entry["event"] == "removed").count();
    assert_eq!(removed, 3, "{answer}");
    let changes = answer["changes"].as_array().unwrap();
    let lease = changes.iter().find(|one| one["key"] == "server.lease_seconds").unwrap();
    assert_eq!((&lease["new"], &lease["effect"]), (&"61".into(), &"restart".into()));
    assert!(shown(&gateway, &["reload"]).contains("server: lease_seconds 60 -> 61; takes effect"));
}

#[test]
fn there_is_nothing_to_release_where_no_dataset_is() {
    let gateway = Gateway::start(60);
    for args in [&["release", "nosuch/data"][..], &["release", "nosuch/data", "--json"]] {
        let output = gateway.command(args);
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).unwrap();
        // "there is no" where ZFS is installed, "cannot tell whether there is a" elsewhere.
        assert!(said.contains("dataset nosuch/data to release: "), "{said}");
        let printed = String::from_utf8(output.stdout).unwrap();
        assert_eq!(printed.contains("\"error\""), args.contains(&"--json"), "{printed}");
    }
}

/// Returns the metrics of a gateway.
pub(crate) fn metrics(gateway: &Gateway) -> String {
    let mut stream = TcpStream::connect(address(gateway)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page
}

#[test]
fn metrics_name_clients_only_where_asked() {
    let mut gateway = Gateway::start(60);
    let client = Client::ready(&gateway, "counted");
    assert!(!metrics(&gateway).contains("client="));
    drop(client);
    gateway.kill();
    let config = gateway.dir.path().join("zgate.toml");
    let text = fs::read_to_string(&config).unwrap();
    let text = text.replace("lease_seconds = 60", "lease_seconds = 60\nmetrics_clients = 5");
    fs::write(&config, text).unwrap();
    gateway.restart();
    let _client = Client::connect(&gateway, "counted").unwrap();
    let page = metrics(&gateway);
    assert!(page.contains("zgate_client_requests_total{client=\"127.0.0.1\"} "), "{page}");
    assert!(page.contains("{client=\"127.0.0.1\",direction=\"write\"} 0"), "{page}");
}
