//! Task management: the tasks it ends, and the order of RFC 7143 §4.2.3.3.

use bytes::Bytes;
use std::time::Duration;
use zgate_iscsi::initiator::Notice;
use zgate_iscsi::limits::FUNCTION_DATA_TIMEOUT;
use zgate_iscsi::pdu::*;
use zgate_iscsi::serial::Sn;
use zgate_iscsi::session::*;
use zgate_test_harness::iscsi::{Harness, LUN, pattern, read_command};

const OTHER: Lun = Lun(0x0002_0000_0000_0000);

fn result(harness: &mut Harness) -> Option<TaskResult> {
    harness.notices(0).into_iter().find_map(|notice| match notice {
        Notice::Function(_, result) => Some(result),
        _ => None,
    })
}

fn function(harness: &mut Harness, function: TaskFunction, lun: Lun) {
    harness.initiator().function(function, lun, Itt::NONE, Sn(0));
    harness.run();
}

#[test]
fn abort_task_waits_for_the_owner() {
    let mut harness = Harness::new(&[]);
    let (cmd_sn, itt) =
        (harness.initiator().cmd_sn, harness.initiator().command(LUN, &[0x28], 512, Bytes::new()));
    let task = harness.take_command().task;
    harness.initiator().function(TaskFunction::ABORT_TASK, LUN, itt, cmd_sn);
    harness.run();
    assert!(matches!(harness.events.pop(), Some(Event::Abort(t)) if t == task));
    assert_eq!(result(&mut harness), None);
    harness.sent.clear();
    harness.good(task, pattern(512));
    assert!(
        harness.sent.iter().all(|(_, bhs)| bhs.opcode() == Opcode::TASK_RESPONSE),
        "no data, no status"
    );
    assert_eq!(result(&mut harness), Some(TaskResult::COMPLETE));
}

/// RFC 7143 §11.6.1: a task that still runs is not aborted.
#[test]
fn functions_are_rejected_when_tasks_do_not_end() {
    for kind in [TaskFunction::ABORT_TASK, TaskFunction::LUN_RESET] {
        let mut harness = Harness::new(&[]);
        let itt = harness.initiator().command(LUN, &[0x2a], 0, pattern(512));
        let task = harness.take_command().task;
        harness.initiator().function(kind, LUN, itt, Sn(0));
        harness.run();
        harness.pass_time(SessionConfig::default().function_timeout - Duration::from_secs(1));
        assert_eq!(result(&mut harness), None, "{kind:?}");
        assert!(harness.session.is_aborted(task));
        harness.pass_time(Duration::from_secs(1));
        assert_eq!(result(&mut harness), Some(TaskResult::REJECTED), "{kind:?}");
        // The owner may still execute the task, and is not asked to abort it
        // twice.
        for event in std::mem::take(&mut harness.events) {
            if let Event::Function { tag, .. } = event {
                harness.session.function_done(tag, TaskResult::COMPLETE);
            }
        }
        harness.good(task, Bytes::new());
        let [Notice::Done { itt: ended, status: 0, .. }] = harness.notices(0)[..] else {
            panic!("{kind:?}: the result of a task that was not aborted")
        };
        assert_eq!(ended, itt);
    }
}

/// A task whose first function was rejected and that a second one aborts has no
/// result.
#[test]
fn a_second_function_aborts_what_the_first_could_not() {
    let mut harness = Harness::new(&[]);
    let itt = harness.initiator().command(LUN, &[0x2a], 0, pattern(512));
    let task = harness.take_command().task;
    harness.initiator().function(TaskFunction::ABORT_TASK, LUN, itt, Sn(0));
    harness.run();
    harness.pass_time(SessionConfig::default().function_timeout);
    assert_eq!(result(&mut harness), Some(TaskResult::REJECTED));
    harness.initiator().function(TaskFunction::ABORT_TASK, LUN, itt, Sn(0));
    harness.run();
    harness.good(task, Bytes::new());
    assert_eq!(result(&mut harness), Some(TaskResult::COMPLETE), "and nothing else");
}

