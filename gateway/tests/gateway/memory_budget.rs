//! `server.memory_max`: hosts that take all they can get, while the process stays
//! within its budget and others are served.

use crate::absent::eventually;
use crate::admission::{MIB, begun_write, connect, wait_until, with_server_keys};
use std::io::Write;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use zgate_test_harness::{Client, Gateway};

const BUDGET_BYTES: usize = 192 * MIB;
/// Part of it for requests and replies.
const BUFFER_BYTES: usize = 64 * MIB;
/// Memory that an attack takes at least.
const ATTACK_BYTES: usize = BUDGET_BYTES / 4;
/// Hosts that attack, and connections of each.
const HOSTS: u8 = 24;
const CONNECTIONS: usize = 6;
/// Bytes of the data of each request that is never ended.
const SENT_BYTES: usize = 4 * MIB - 4096;

/// Memory of a process that the kernel cannot take back.
fn own_bytes(pid: u64) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let digits: String = line.unwrap_or_default().chars().filter(char::is_ascii_digit).collect();
    digits.parse::<usize>().unwrap_or(0) << 10
}

fn memory(gateway: &Gateway) -> serde_json::Value {
    gateway.status()["memory"].clone()
}

/// All connections begin a WRITE of 4 MiB and send all but the end of its data, in
/// pieces, so that no one is ahead.
fn attack(gateway: &Gateway, stop: &AtomicBool) {
    let mut streams: Vec<_> = (0..HOSTS)
        .flat_map(|host| [Ipv4Addr::new(127, 0, 3, host + 1); CONNECTIONS])
        .map(|host| connect(host, gateway))
        .collect();
    for stream in &mut streams {
        stream.set_write_timeout(Some(Duration::from_millis(5))).unwrap();
        let _ = stream.write_all(&begun_write());
    }
    let piece = vec![3; 64 << 10];
    let mut left = vec![SENT_BYTES; streams.len()];
    while !stop.load(Ordering::Relaxed) {
        for (stream, left) in streams.iter_mut().zip(&mut left) {
            // What the gateway does not read stays in the socket.
            let sent = stream.write(&piece[..piece.len().min(*left)]).unwrap_or(0);
            *left -= sent;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn under_attack_a_gateway_stays_within_its_memory_and_serves_others() {
    let more = "[[export]]\npath = \"{dir}/export\"\npseudo = \"/more\"\n\
                clients = [{ match = \"127.0.3.0/24\", access = \"rw\" }]\n";
    let gateway = Gateway::start_with(90, more);
    let gateway = with_server_keys(gateway, "memory_max = \"192MiB\"\n");
    let before = memory(&gateway);
    assert_eq!(before["budget_bytes"], BUDGET_BYTES);
    assert_eq!((&before["source"], &before["level"]), (&"configured".into(), &"plenty".into()));
    let pid = gateway.status()["pid"].as_u64().unwrap();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    // Kernels without such pages say nothing.
    assert!(!status.contains("THP_enabled:\t1"), "one touched page would take 2 MiB");
    let (stop, most) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut client = Client::ready(&gateway, "named");
    let root = client.root.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| attack(&gateway, &stop));
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                most.fetch_max(own_bytes(pid), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            // Two thirds of what requests have, in buffers of 4 MiB, and filled.
            wait_until("memory", || {
                gateway.buffers_in_use() >= 40 * MIB && own_bytes(pid) > ATTACK_BYTES
            });
            for number in 0..20 {
                let file = client.create(&root, &format!("file{number}")).unwrap();
                client.write(&file, 0, 2, &vec![7; MIB]).unwrap();
                client.close(&file).unwrap();
                let buffers = gateway.buffers_in_use();
                assert!(buffers <= BUFFER_BYTES, "{} MiB of buffers", buffers / MIB);
            }
        }));
        std::thread::sleep(Duration::from_millis(500));
        stop.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    let most = most.load(Ordering::Relaxed);
    // The attack asks for far more than there is.
    assert!(usize::from(HOSTS) * CONNECTIONS * SENT_BYTES > 2 * BUDGET_BYTES);
    assert!(most > ATTACK_BYTES, "{} MiB: there was no attack", most / MIB);
    assert!(most < BUDGET_BYTES, "{} MiB of {}", most / MIB, BUDGET_BYTES / MIB);
    wait_until("the memory is free again", || memory(&gateway)["level"] == "plenty");
    // What is left of the attack ends a moment later.
    let mut late = eventually("a new client", || {
        let mut client = Client::connect(&gateway, "late").ok()?;
        client.session.reclaim_complete(&mut client.connection).ok()?;
        Some(client)
    });
    eventually("it is served", || {
        let root = late.root.clone();
        late.create(&root, "late").ok()
    });
}

#[test]
fn with_little_memory_the_other_limits_are_lower() {
    let gateway = with_server_keys(Gateway::start(90), "memory_max = \"128MiB\"\n");
    let status = gateway.status();
    assert_eq!(status["descriptors"]["connections"], 102, "an eighth of the rest, 80 KiB each");
    let mut client = Client::ready(&gateway, "one");
    let root = client.root.clone();
    let file = client.create(&root, "file").unwrap();
    client.write(&file, 0, 2, &vec![7; MIB]).unwrap();
}
