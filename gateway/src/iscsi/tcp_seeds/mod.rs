//! Connections of iSCSI over TCP whose schedule comes from a seed: real listeners, sockets,
//! connections and sessions on one thread, in virtual time ([SIMULATOR.md]).
//!
//! * `draw` has the schedule, and draws it.
//! * `room` is the gateway's side, with planted faults.
//! * `initiator` is a host that logs in; others follow the scripts of `net/seeds`.
//!
//! [SIMULATOR.md]: ../../../../docs/SIMULATOR.md
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod draw;
mod initiator;
mod room;

use crate::net::seeds::chosen::{first_failure, for_each_seed};
use crate::net::seeds::peer::Peer;
use crate::net::seeds::run::{Run, STEP};
use crate::net::seeds::script::Script;
use crate::net::seeds::virtual_time::in_virtual_time;
use crate::state_dir::StateDir;
use draw::Plan;
use initiator::Host;
use room::{Fault, Room};
use std::sync::Arc;

/// Seeds of a usual run.
const SEEDS: u64 = 24;
/// Seeds that run twice.
const SEEDS_TWICE: u64 = 3;
/// Most seeds until a planted fault is found.
const SEEDS_OF_FAULT: u64 = 200;

/// Files that many gateways may use, one after the other.
struct Files {
    dir: tempfile::TempDir,
    state_dir: Arc<StateDir>,
}

impl Files {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let state_dir = Arc::new(StateDir::open(&dir.path().join("state")).unwrap());
        Self { dir, state_dir }
    }

    /// Runs a seed; returns how each peer fared.
    fn run(&self, seed: u64, fault: Option<Fault>) -> Result<Vec<String>, String> {
        let plan = draw::draw(seed);
        let peers = peers(&plan);
        let room = Room::open(self.dir.path(), &self.state_dir, fault);
        in_virtual_time(async {
            let (target, site) = room.start(&plan);
            Run::new(target, site, peers, plan.phases.clone()).finish().await
        })
    }
}

fn peers(plan: &Plan) -> Vec<Box<dyn Peer>> {
    let hosts = (0..).zip(&plan.hosts);
    let hosts = hosts.map(|(number, host)| Box::new(Host::new(number, host)) as Box<dyn Peer>);
    let scripts = (0..)
        .zip(&plan.scripts)
        .map(|(number, script)| Box::new(Script::new(number, script, STEP)) as Box<dyn Peer>);
    hosts.chain(scripts).collect()
}

#[test]
fn commands_are_answered_and_stalls_ended_in_time() {
    let files = Files::new();
    let test = "iscsi::tcp_seeds::commands_are_answered_and_stalls_ended_in_time";
    for_each_seed(test, SEEDS, |seed| files.run(seed, None));
}

#[test]
fn a_seed_has_one_outcome() {
    let files = Files::new();
    for seed in 1..=SEEDS_TWICE {
        let outcomes = [0; 2].map(|_| files.run(seed, None).unwrap());
        assert_eq!(outcomes[0], outcomes[1], "seed {seed}");
    }
}

#[test]
fn planted_faults_are_found() {
    let files = Files::new();
    for (fault, expected) in [
        (Fault::QuotaKept, "bytes of the quota"),
        (Fault::DrainForgets, "a drain has not ended its connection"),
        (Fault::HoldUntold, "a held gateway has answered"),
        (Fault::TimeUntold, "is still served"),
    ] {
        let found = first_failure(SEEDS_OF_FAULT, |seed| files.run(seed, Some(fault)));
        let (seed, reason) = found.unwrap_or_else(|| panic!("{fault:?} is not found"));
        assert!(reason.contains(expected), "{fault:?}, seed {seed}: {reason}");
    }
}