#[test]
fn abort_task_of_what_is_not_there() {
    let mut harness = Harness::new(&[]);
    let next = harness.initiator().cmd_sn;
    harness.initiator().function(TaskFunction::ABORT_TASK, LUN, Itt(77), next.plus(u32::MAX));
    harness.run();
    assert_eq!(result(&mut harness), Some(TaskResult::TASK_DOES_NOT_EXIST));
    // A task whose command was lost: its number counts as received.
    harness.initiator().cmd_sn = next.next();
    harness.initiator().function(TaskFunction::ABORT_TASK, LUN, Itt(78), next);
    harness.run();
    assert_eq!(result(&mut harness), Some(TaskResult::COMPLETE));
    harness.initiator().command(LUN, &[0], 0, Bytes::new());
    harness.take_command();
}

#[test]
fn abort_task_while_data_is_awaited() {
    let mut harness = Harness::new(&[("ImmediateData", "No")]);
    harness.initiator().automatic = false;
    let (cmd_sn, itt) =
        (harness.initiator().cmd_sn, harness.initiator().command(LUN, &[0x2a], 0, pattern(4096)));
    harness.run();
    let Some(Notice::Other(frame)) = harness.notices(0).pop() else { panic!("R2T") };
    harness.initiator().function(TaskFunction::ABORT_TASK, LUN, itt, cmd_sn);
    harness.run();
    assert_eq!(result(&mut harness), Some(TaskResult::COMPLETE));
    harness.initiator().answer(R2t::parse(&frame.bhs));
    harness.run();
    assert!(harness.commands.is_empty() && harness.notices(0).is_empty(), "late data is ignored");
    assert_eq!(harness.session.task_count(), 0);
}

#[test]
fn a_reset_follows_the_order_of_the_rfc() {
    let mut harness = Harness::new(&[("ImmediateData", "No")]);
    harness.initiator().automatic = false;
    // A task delivered to the owner, one that waits for data, one of another
    // logical unit.
    harness.initiator().command(LUN, &[0x28], 512, Bytes::new());
    let running = harness.take_command().task;
    harness.initiator().command(OTHER, &[0x28], 512, Bytes::new());
    let elsewhere = harness.take_command().task;
    harness.initiator().command(LUN, &[0x2a], 0, pattern(4096));
    harness.run();
    let Some(Notice::Other(r2t)) = harness.notices(0).pop() else { panic!("R2T") };
    // One command has not arrived yet.
    let late = harness.initiator().number();
    function(&mut harness, TaskFunction::LUN_RESET, LUN);
    assert!(harness.events.is_empty(), "a and b: data and an earlier command are awaited");
    harness.initiator().answer(R2t::parse(&r2t.bhs));
    harness.run();
    assert!(harness.commands.is_empty(), "the write is not executed any more");
    assert!(harness.events.is_empty(), "b: an earlier command is awaited");
    let itt = harness.initiator().tag();
    harness.initiator().send(read_command(itt, late, 512).encode(Bytes::new()));
    harness.run();
    let Some(Event::Function { tag, function: TaskFunction::LUN_RESET, lun: LUN, affected }) =
        harness.events.pop()
    else {
        panic!("c: the owner is asked")
    };
    assert_eq!(affected, [running]);
    assert!(harness.commands.is_empty(), "the late command is not executed");
    harness.session.function_done(tag, TaskResult::COMPLETE);
    harness.run();
    assert_eq!(result(&mut harness), None, "a task still runs");
    // A status that is not acknowledged yet delays the response.
    harness.good(elsewhere, pattern(512));
    harness.sent.clear();
    harness.good(running, pattern(512));
    assert_eq!(harness.sent[0].1.opcode(), Opcode::NOP_IN, "d: acknowledgement is asked for");
    let Some(Notice::Other(nop)) = harness.notices(0).pop() else { panic!("ping") };
    let (cmd_sn, exp_stat_sn) = (harness.initiator().cmd_sn, harness.initiator().exp_stat_sn);
    let (lun, ttt) = (Lun(0), nop.bhs.ttt());
    let pong = NopOut { immediate: true, lun, itt: Itt::NONE, ttt, cmd_sn, exp_stat_sn };
    harness.initiator().send(pong.encode(Bytes::new()));
    harness.run();
    assert_eq!(result(&mut harness), Some(TaskResult::COMPLETE), "e");
}

