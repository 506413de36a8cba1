//! No host can exhaust a resource, and the removal of a client with much state
//! does not stall others.

use std::rc::Rc;
use zgate_nfs::limits::{MAX_BLOCKED_LOCKS, MAX_STATES_PER_SLICE};
use zgate_nfs_wire::v4::callback::CallbackOp;
use zgate_nfs_wire::v4::op::Lock;
use zgate_nfs_wire::v4::op::lock;
use zgate_nfs_wire::v4::op::open::{Claim, How};
use zgate_nfs_wire::v4::{LockType, Status};
use zgate_test_harness::nfs::{Client, GRACE, Harness, LEASE, OpenRequest, Ops, mode};

fn at(harness: &Rc<Harness>, name: &str, minor: u8, host: u8) -> Client {
    let client = harness.stranger(name, minor);
    client.address.set([192, 0, 2, host].into());
    client
}

fn ready_at(harness: &Rc<Harness>, name: &str, minor: u8, host: u8) -> Client {
    let client = at(harness, name, minor, host);
    client.introduce(false);
    client
}

fn introduce(client: &Client) -> Result<(), Status> {
    if client.minor == 0 {
        client.set_clientid(false).map(|_| ())
    } else {
        client.exchange_id().map(|_| ())
    }
}

/// Records of unconfirmed clients: as many as one host can create, then one of
/// another host.
#[test]
fn one_host_does_not_take_all_client_records() {
    for (minor, refusal) in [(0, Status::Resource), (1, Status::Delay)] {
        let harness = Harness::new();
        let mut made = 0;
        let refused = loop {
            match introduce(&at(&harness, &format!("greedy{made}"), minor, 1)) {
                Ok(()) => made += 1,
                Err(status) => break status,
            }
        };
        assert_eq!(refused, refusal);
        ready_at(&harness, "another", minor, 2);
        // Unconfirmed records are removed after a lease.
        harness.pass_seconds(LEASE + 2);
        assert_eq!(introduce(&at(&harness, "greedy again", minor, 1)), Ok(()), "of {made}");
    }
}

/// Files that one host has open; the server has descriptors for a hundred.
#[test]
fn one_host_does_not_take_all_open_files() {
    for (minor, refusal) in [(0, Status::Resource), (1, Status::Delay), (2, Status::Delay)] {
        let harness = Harness::new();
        harness.restart_with_open_files(100);
        let (greedy, other) =
            (ready_at(&harness, "greedy", minor, 1), ready_at(&harness, "other", minor, 2));
        let root = greedy.export();
        let make = |client: &Client, name: &str| {
            let how =
                zgate_nfs_wire::v4::op::open::How::Unchecked(zgate_test_harness::nfs::mode(0o644));
            client.open(&OpenRequest::name(&root, name).how(how))
        };
        let mut held = Vec::new();
        let refused = loop {
            match make(&greedy, &format!("f{}", held.len())) {
                Ok(opened) => held.push(opened),
                Err(status) => break status,
            }
        };
        assert_eq!((held.len(), refused), (75, refusal), "three quarters");
        let refused = format!("f{}", held.len());
        assert_eq!(other.lookup(&root, &refused), Err(Status::Noent), "nothing was made");
        // A second client of the same host gets no more.
        let again = ready_at(&harness, "greedy too", minor, 1);
        assert_eq!(make(&again, "g").unwrap_err(), refusal);
        // A file that is already open needs no further descriptors.
        again.open(&OpenRequest::name(&root, "f0")).unwrap();
        let mine = make(&other, "h").unwrap();
        make(&other, "i").unwrap();
        // CLOSE makes room, for the last client that has the file open.
        other.close(&mine).unwrap();
        assert_eq!(make(&again, "j").unwrap_err(), refusal);
        for opened in &held[..8] {
            greedy.close(opened).unwrap();
        }
        assert!(make(&again, "j").is_ok());
    }
}

