//! Commands that run on when their connection is gone: a login or a logout must not be
//! answered while they may still write.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use zgate_iscsi::initiator::Notice;
use zgate_iscsi::names::Cid;
use zgate_iscsi::pdu::{LogoutReason, LogoutRequest, LogoutResponse, LogoutResult, Opcode};
use zgate_iscsi::session::TaskTag;
use zgate_test_harness::iscsi::{Harness, LUN, pattern};

/// A session of two connections, and a write that came over the second one and runs.
fn running_write(level: &str) -> (Harness, usize, TaskTag) {
    let keys = [("ErrorRecoveryLevel", level), ("MaxConnections", "2")];
    let mut harness = Harness::new(&keys);
    let second = harness.join(1);
    let task = begin_write(&mut harness, second);
    (harness, second, task)
}

/// Begins a write over a connection; the next command comes over the first one.
fn begin_write(harness: &mut Harness, index: usize) -> TaskTag {
    harness.links[index].initiator.command(LUN, &[0x2a], 0, pattern(512));
    let task = harness.take_command().task;
    let cmd_sn = harness.links[index].initiator.cmd_sn;
    harness.initiator().cmd_sn = cmd_sn;
    task
}

fn lose(harness: &mut Harness, index: usize) {
    let (handle, now) = (harness.links[index].handle, harness.now);
    harness.session.handle_closed(handle, now);
    harness.run();
}

/// Logs the connection with CID 1 out, over the first one.
fn log_out(harness: &mut Harness, reason: LogoutReason) {
    let initiator = harness.initiator();
    let (itt, cmd_sn, exp_stat_sn) = (initiator.tag(), initiator.cmd_sn, initiator.exp_stat_sn);
    let request = LogoutRequest { immediate: true, reason, itt, cid: Cid(1), cmd_sn, exp_stat_sn };
    initiator.send(request.encode());
    harness.run();
}

/// The results of logouts that have arrived since the last look.
fn results(harness: &mut Harness) -> Vec<LogoutResult> {
    let notices = harness.notices(0).into_iter();
    let frames = notices.filter_map(|notice| match notice {
        Notice::Other(frame) if frame.bhs.opcode() == Opcode::LOGOUT_RESPONSE => Some(frame),
        _ => None,
    });
    frames.map(|frame| LogoutResponse::parse(&frame.bhs).result).collect()
}

#[test]
fn a_logout_of_a_lost_connection_waits_for_its_writes() {
    let unknown = LogoutResult::CID_NOT_FOUND;
    for (level, result) in [("0", unknown), ("1", unknown), ("2", LogoutResult::CLOSED)] {
        let (mut harness, second, task) = running_write(level);
        lose(&mut harness, second);
        log_out(&mut harness, LogoutReason::CLOSE_CONNECTION);
        assert!(results(&mut harness).is_empty(), "level {level}: the write still runs");
        harness.good(task, Bytes::new());
        assert_eq!(results(&mut harness), [result], "level {level}");
        assert!(!harness.session.is_ended());
    }
}

/// It was lost, reinstated, and lost again.
#[test]
fn a_logout_waits_for_all_lost_connections_of_its_number() {
    let mut harness = Harness::new(&[("ErrorRecoveryLevel", "2"), ("MaxConnections", "2")]);
    let second = harness.join(1);
    lose(&mut harness, second);
    let third = harness.join(1);
    let task = begin_write(&mut harness, third);
    lose(&mut harness, third);
    log_out(&mut harness, LogoutReason::CLOSE_CONNECTION);
    assert!(results(&mut harness).is_empty(), "the write still runs");
    harness.good(task, Bytes::new());
    assert_eq!(results(&mut harness), [LogoutResult::CLOSED]);
}

#[test]
fn a_removal_for_recovery_does_not_wait() {
    let (mut harness, second, task) = running_write("2");
    lose(&mut harness, second);
    log_out(&mut harness, LogoutReason::REMOVE_FOR_RECOVERY);
    assert_eq!(results(&mut harness), [LogoutResult::CLOSED], "the task may be reassigned");
    log_out(&mut harness, LogoutReason::CLOSE_CONNECTION);
    log_out(&mut harness, LogoutReason::REMOVE_FOR_RECOVERY);
    assert!(results(&mut harness).is_empty(), "now it is aborted, and still runs");
    harness.good(task, Bytes::new());
    assert_eq!(results(&mut harness), [LogoutResult::CLOSED, LogoutResult::CID_NOT_FOUND]);
}

/// RFC 7143 §13.16: with DefaultTime2Retain=0, no task can be reassigned.
#[test]
fn a_removal_for_recovery_waits_for_tasks_that_are_not_kept() {
    let keys = [("ErrorRecoveryLevel", "2"), ("MaxConnections", "2"), ("DefaultTime2Retain", "0")];
    for is_lost in [false, true] {
        let mut harness = Harness::new(&keys);
        let second = harness.join(1);
        let task = begin_write(&mut harness, second);
        if is_lost {
            lose(&mut harness, second);
        }
        log_out(&mut harness, LogoutReason::REMOVE_FOR_RECOVERY);
        assert!(results(&mut harness).is_empty(), "the write still runs");
        harness.good(task, Bytes::new());
        let result = if is_lost { LogoutResult::CID_NOT_FOUND } else { LogoutResult::CLOSED };
        assert_eq!(results(&mut harness), [result]);
    }
}

#[test]
fn logouts_that_wait_are_bounded() {
    let (mut harness, second, task) = running_write("0");
    lose(&mut harness, second);
    for _ in 0..100 {
        log_out(&mut harness, LogoutReason::CLOSE_CONNECTION);
    }
    let refused = results(&mut harness);
    assert_eq!(refused, [LogoutResult::CLEANUP_FAILED; 68]);
    harness.good(task, Bytes::new());
    assert_eq!(results(&mut harness), [LogoutResult::CID_NOT_FOUND; 32]);
}

#[test]
fn a_connection_that_is_replaced_leaves_its_writes_behind() {
    let (mut harness, _, task) = running_write("0");
    assert!(!harness.session.has_leftovers());
    harness.join(1);
    harness.run();
    assert!(harness.session.has_leftovers(), "the write was aborted, and runs");
    harness.good(task, Bytes::new());
    assert!(!harness.session.has_leftovers());
    // At level 2 it waits for its reassignment.
    let (mut harness, ..) = running_write("2");
    harness.join(1);
    harness.run();
    assert!(!harness.session.has_leftovers());
}