/// Linux sends no data for the tasks of a logical unit that it resets.
#[test]
fn a_reset_goes_on_without_data_that_does_not_come() {
    let mut harness = Harness::new(&[("ImmediateData", "No")]);
    harness.initiator().automatic = false;
    harness.initiator().command(LUN, &[0x2a], 0, pattern(4096));
    harness.run();
    let Some(Notice::Other(r2t)) = harness.notices(0).pop() else { panic!("R2T") };
    function(&mut harness, TaskFunction::LUN_RESET, LUN);
    // While nothing was read, nothing could come.
    let moment = Duration::from_millis(1);
    harness.now = harness.now.after(FUNCTION_DATA_TIMEOUT);
    harness.session.resume_after_hold(FUNCTION_DATA_TIMEOUT, harness.now);
    harness.pass_time(FUNCTION_DATA_TIMEOUT - moment);
    assert!(harness.events.is_empty(), "its data may be under way");
    assert_eq!(harness.session.poll_timeout(), Some(harness.now.after(moment)));
    harness.pass_time(moment);
    let Some(Event::Function { tag, affected, .. }) = harness.events.pop() else { panic!("asked") };
    assert!(affected.is_empty());
    harness.session.function_done(tag, TaskResult::COMPLETE);
    harness.run();
    assert_eq!(result(&mut harness), Some(TaskResult::COMPLETE));
    harness.initiator().answer(R2t::parse(&r2t.bhs));
    harness.run();
    assert!(harness.commands.is_empty() && harness.session.task_count() == 0, "late data");
}

#[test]
fn a_target_reset_does_not_wait_for_lost_commands() {
    let mut harness = Harness::new(&[]);
    harness.initiator().number();
    function(&mut harness, TaskFunction::TARGET_WARM_RESET, Lun(0));
    let Some(Event::Function { tag, affected, .. }) = harness.events.pop() else { panic!("asked") };
    assert!(affected.is_empty());
    harness.session.function_done(tag, TaskResult::COMPLETE);
    harness.run();
    assert_eq!(result(&mut harness), Some(TaskResult::COMPLETE));
    harness.initiator().command(LUN, &[0], 0, Bytes::new());
    harness.take_command();
}

#[test]
fn a_cold_reset_ends_the_session() {
    let mut harness = Harness::new(&[]);
    function(&mut harness, TaskFunction::TARGET_COLD_RESET, Lun(0));
    let Some(Event::Function { tag, .. }) = harness.events.pop() else { panic!("asked") };
    harness.session.function_done(tag, TaskResult::COMPLETE);
    harness.run();
    assert_eq!(result(&mut harness), Some(TaskResult::COMPLETE));
    assert!(matches!(harness.events[..], [Event::Close(..), Event::Ended(EndReason::ColdReset)]));
}

#[test]
fn functions_by_protocol_level() {
    let mut harness = Harness::new(&[]);
    let unsupported = [
        TaskFunction::CLEAR_ACA,
        TaskFunction::QUERY_TASK,
        TaskFunction::QUERY_TASK_SET,
        TaskFunction::I_T_NEXUS_RESET,
        TaskFunction::QUERY_ASYNC_EVENT,
        TaskFunction(99),
    ];
    for f in unsupported {
        function(&mut harness, f, LUN);
        assert_eq!(result(&mut harness), Some(TaskResult::NOT_SUPPORTED), "{f:?}");
    }
    function(&mut harness, TaskFunction::TASK_REASSIGN, LUN);
    assert_eq!(result(&mut harness), Some(TaskResult::REASSIGNMENT_NOT_SUPPORTED));

    let mut harness = Harness::new(&[("iSCSIProtocolLevel", "2")]);
    function(&mut harness, TaskFunction::QUERY_TASK_SET, LUN);
    assert_eq!(result(&mut harness), Some(TaskResult::COMPLETE));
    let itt = harness.initiator().command(LUN, &[0x28], 512, Bytes::new());
    harness.take_command();
    function(&mut harness, TaskFunction::QUERY_TASK_SET, LUN);
    assert_eq!(result(&mut harness), Some(TaskResult::SUCCEEDED));
    harness.initiator().function(TaskFunction::QUERY_TASK, LUN, itt, Sn(0));
    harness.run();
    assert_eq!(result(&mut harness), Some(TaskResult::SUCCEEDED));
    function(&mut harness, TaskFunction::QUERY_ASYNC_EVENT, LUN);
    let Some(Event::Function { tag, .. }) = harness.events.pop() else { panic!("asked") };
    harness.session.function_done(tag, TaskResult::COMPLETE);
    harness.run();
    assert_eq!(result(&mut harness), Some(TaskResult::COMPLETE));
    function(&mut harness, TaskFunction::I_T_NEXUS_RESET, LUN);
    assert!(
        matches!(harness.events.pop(), Some(Event::Function { affected, .. }) if affected.len() == 1)
    );
}

