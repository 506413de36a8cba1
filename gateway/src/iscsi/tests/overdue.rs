//! Work that waits too long fails and can be retried: nothing returns GOOD
//! while an old write may still reach the disk.

use super::host::Host;
use super::{Fixture, Over, block};
use bytes::Bytes;
use zgate_test_initiator::pdu::{Itt, TaskFunction, TaskResult};

const LBA: u64 = 8;
const OLD: u8 = 1;
const NEW: u8 = 2;
const BUSY: u8 = 0x08;
const CONFLICT: u8 = 0x18;

/// Ends a session while one of its writes is held.
fn left_behind(fixture: &Fixture, over: Over, name: &str) {
    let sessions = fixture.gateway.shared.iscsi.sessions().len();
    let mut writer = fixture.host(over, name);
    fixture.start_held(&mut writer, LBA, &block(OLD, 0));
    drop(writer);
    fixture.until_sessions(sessions);
}

/// Writes once the storage allows it, and checks that no older write followed.
fn write_and_compare(fixture: &Fixture, host: &mut Host) {
    fixture.gate.wait_passed();
    fixture.until_settled();
    assert_eq!(host.write(LBA, &block(NEW, 1)).status, 0);
    assert_eq!(host.read(LBA), block(NEW, 1));
}

#[test]
fn resets_are_rejected_while_old_writes_run() {
    let fixture = Fixture::impatient();
    for over in [Over::Tcp, Over::Rdma] {
        let mut other = fixture.host(over, "other");
        left_behind(&fixture, over, "one");
        for function in
            [TaskFunction::LUN_RESET, TaskFunction::CLEAR_TASK_SET, TaskFunction::TARGET_WARM_RESET]
        {
            assert_eq!(other.function(function, Itt::NONE), TaskResult::REJECTED, "{function:?}");
        }
        fixture.gate.open();
        fixture.gate.wait_passed();
        let result = other.function(TaskFunction::LUN_RESET, Itt::NONE);
        assert_eq!(result, TaskResult::COMPLETE);
        write_and_compare(&fixture, &mut other);
    }
}

/// RFC 7143 §11.6.1: the session's own tasks count as well.
#[test]
fn aborts_of_own_tasks_are_rejected_while_they_run() {
    let fixture = Fixture::impatient();
    let mut host = fixture.host(Over::Tcp, "one");
    let write = fixture.start_held(&mut host, LBA, &block(OLD, 0));
    assert_eq!(host.function(TaskFunction::ABORT_TASK, write), TaskResult::REJECTED);
    assert_eq!(host.function(TaskFunction::ABORT_TASK_SET, Itt::NONE), TaskResult::REJECTED);
    assert_eq!(host.function(TaskFunction::LUN_RESET, Itt::NONE), TaskResult::REJECTED);
    fixture.gate.open();
    fixture.gate.wait_passed();
    assert_eq!(host.function(TaskFunction::ABORT_TASK_SET, Itt::NONE), TaskResult::COMPLETE);
    write_and_compare(&fixture, &mut host);
}

/// A failed preempt has no effect: the initiator still sees the key and
/// retries.
#[test]
fn a_preempt_fails_as_a_whole() {
    let fixture = Fixture::impatient();
    let mut other = fixture.host(Over::Tcp, "other");
    let mut writer = fixture.host(Over::Tcp, "one");
    assert_eq!(writer.reserve_out(6, 0, 0x11).status, 0);
    assert_eq!(other.reserve_out(6, 0, 0x22).status, 0);
    assert_eq!(writer.reserve_out(1, 0x11, 0).status, 0);
    fixture.start_held(&mut writer, LBA, &block(OLD, 0));
    drop(writer);
    fixture.until_sessions(1);
    for action in [5, 4] {
        let failed = other.reserve_out(action, 0x22, 0x11);
        assert_eq!((failed.status, failed.sense[2] & 15), (2, 0x0b), "ABORTED COMMAND");
        assert_eq!((failed.sense[12], failed.sense[13]), (0x2e, 0x02));
        assert_eq!(other.keys(), [0x11, 0x22], "nobody was preempted");
    }
    fixture.gate.open();
    fixture.gate.wait_passed();
    assert_eq!(other.reserve_out(5, 0x22, 0x11).status, 0);
    assert_eq!(other.keys(), [0x22]);
    write_and_compare(&fixture, &mut other);
}

