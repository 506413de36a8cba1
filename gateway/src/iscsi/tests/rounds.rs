//! Writes in flight while their session dies, is reset or is preempted: data
//! whose write was acknowledged to another session is never overwritten.
//! `ZGATE_FENCE_ROUNDS` sets the rounds.

use super::{Fixture, Over, block};
use std::time::Instant;
use zgate_test_initiator::pdu::{Itt, TaskFunction, TaskResult};

const LBA: u64 = 8;
const OLD: u8 = 1;
const NEW: u8 = 2;
/// PERSISTENT RESERVE OUT service actions.
const RESERVE: u8 = 1;
const CLEAR: u8 = 3;
const PREEMPT: u8 = 4;
const PREEMPT_AND_ABORT: u8 = 5;
const REGISTER_AND_IGNORE: u8 = 6;

fn rounds() -> u32 {
    std::env::var("ZGATE_FENCE_ROUNDS").map_or(50, |rounds| rounds.parse().unwrap())
}

/// Runs `round` for every round and prints the time it took.
fn each(what: &str, over: Over, mut round: impl FnMut(u32)) {
    let begun = Instant::now();
    (0..rounds()).for_each(&mut round);
    eprintln!("{what} over {over:?}: {} rounds in {:?}", rounds(), begun.elapsed());
}

/// The same nexus logs in again: at once, or after its session has ended; every third
/// time with another ISID, as after a reboot.
fn relogin(over: Over) {
    let fixture = Fixture::start();
    each("relogin", over, |round| {
        let mut dead = fixture.host(over, "one");
        fixture.start_held(&mut dead, LBA, &block(OLD, round));
        drop(dead);
        if round % 2 == 0 {
            fixture.until_sessions(0);
        }
        let port = if round % 3 == 2 { 2 } else { 1 };
        if port == 2 {
            // Another ISID replaces no session: wait for the end of the old
            // one.
            fixture.until_sessions(0);
        }
        let mut host = fixture.open_after(|| {
            let mut host = fixture.login_as(over, "one", port);
            let written = host.write(LBA, &block(NEW, round));
            assert_eq!(written.status, 0, "{:02x?}", &written.sense[..]);
            host
        });
        fixture.gate.wait_passed();
        assert_eq!(host.read(LBA), block(NEW, round), "round {round}: an old write came late");
    });
}

/// Another host resets the logical unit; every second time the writer's session is dead.
fn reset(over: Over, function: TaskFunction) {
    let fixture = Fixture::start();
    let mut other = fixture.host(over, "other");
    each("a reset", over, |round| {
        let mut writer = fixture.host(over, "one");
        fixture.start_held(&mut writer, LBA, &block(OLD, round));
        let kept = (round % 2 == 0).then_some(writer);
        if kept.is_none() {
            fixture.until_sessions(1);
        }
        fixture.open_after(|| {
            assert_eq!(other.function(function, Itt::NONE), TaskResult::COMPLETE);
            assert_eq!(other.write(LBA, &block(NEW, round)).status, 0);
        });
        fixture.gate.wait_passed();
        assert_eq!(other.read(LBA), block(NEW, round), "round {round}: an old write came late");
    });
}

/// Another host takes the reservation; every second time the writer's session is dead.
fn preempt(over: Over, action: u8) {
    let fixture = Fixture::start();
    let mut other = fixture.host(over, "other");
    each("a preempt", over, |round| {
        let mut writer = fixture.host(over, "one");
        assert_eq!(writer.reserve_out(REGISTER_AND_IGNORE, 0, 0x11).status, 0);
        assert_eq!(other.reserve_out(REGISTER_AND_IGNORE, 0, 0x22).status, 0);
        assert_eq!(writer.reserve_out(RESERVE, 0x11, 0).status, 0);
        fixture.start_held(&mut writer, LBA, &block(OLD, round));
        let kept = (round % 2 == 0).then_some(writer);
        if kept.is_none() {
            fixture.until_sessions(1);
        }
        fixture.open_after(|| {
            let taken = other.reserve_out(action, 0x22, 0x11);
            assert_eq!(taken.status, 0, "{:02x?}", &taken.sense[..]);
            assert_eq!(other.write(LBA, &block(NEW, round)).status, 0);
        });
        fixture.gate.wait_passed();
        assert_eq!(other.read(LBA), block(NEW, round), "round {round}: an old write came late");
        assert_eq!(other.reserve_out(CLEAR, 0x22, 0).status, 0);
    });
}

#[test]
fn a_relogin_over_tcp_loses_nothing() {
    relogin(Over::Tcp);
}

#[test]
fn a_relogin_over_rdma_loses_nothing() {
    relogin(Over::Rdma);
}

#[test]
fn lun_reset_over_tcp_loses_nothing() {
    reset(Over::Tcp, TaskFunction::LUN_RESET);
}

#[test]
fn lun_reset_over_rdma_loses_nothing() {
    reset(Over::Rdma, TaskFunction::LUN_RESET);
}

#[test]
fn clear_task_set_loses_nothing() {
    reset(Over::Tcp, TaskFunction::CLEAR_TASK_SET);
}

#[test]
fn target_warm_reset_loses_nothing() {
    reset(Over::Tcp, TaskFunction::TARGET_WARM_RESET);
}

#[test]
fn preempt_and_abort_over_tcp_loses_nothing() {
    preempt(Over::Tcp, PREEMPT_AND_ABORT);
}

#[test]
fn preempt_and_abort_over_rdma_loses_nothing() {
    preempt(Over::Rdma, PREEMPT_AND_ABORT);
}

#[test]
fn preempt_loses_nothing() {
    preempt(Over::Tcp, PREEMPT);
}
