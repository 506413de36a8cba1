//! Connections of NFS over TCP whose schedule comes from a seed: real listeners, sockets and
//! connections on one thread, in virtual time ([SIMULATOR.md]).
//!
//! * `plan` has the schedule and the bounds, `draw` draws it.
//! * `room` is the gateway's side, with planted faults; `store` is its tree of files.
//! * `client` is a correct client; `calls` are the bytes between it and the gateway.
//! * `net/seeds` has what other front ends need as well: peers that follow a script, the run.
//!
//! [SIMULATOR.md]: ../../../../docs/SIMULATOR.md
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod calls;
mod client;
mod draw;
mod plan;
mod room;
mod store;

use crate::net::seeds::chosen::{first_failure, for_each_seed};
use crate::net::seeds::peer::Peer;
use crate::net::seeds::run::{Run, STEP};
use crate::net::seeds::script::Script;
use crate::net::seeds::virtual_time::in_virtual_time;
use crate::state_dir::StateDir;
use client::Client;
use plan::Plan;
use room::{Fault, Room, Tree};
use std::sync::Arc;

/// Seeds of a usual run.
const SEEDS: u64 = 24;
/// Seeds that run twice.
const SEEDS_TWICE: u64 = 3;
/// Most seeds until a planted fault is found.
const SEEDS_OF_FAULT: u64 = 200;

/// A state directory that many gateways may use, one after the other.
struct StateOfAll {
    dir: Arc<StateDir>,
    _temporary: tempfile::TempDir,
}

impl StateOfAll {
    fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let dir = Arc::new(StateDir::open(&temporary.path().join("state")).unwrap());
        Self { dir, _temporary: temporary }
    }

    /// Runs a seed; returns how each peer fared.
    fn run(&self, seed: u64, fault: Option<Fault>) -> Result<Vec<String>, String> {
        let tree = Tree::new();
        let plan = draw::draw(seed, &tree.file);
        let peers = peers(&plan, &tree.file);
        in_virtual_time(async {
            let (room, site) = Room::start(&plan, tree, &self.dir, fault);
            Run::new(room, site, peers, plan.phases.clone()).finish().await
        })
    }
}

fn peers(plan: &Plan, file: &[u8]) -> Vec<Box<dyn Peer>> {
    let bounds = plan.bounds();
    let clients = (0..).zip(&plan.clients).map(|(number, client)| {
        Box::new(Client::new(number, client, bounds, file)) as Box<dyn Peer>
    });
    let others = (0..)
        .zip(&plan.others)
        .map(|(number, other)| Box::new(Script::new(number, &other.script, STEP)) as Box<dyn Peer>);
    clients.chain(others).collect()
}

#[test]
fn calls_are_answered_and_stalls_ended_in_time() {
    let state = StateOfAll::new();
    let test = "nfs::tcp_seeds::calls_are_answered_and_stalls_ended_in_time";
    for_each_seed(test, SEEDS, |seed| state.run(seed, None));
}

#[test]
fn a_seed_has_one_outcome() {
    let state = StateOfAll::new();
    for seed in 1..=SEEDS_TWICE {
        let outcomes = [0; 2].map(|_| state.run(seed, None).unwrap());
        assert_eq!(outcomes[0], outcomes[1], "seed {seed}");
    }
}

#[test]
fn planted_faults_are_found() {
    let state = StateOfAll::new();
    for (fault, expected) in [
        (Fault::QuotaKept, "bytes of the quota"),
        (Fault::RegistrationKept, "registrations for callbacks"),
        (Fault::NoQuota, "memory: "),
        (Fault::DrainForgets, "a drain has not ended its connection"),
        (Fault::HoldUntold, "a held gateway has answered"),
        (Fault::StrangersNamed, "a stranger's"),
        (Fault::ReadsLost, "no reply to Read("),
    ] {
        let found = first_failure(SEEDS_OF_FAULT, |seed| state.run(seed, Some(fault)));
        let (seed, reason) = found.unwrap_or_else(|| panic!("{fault:?} is not found"));
        assert!(reason.contains(expected), "{fault:?}, seed {seed}: {reason}");
    }
}