/// A host that reconnects can log in, and gets BUSY from the unit until its old
/// write has ended, with the same ISID and with another one.
#[test]
fn a_relogin_gets_busy_while_its_old_write_runs() {
    let fixture = Fixture::impatient();
    for over in [Over::Tcp, Over::Rdma] {
        left_behind(&fixture, over, "one");
        let mut same = fixture.login(over, "one");
        let mut moved = fixture.login_as(over, "one", 2);
        for host in [&mut same, &mut moved] {
            assert_eq!(host.write(LBA, &block(NEW, 0)).status, BUSY);
            assert_eq!(host.run(&[0; 6], &Bytes::new()).status, BUSY);
            assert_eq!(host.run(&[0x12, 0, 0, 0, 36, 0], &Bytes::new()).status, 0, "INQUIRY");
        }
        // Another host is not delayed.
        let mut other = fixture.host(over, "other");
        assert_eq!(other.write(LBA + 1, &block(NEW, 0)).status, 0);
        fixture.gate.open();
        fixture.gate.wait_passed();
        write_and_compare(&fixture, &mut same);
        write_and_compare(&fixture, &mut moved);
        drop((same, moved, other));
        fixture.until_sessions(0);
    }
}

/// A connection that takes the place of another one in its session has its login response
/// when the writes of the other one have ended.
#[test]
fn a_rejoined_connection_waits_for_its_old_write() {
    let fixture = Fixture::start();
    let mut writer = fixture.host(Over::Tcp, "one");
    fixture.start_held(&mut writer, LBA, &block(OLD, 0));
    let (is_held, rejoined) = fixture.open_after(|| {
        let rejoined = fixture.rejoin(&writer, "one");
        (fixture.gate.is_held(), rejoined)
    });
    assert!(!is_held, "the old write has ended");
    write_and_compare(&fixture, &mut rejoined.unwrap());
}

#[test]
fn a_connection_is_not_rejoined_while_its_old_write_hangs() {
    let fixture = Fixture::impatient();
    let mut writer = fixture.host(Over::Tcp, "one");
    fixture.start_held(&mut writer, LBA, &block(OLD, 0));
    assert!(fixture.rejoin(&writer, "one").is_err(), "the old write still runs");
}

/// A command that panics fails alone: other running writes of its session stay
/// registered when the session ends.
#[test]
fn a_panic_forgets_no_write() {
    let fixture = Fixture::impatient();
    for over in [Over::Tcp, Over::Rdma] {
        let mut writer = fixture.host(over, "one");
        fixture.start_held(&mut writer, LBA, &block(OLD, 0));
        fixture.gate.panic_at((LBA + 1) * 512);
        let failed = writer.write(LBA + 1, &block(OLD, 0));
        assert_eq!((failed.status, failed.sense[2] & 15), (2, 4), "HARDWARE ERROR");
        drop(writer);
        fixture.until_sessions(0);
        let mut host = fixture.login(over, "one");
        assert_eq!(host.write(LBA, &block(NEW, 0)).status, BUSY);
        fixture.gate.open();
        write_and_compare(&fixture, &mut host);
        drop(host);
        fixture.until_sessions(0);
    }
}

/// RESERVE (6) of an ended session holds until its writes have ended.
#[test]
fn a_reserve_outlives_its_session_while_writes_run() {
    let fixture = Fixture::impatient();
    let mut other = fixture.host(Over::Tcp, "other");
    let mut writer = fixture.host(Over::Tcp, "one");
    assert_eq!(writer.run(&[0x16, 0, 0, 0, 0, 0], &Bytes::new()).status, 0);
    fixture.start_held(&mut writer, LBA, &block(OLD, 0));
    drop(writer);
    fixture.until_sessions(1);
    assert_eq!(other.run(&[0x16, 0, 0, 0, 0, 0], &Bytes::new()).status, CONFLICT);
    assert_eq!(other.write(LBA, &block(NEW, 0)).status, CONFLICT);
    fixture.gate.open();
    fixture.until_settled();
    assert_eq!(other.run(&[0x16, 0, 0, 0, 0, 0], &Bytes::new()).status, 0);
    write_and_compare(&fixture, &mut other);
}