/// Two hosts fill most of a table for a hundred files: the first one three quarters,
/// which is more than it would get if it came second.
#[test]
fn a_reclaim_does_not_depend_on_who_came_back_first() {
    for minor in 0..=2 {
        let harness = Harness::new();
        harness.restart_with_open_files(100);
        let make = |client: &Client, text: &str| {
            let how = How::Unchecked(mode(0o644));
            client.open(&OpenRequest::name(&client.export(), text).how(how))
        };
        let clients = [1, 2].map(|host| ready_at(&harness, &format!("c{host}"), minor, host));
        let held = clients.each_ref().map(|client| {
            let texts = (0..100).map(|n| format!("{}-{n}", client.address.get()));
            texts.map_while(|text| make(client, &text).ok()).collect::<Vec<_>>()
        });
        assert!(held[0].len() == 75 && held[1].len() > 10);
        harness.restart();
        for (client, opens) in clients.iter().zip(&held).rev() {
            client.reconnect();
            client.introduce_for_reclaim(false);
            for opened in opens {
                let wish = OpenRequest::name(&opened.fh, "").claim(Claim::Previous(0));
                let back = client.open(&wish).unwrap();
                let args = client.lock_args(&back, "l", LockType::Write, (0, 4));
                let args = lock::Args { reclaim: true, ..args };
                client.run(Ops::new().at(&back.fh).op::<Lock>(&args)).ok();
                client.advance("owner", Status::Ok);
                client.advance("l", Status::Ok);
            }
            if minor > 0 {
                client.reclaim_complete().unwrap();
            }
        }
        let all = held[0].len() + held[1].len();
        assert_eq!(harness.server().totals(0).opens, all, "minor version {minor}");
        for _ in 0..GRACE + 15 {
            harness.pass_seconds(1);
            clients.iter().for_each(|client| drop(client.open(&wish_for(client, "none"))));
        }
        // What is new is counted against the share again.
        let refused = make(&clients[0], "new").unwrap_err();
        assert_eq!(refused, if minor == 0 { Status::Resource } else { Status::Delay });
    }
}

fn wish_for(client: &Client, text: &str) -> OpenRequest {
    OpenRequest::name(&client.export(), text)
}

/// A client that opens and closes many files; the server has descriptors for a
/// hundred.
#[test]
fn idle_delegations_are_not_in_the_way_of_opens() {
    for minor in 0..=2 {
        let harness = Harness::new();
        harness.restart_with_open_files(100);
        let client = harness.reachable("client", minor);
        for number in 0..200 {
            client.close(&client.create(&format!("f{number}"))).unwrap();
        }
        let held = harness.server().totals(0).delegations;
        assert!((20..=50).contains(&held), "{held} delegations, minor version {minor}");
    }
}

/// Two hosts: the second takes what the delegations of the first have left.
#[test]
fn a_client_without_room_is_asked_for_idle_delegations() {
    for (minor, creates) in [(0, true), (0, false), (1, true), (1, false), (2, true), (2, false)] {
        let harness = Harness::new();
        harness.restart_with_open_files(100);
        let holder = harness.reachable("holder", minor);
        for number in 0..60 {
            holder.close(&holder.create(&format!("f{number}"))).unwrap();
        }
        let delegated = || harness.server().totals(0).delegations;
        let before = delegated();
        let other = ready_at(&harness, "other", minor, 2);
        let others = |n: usize| {
            let how = How::Unchecked(mode(0o644));
            other.open(&OpenRequest::name(&other.export(), &format!("g{n}")).how(how))
        };
        assert!((0..60).any(|n| others(n).is_err()));
        // Files from the last one on: the first are delegated.
        let how = if creates { How::Unchecked(mode(0o644)) } else { How::NoCreate };
        let open = |n: usize| {
            holder.open(&OpenRequest::name(&holder.export(), &format!("f{n}")).how(how.clone()))
        };
        let refused = (0..60).rev().find_map(|n| open(n).err().map(|status| (n, status)));
        let (number, status) = refused.unwrap();
        assert_eq!(status, Status::Delay, "minor version {minor}");
        assert!(number > before, "{number} is not delegated");
        harness.simulation.settle();
        let recalls = holder.callbacks();
        assert!((1..before).contains(&recalls.len()), "{} of {before}", recalls.len());
        for recall in recalls {
            let CallbackOp::Recall { stateid, fh, .. } = recall else { panic!("no recall") };
            holder.delegreturn(&fh, stateid).unwrap();
        }
        open(number).unwrap();
    }
}

