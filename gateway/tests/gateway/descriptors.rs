//! One host uses all descriptors it can get; another one can still connect,
//! open and read.

use std::net::{IpAddr, Ipv4Addr};
use zgate_test_harness::{Client, Gateway, stream_from};

const LIMIT: u64 = 1024;
const GREEDY: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A client on this host, at the root of the export that is open to both.
fn client(gateway: &Gateway, host: IpAddr, name: &str) -> Client {
    let mut client = Client::connect_from(gateway, host, name, "shared").unwrap();
    client.session.reclaim_complete(&mut client.connection).unwrap();
    client
}

#[test]
fn one_host_leaves_descriptors_for_another() {
    let more = "[[export]]\npath = \"{dir}/shared\"\npseudo = \"/shared\"\n\
                clients = [{ match = \"127.0.0.0/8\", access = \"rw\", squash = \"none\" }]\n";
    let gateway = Gateway::start_limited(90, more, Some(LIMIT), |dir| {
        std::fs::create_dir(dir.join("shared")).unwrap();
        std::fs::write(dir.join("shared/file"), b"content").unwrap();
    });
    // Files first, then connections, until neither is granted.
    let mut greedy = client(&gateway, GREEDY, "greedy");
    let root = greedy.root.clone();
    let mut files = 0;
    while files < LIMIT && greedy.create(&root, &format!("f{files}")).is_ok() {
        files += 1;
    }
    assert!(files > 20, "{files} files open");
    let idle: Vec<_> = (0..400).map_while(|_| stream_from(GREEDY, gateway.address).ok()).collect();
    assert_eq!(idle.len(), 400, "whether they stay open is the gateway's choice");
    let mut other = client(&gateway, OTHER, "other");
    let root = other.root.clone();
    let opened = other.open_existing(&root, "file").unwrap();
    assert_eq!(other.read(&opened.fh, opened.stateid, 0, 100).unwrap().1, b"content");
    for n in 0..10 {
        other.create(&root, &format!("mine{n}")).unwrap();
    }
    let status = gateway.status();
    let of = |key: &str| status["descriptors"][key].as_u64().unwrap();
    assert_eq!(of("limit"), LIMIT);
    assert!(of("reserved") + of("connections") + of("stores") <= LIMIT, "{status}");
    assert!(of("stores_in_use") <= of("stores"), "{status}");
    assert_eq!(of("open_files_in_use"), files + 11);
    let held = gateway.descriptors();
    assert!(held < LIMIT as usize, "{held} descriptors");
}
