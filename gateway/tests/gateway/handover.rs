//! A handover keeps clients waiting: no connection ends, no request is lost or
//! answered with an error, and nothing of theirs expires.

use crate::crash::lock;
use serde_json::Value;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use zgate_nfs_wire::v4::op::open;
use zgate_test_harness::{Client, Gateway, handles_survive_restarts};

/// Shorter than the hold: leases must not expire meanwhile.
const LEASE_SECONDS: u32 = 5;
/// Time in which a gateway that serves would have answered.
const SOON: Duration = Duration::from_millis(500);
/// Clients that write at once.
const WRITERS: usize = 8;
/// Longer than the kernel takes to send something again.
const AGAIN: Duration = Duration::from_secs(60);

fn hand_over(gateway: &Gateway, args: &[&str]) -> Value {
    let output = gateway.command(&[&["handover", "--json"], args].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn clients_wait_and_go_on_where_they_were() {
    let gateway = Gateway::start(LEASE_SECONDS);
    let mut owner = Client::ready(&gateway, "owner");
    let root = owner.root.clone();
    let file = owner.create(&root, "file").unwrap();
    lock(&mut owner, &file, false, 100).unwrap();
    let mut other = Client::ready(&gateway, "other");
    let others = other.open_existing(&root, "file").unwrap();

    let held = hand_over(&gateway, &["--seconds", "300"]);
    assert_eq!(held["held"], true, "{held}");
    assert_eq!((&held["unfinished"], &held["undelivered"]), (&0.into(), &0.into()), "{held}");
    assert!(gateway.command(&["status", "--alive"]).status.success(), "it is no failure");
    let report = gateway.status();
    assert!(report["handover_seconds_left"].as_u64().is_some_and(|left| left > 200), "{report}");

    let (done, answered) = mpsc::channel();
    let writing = std::thread::spawn(move || {
        let written = owner.write(&file, 0, 2, b"while it was held").map(|_| ());
        done.send(()).unwrap();
        (owner, file, written)
    });
    assert!(answered.recv_timeout(SOON).is_err(), "nothing is answered");
    let address = gateway.address;
    assert!(TcpStream::connect_timeout(&address, SOON).is_err(), "nobody is accepted");
    let connecting = std::thread::spawn(move || TcpStream::connect_timeout(&address, AGAIN));
    // Longer than a lease.
    std::thread::sleep(Duration::from_secs(2 * u64::from(LEASE_SECONDS)));

    let resumed = hand_over(&gateway, &["--cancel"]);
    assert_eq!(resumed["held"], false, "{resumed}");
    answered.recv_timeout(AGAIN).unwrap();
    let (mut owner, file, written) = writing.join().unwrap();
    written.unwrap();
    connecting.join().unwrap().unwrap();
    let (_, data) = owner.read(&file.fh, file.stateid, 0, 64).unwrap();
    assert_eq!(data, b"while it was held");
    // The lock has not become anybody's.
    lock(&mut other, &others, false, 105).unwrap_err();
    assert_eq!(gateway.status()["handover_seconds_left"], Value::Null);
}

#[test]
fn a_handover_sees_the_end_of_requests_that_it_found_running() {
    let gateway = Gateway::start(60);
    let ended = Arc::new(AtomicBool::new(false));
    let (begun, writes) = mpsc::channel();
    // Each has a request under way at nearly every moment.
    let writers: Vec<_> = (0..WRITERS)
        .map(|n| {
            let mut client = Client::ready(&gateway, &format!("writer{n}"));
            let (ended, begun) = (Arc::clone(&ended), begun.clone());
            std::thread::spawn(move || {
                let root = client.root.clone();
                let file = client.create(&root, &format!("file{n}")).unwrap();
                while !ended.load(Ordering::Relaxed) {
                    client.write(&file, 0, 2, b"record").unwrap();
                    begun.send(()).unwrap();
                }
            })
        })
        .collect();
    for _ in 0..16 * WRITERS {
        writes.recv_timeout(AGAIN).unwrap();
    }
    let held = hand_over(&gateway, &["--seconds", "300"]);
    ended.store(true, Ordering::Relaxed);
    hand_over(&gateway, &["--cancel"]);
    for writer in writers {
        writer.join().unwrap();
    }
    assert_eq!((&held["unfinished"], &held["undelivered"]), (&0.into(), &0.into()), "{held}");
}

#[test]
fn a_gateway_that_nobody_stops_serves_again() {
    let gateway = Gateway::start(60);
    let mut client = Client::ready(&gateway, "client");
    let root = client.root.clone();
    assert_eq!(hand_over(&gateway, &["--seconds", "1"])["held"], true);
    client.create(&root, "after").unwrap();
    assert!(gateway.log().contains("nobody has stopped this gateway in time"), "{}", gateway.log());
    let refused = gateway.command(&["handover", "--seconds", "601"]);
    assert!(!refused.status.success());
}

#[test]
fn a_held_gateway_stops_at_once_and_the_next_one_is_the_same_server() {
    if !handles_survive_restarts("a_held_gateway_stops_at_once_and_the_next_one_is_the_same_server")
    {
        return;
    }
    let mut gateway = Gateway::start(60);
    let mut client = Client::ready(&gateway, "client");
    let root = client.root.clone();
    let file = client.create(&root, "file").unwrap();
    client.write(&file, 0, 2, b"acknowledged").unwrap();
    assert_eq!(hand_over(&gateway, &[])["held"], true);
    assert!(gateway.stop(), "in order");
    gateway.restart_elsewhere();
    let mut client = Client::connect(&gateway, "client").unwrap();
    // It is known there, and may reclaim.
    let reclaim = client.open(&file.fh, 3, open::How::NoCreate, open::Claim::Previous(0));
    let file = reclaim.unwrap();
    let (_, data) = client.read(&file.fh, file.stateid, 0, 64).unwrap();
    assert_eq!(data, b"acknowledged");
}