/// Two hosts take what they can get of descriptors for a hundred files, and fall
/// silent.
#[test]
fn courtesy_ends_when_others_need_the_room() {
    for minor in 0..=2 {
        let harness = Harness::new();
        harness.restart_with_open_files(100);
        let make = |client: &Client, text: &str| {
            let how = How::Unchecked(mode(0o644));
            client.open(&OpenRequest::name(&client.export(), text).how(how))
        };
        for host in [1, 2] {
            let silent = ready_at(&harness, &format!("silent{host}"), minor, host);
            assert!((0..100).any(|n| make(&silent, &format!("s{host}-{n}")).is_err()));
            // The first is silent for longer.
            harness.pass_seconds(1);
        }
        let full = harness.server().totals(0).opens;
        assert!(full > 90, "{full}");
        harness.pass_seconds(LEASE + 1);
        assert_eq!(harness.server().totals(0).opens, full, "courtesy");
        let third = ready_at(&harness, "third", minor, 3);
        for number in 0..60 {
            let text = format!("t{number}");
            let mut tries = (0..3).map(|_| {
                let result = make(&third, &text).map(|_| ());
                if result == Err(Status::Delay) {
                    harness.pass_seconds(1);
                }
                result
            });
            assert!(tries.any(|result| result.is_ok()), "{text}, minor version {minor}");
        }
        let left = harness.server().totals(0).opens;
        assert!(left > 60 && left < full, "one of both was enough: {left}");
    }
}

/// Two hosts create all sessions that they can, with small channels: the table is
/// used up, not the memory for replies. Their clients have a file open, and fall
/// silent.
#[test]
fn courtesy_ends_when_others_need_sessions() {
    for minor in 1..=2 {
        let harness = Harness::new();
        harness.restart_with_least_memory();
        let session_of = |client: &Client, sequence: u32| {
            let mut args = client.session_args(sequence, false);
            args.fore.max_cached_bytes = 0;
            client.create_session_with(&args)
        };
        for host in [1, 2] {
            // The first host is silent for longer.
            harness.pass_seconds(1);
            let refused = (0..100).find_map(|number| {
                let client = at(&harness, &format!("silent{host}-{number}"), minor, host);
                let mut sequence = client.exchange_id().unwrap().sequenceid;
                if let Err(status) = session_of(&client, sequence) {
                    return Some(status);
                }
                client.reclaim_complete().unwrap();
                client.create(&format!("f{host}-{number}"));
                (1..8).find_map(|_| {
                    sequence += 1;
                    session_of(&client, sequence).err()
                })
            });
            assert_eq!(refused, Some(Status::Nospc), "nobody's lease has expired");
        }
        let full = harness.server().totals(0).sessions;
        harness.pass_seconds(LEASE + 1);
        assert_eq!(harness.server().totals(0).sessions, full, "courtesy");
        let third = at(&harness, "third", minor, 3);
        let first = third.exchange_id().unwrap().sequenceid;
        for sequence in first..first + 60 {
            let mut tries = (0..3).map(|_| {
                let result = session_of(&third, sequence).map(drop);
                if result == Err(Status::Delay) {
                    harness.pass_seconds(1);
                }
                result
            });
            assert!(tries.any(|result| result.is_ok()), "{sequence}, minor version {minor}");
        }
        let left = harness.server().totals(0).sessions;
        assert!(left > 120 && left < full, "some had to go: {left} of {full}");
    }
}

/// Clients that have promised replies and fall silent: a session of another one is
/// not small because of them.
#[test]
fn courtesy_ends_when_others_need_memory_for_replies() {
    for minor in 1..=2 {
        let harness = Harness::new();
        harness.restart_with_least_memory();
        let slots_of = |client: &Client| {
            let made = client.exchange_id().unwrap();
            let mut args = client.session_args(made.sequenceid, false);
            args.fore.slots = 128;
            client.create_session_with(&args).unwrap().fore.slots
        };
        for host in [1, 2, 3, 4] {
            for number in 0..4 {
                slots_of(&at(&harness, &format!("silent{host}-{number}"), minor, host));
            }
        }
        assert!(slots_of(&at(&harness, "early", minor, 5)) < 128, "nobody's lease has expired");
        harness.pass_seconds(LEASE + 1);
        assert_eq!(slots_of(&at(&harness, "late", minor, 6)), 128, "minor version {minor}");
    }
}