#[test]
fn another_initiators_reset_ends_tasks_silently_or_with_a_status() {
    let mut harness = Harness::new(&[("ImmediateData", "No")]);
    harness.initiator().automatic = false;
    harness.initiator().command(LUN, &[0x2a], 0, pattern(4096));
    harness.run();
    let Some(Notice::Other(r2t)) = harness.notices(0).pop() else { panic!("R2T") };
    harness.session.abort_tasks(Some(OTHER), None);
    assert_eq!(harness.session.task_count(), 1);
    harness.session.abort_tasks(Some(LUN), Some(0x40));
    harness.initiator().answer(R2t::parse(&r2t.bhs));
    harness.run();
    assert!(matches!(harness.notices(0)[..], [Notice::Done { status: 0x40, .. }]));
    harness.initiator().command(LUN, &[0x2a], 0, pattern(4096));
    harness.run();
    harness.session.abort_tasks(Some(LUN), None);
    assert_eq!(harness.session.task_count(), 0);
}

#[test]
fn nothing_goes_on_after_the_end() {
    // RFC 7143 §11.5.1: a cold reset ends the session; a command sent after the
    // reset must not be executed.
    let mut harness = Harness::new(&[]);
    harness.initiator().command(LUN, &[0x28], 512, Bytes::new());
    let task = harness.take_command().task;
    function(&mut harness, TaskFunction::TARGET_COLD_RESET, Lun(0));
    harness.lose = Box::new(|bhs| bhs.opcode() == Opcode::R2T);
    harness.initiator().command(LUN, &[0x2a], 0, pattern(300_000));
    harness.run();
    let Some(Event::Function { tag, .. }) = harness.events.pop() else { panic!("a function") };
    harness.good(task, pattern(512));
    harness.session.function_done(tag, TaskResult::COMPLETE);
    harness.run();
    assert!(harness.session.is_ended());
    assert!(matches!(harness.events.last(), Some(Event::Ended(EndReason::ColdReset))));
    assert!(harness.commands.is_empty() && harness.session.task_count() == 0, "the later command");
}

#[test]
fn a_function_that_waits_ends_with_its_session() {
    let mut harness = Harness::new(&[("MaxConnections", "2")]);
    let second = harness.join(1);
    harness.lose = Box::new(|bhs| bhs.opcode() == Opcode::R2T);
    harness.initiator().command(LUN, &[0x2a], 0, pattern(300_000));
    harness.run();
    let cmd_sn = harness.links[0].initiator.cmd_sn;
    let link = &mut harness.links[second].initiator;
    link.cmd_sn = cmd_sn;
    link.function(TaskFunction::LUN_RESET, LUN, Itt::NONE, Sn(0));
    harness.run();
    assert!(harness.events.is_empty(), "it waits for the data that was asked for");
    let (itt, exp_stat_sn) = (harness.initiator().tag(), harness.initiator().exp_stat_sn);
    let (reason, cid) = (LogoutReason::CLOSE_SESSION, zgate_iscsi::names::Cid(0));
    let logout = LogoutRequest { immediate: true, reason, itt, cid, cmd_sn, exp_stat_sn };
    harness.initiator().send(logout.encode());
    harness.run();
    assert!(matches!(harness.events.last(), Some(Event::Ended(EndReason::Logout))));
}
