//! No host takes so much that others find nothing left, and one that leaves much
//! behind keeps nobody waiting for all of it.

use crate::rig::{Client, LEASE, Rig, Wish};
use std::rc::Rc;
use zgate_nfs::limits::MAX_STATES_PER_SLICE;
use zgate_nfs::v4::wire::{LockType, Status};

fn at(rig: &Rc<Rig>, name: &str, minor: u8, host: u8) -> Client {
    let client = rig.stranger(name, minor);
    client.address.set([192, 0, 2, host].into());
    client
}

fn ready_at(rig: &Rc<Rig>, name: &str, minor: u8, host: u8) -> Client {
    let client = at(rig, name, minor, host);
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

/// Records of clients that never confirm: all that one host can make, then one
/// of another host.
#[test]
fn one_host_does_not_take_all_client_records() {
    for (minor, refusal) in [(0, Status::Resource), (1, Status::Delay)] {
        let rig = Rig::new();
        let mut made = 0;
        let refused = loop {
            match introduce(&at(&rig, &format!("greedy{made}"), minor, 1)) {
                Ok(()) => made += 1,
                Err(status) => break status,
            }
        };
        assert_eq!(refused, refusal);
        ready_at(&rig, "another", minor, 2);
        // Records nobody confirms go after a lease.
        rig.pass_seconds(LEASE + 2);
        assert_eq!(introduce(&at(&rig, "greedy again", minor, 1)), Ok(()), "of {made}");
    }
}

/// Files that one host has open; the server has descriptors for a hundred.
#[test]
fn one_host_does_not_take_all_open_files() {
    for (minor, refusal) in [(0, Status::Resource), (1, Status::Delay), (2, Status::Delay)] {
        let rig = Rig::new();
        rig.restart_with_open_files(100);
        let (greedy, other) =
            (ready_at(&rig, "greedy", minor, 1), ready_at(&rig, "other", minor, 2));
        let root = greedy.export();
        let make = |client: &Client, name: &str| {
            let how = zgate_nfs::v4::op::open::How::Unchecked(crate::rig::mode(0o644));
            client.open(&Wish::name(&root, name).how(how))
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
        let again = ready_at(&rig, "greedy too", minor, 1);
        assert_eq!(make(&again, "g").unwrap_err(), refusal);
        // What is open already needs no descriptors.
        again.open(&Wish::name(&root, "f0")).unwrap();
        let mine = make(&other, "h").unwrap();
        make(&other, "i").unwrap();
        // Room comes back with CLOSE, of the last that has the file open.
        other.close(&mine).unwrap();
        assert_eq!(make(&again, "j").unwrap_err(), refusal);
        for opened in &held[..8] {
            greedy.close(opened).unwrap();
        }
        assert!(make(&again, "j").is_ok());
    }
}

fn owner(number: usize) -> &'static str {
    Box::leak(format!("owner{number}").into_boxed_str())
}

/// A client that goes with more opens than are removed at once: its stateids are
/// dead at once, who meets the rest waits and is let in soon.
#[test]
fn what_a_client_leaves_behind_goes_in_slices() {
    const OPENS: usize = MAX_STATES_PER_SLICE * 3;
    for minor in [0, 1] {
        let rig = Rig::new();
        let (gone, here) = (rig.client("gone", minor), rig.client("here", minor));
        let root = gone.export();
        let opens: Vec<_> = (0..OPENS)
            .map(|n| {
                if n == 0 {
                    gone.create("f");
                }
                gone.open(&Wish::name(&root, "f").access(1).owner(owner(n))).unwrap()
            })
            .collect();
        gone.lock(&opens[7], "locker", LockType::Read, (0, 5)).unwrap();
        rig.pass_seconds(LEASE + 1);
        let here = if minor == 0 { rig.client("here", 0) } else { here };
        if minor > 0 {
            here.reboot();
            here.introduce(false);
        }
        let held = || {
            let now = rig.world.clock().seconds();
            let totals = rig.server().totals(now);
            totals.opens
        };
        assert!(held() > OPENS, "courtesy");
        let wish = Wish::name(&root, "f").access(1).deny(1);
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

/// The same without anybody who asks: the ticks do it.
#[test]
fn ticks_finish_what_a_client_left_behind() {
    const OPENS: usize = MAX_STATES_PER_SLICE * 2 + 5;
    let rig = Rig::new();
    let gone = rig.client("gone", 1);
    let root = gone.export();
    gone.create("f");
    for n in 0..OPENS {
        gone.open(&Wish::name(&root, "f").access(1).owner(owner(n))).unwrap();
    }
    gone.reboot();
    gone.introduce(false);
    let other = rig.client("other", 1);
    let wish = Wish::name(&root, "f").access(1).deny(1);
    rig.pass_seconds(1);
    assert!(other.open(&wish).is_ok(), "all are gone");
}