/// Blocked locks that the server remembers in order to tell their clients.
#[test]
fn one_host_does_not_take_all_blocked_locks() {
    const PER_FILE: u64 = 256;
    let harness = Harness::new();
    let (holder, greedy) = (ready_at(&harness, "holder", 1, 1), ready_at(&harness, "greedy", 1, 2));
    let root = holder.export();
    let recorded = || harness.server().totals(0).blocked_locks;
    let block = |waiter: &Client, text: &str, times: u64| {
        let theirs = waiter.open(&OpenRequest::name(&root, text)).unwrap();
        for length in 1..=times {
            let refused = waiter.lock(&theirs, "waiter", LockType::WriteWait, (0, length));
            assert_eq!(refused.unwrap_err(), Status::Denied);
        }
    };
    for number in 0..MAX_BLOCKED_LOCKS as u64 / PER_FILE {
        let text = format!("f{number}");
        let opened = holder.create(&text);
        holder.lock(&opened, "holder", LockType::Write, (0, 1)).unwrap();
        block(&greedy, &text, PER_FILE);
    }
    let full = recorded();
    assert_eq!(full, MAX_BLOCKED_LOCKS / 4 * 3, "three quarters");
    // The same locks, asked for again, are the same.
    block(&greedy, "f0", PER_FILE);
    assert_eq!(recorded(), full);
    let opened = holder.create("g");
    holder.lock(&opened, "holder", LockType::Write, (0, 1)).unwrap();
    block(&ready_at(&harness, "other", 1, 3), "g", 1);
    assert_eq!(recorded(), full + 1, "another host finds room");
    harness.pass_seconds(121);
    assert_eq!(recorded(), 0, "nobody asks any more");
}

fn owner(number: usize) -> &'static str {
    Box::leak(format!("owner{number}").into_boxed_str())
}

/// A removed client with more opens than are removed at once: its stateids are
/// invalid immediately, a conflicting request waits shortly for the rest.
#[test]
fn what_a_client_leaves_behind_goes_in_slices() {
    const OPENS: usize = MAX_STATES_PER_SLICE * 3;
    for minor in [0, 1] {
        let harness = Harness::new();
        let (gone, here) = (harness.client("gone", minor), harness.client("here", minor));
        let root = gone.export();
        let opens: Vec<_> = (0..OPENS)
            .map(|n| {
                if n == 0 {
                    gone.create("f");
                }
                gone.open(&OpenRequest::name(&root, "f").access(1).owner(owner(n))).unwrap()
            })
            .collect();
        gone.lock(&opens[7], "locker", LockType::Read, (0, 5)).unwrap();
        harness.pass_seconds(LEASE + 1);
        let here = if minor == 0 { harness.client("here", 0) } else { here };
        if minor > 0 {
            here.reboot();
            here.introduce(false);
        }
        let held = || {
            let now = harness.simulation.clock().seconds();
            let totals = harness.server().totals(now);
            totals.opens
        };
        assert!(held() > OPENS, "courtesy");
        let wish = OpenRequest::name(&root, "f").access(1).deny(1);
        assert_eq!(here.open(&wish).unwrap_err(), Status::Delay, "a slice is gone");
        for opened in [&opens[0], &opens[7], &opens[OPENS - 1]] {
            let dead = gone.read(&opened.fh, opened.stateid, 0, 1).unwrap_err();
            assert_eq!(dead, if minor == 0 { Status::Expired } else { Status::Badsession });
        }
        let mut asked = 1;
        while here.open(&wish).is_err_and(|status| status == Status::Delay) {
            asked += 1;
        }
        // An open and its owner are two steps.
        assert!((3..=7).contains(&asked), "{asked} slices");
    }
}

/// The same without a conflicting request: the ticks remove the state.
#[test]
fn ticks_finish_what_a_client_left_behind() {
    const OPENS: usize = MAX_STATES_PER_SLICE * 2 + 5;
    let harness = Harness::new();
    let gone = harness.client("gone", 1);
    let root = gone.export();
    gone.create("f");
    for n in 0..OPENS {
        gone.open(&OpenRequest::name(&root, "f").access(1).owner(owner(n))).unwrap();
    }
    gone.reboot();
    gone.introduce(false);
    let other = harness.client("other", 1);
    let wish = OpenRequest::name(&root, "f").access(1).deny(1);
    harness.pass_seconds(1);
    assert!(other.open(&wish).is_ok(), "all are gone");
}
