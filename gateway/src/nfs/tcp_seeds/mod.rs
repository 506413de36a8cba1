//! Connections of NFS over TCP whose schedule comes from a seed: real listeners, sockets and
//! connections on one thread, in virtual time ([SIMULATOR.md]).
//!
//! * `plan` has the schedule and the bounds, `draw` draws it.
//! * `room` is the gateway's side, with planted faults; `store` is its tree of files.
//! * `peers` are the clients, and peers that are none; `calls` are the bytes between them.
//! * `run` carries a schedule out and checks the gateway.
//!
//! [SIMULATOR.md]: ../../../../docs/SIMULATOR.md
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod calls;
mod draw;
mod peers;
mod plan;
mod room;
mod run;
mod store;

use crate::net::seeds::chosen::{first_failure, for_each_seed};
use crate::net::seeds::virtual_time::in_virtual_time;
use crate::state_dir::StateDir;
use room::{Fault, Room};
use run::Run;
use std::sync::Arc;

/// Seeds of a usual run, and most seeds until a planted fault is found.
const SEEDS: u64 = 200;
/// Seeds that run twice.
const SEEDS_TWICE: u64 = 10;

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
        let plan = draw::draw(seed);
        in_virtual_time(async {
            let room = Room::start(&plan, &self.dir, fault).await;
            Run::new(&plan, room).to_its_end().await
        })
    }
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
        (Fault::ReadsLost, "Read("),
    ] {
        let found = first_failure(SEEDS, |seed| state.run(seed, Some(fault)));
        let (seed, reason) = found.unwrap_or_else(|| panic!("{fault:?} is not found"));
        assert!(reason.contains(expected), "{fault:?}, seed {seed}: {reason}");
    }
}
