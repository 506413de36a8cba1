//! Task management: what it ends, and the order of RFC 7143 §4.2.3.3.
#![allow(clippy::unwrap_used)]

mod rig;

use bytes::Bytes;
use rig::{Rig, pattern};
use std::time::Duration;
use zgate_iscsi::initiator::Notice;
use zgate_iscsi::pdu::*;
use zgate_iscsi::serial::Sn;
use zgate_iscsi::session::*;

const LUN: Lun = Lun(0x0001_0000_0000_0000);
const OTHER: Lun = Lun(0x0002_0000_0000_0000);

fn result(rig: &mut Rig) -> Option<TaskResult> {
    rig.notices(0).into_iter().find_map(|notice| match notice {
        Notice::Function(_, result) => Some(result),
        _ => None,
    })
}

fn function(rig: &mut Rig, function: TaskFunction, lun: Lun) {
    rig.initiator().function(function, lun, Itt::NONE, Sn(0));
    rig.run();
}

#[test]
fn abort_task_waits_for_the_owner() {
    let mut rig = Rig::new(&[]);
    let (cmd_sn, itt) =
        (rig.initiator().cmd_sn, rig.initiator().command(LUN, &[0x28], 512, Bytes::new()));
    let task = rig.take_command().task;
    rig.initiator().function(TaskFunction::ABORT_TASK, LUN, itt, cmd_sn);
    rig.run();
    assert!(matches!(rig.events.pop(), Some(Event::Abort(t)) if t == task));
    assert_eq!(result(&mut rig), None);
    rig.sent.clear();
    rig.good(task, pattern(512));
    assert!(
        rig.sent.iter().all(|(_, bhs)| bhs.opcode() == Opcode::TASK_RESPONSE),
        "no data, no status"
    );
    assert_eq!(result(&mut rig), Some(TaskResult::COMPLETE));
}

/// RFC 7143 §11.6.1: what still runs is not aborted.
#[test]
fn functions_are_rejected_when_tasks_do_not_end() {
    for kind in [TaskFunction::ABORT_TASK, TaskFunction::LUN_RESET] {
        let mut rig = Rig::new(&[]);
        let itt = rig.initiator().command(LUN, &[0x2a], 0, pattern(512));
        let task = rig.take_command().task;
        rig.initiator().function(kind, LUN, itt, Sn(0));
        rig.run();
        rig.pass_time(SessionConfig::default().function_timeout - Duration::from_secs(1));
        assert_eq!(result(&mut rig), None, "{kind:?}");
        assert!(rig.session.is_aborted(task));
        rig.pass_time(Duration::from_secs(1));
        assert_eq!(result(&mut rig), Some(TaskResult::REJECTED), "{kind:?}");
        // The owner may still be at it, and nobody is told of it twice.
        for event in std::mem::take(&mut rig.events) {
            if let Event::Function { tag, .. } = event {
                rig.session.function_done(tag, TaskResult::COMPLETE);
            }
        }
        rig.good(task, Bytes::new());
        assert_eq!(result(&mut rig), None, "{kind:?}");
    }
}

#[test]
fn abort_task_of_what_is_not_there() {
    let mut rig = Rig::new(&[]);
    let next = rig.initiator().cmd_sn;
    rig.initiator().function(TaskFunction::ABORT_TASK, LUN, Itt(77), next.plus(u32::MAX));
    rig.run();
    assert_eq!(result(&mut rig), Some(TaskResult::TASK_DOES_NOT_EXIST));
    // One whose command got lost on the way: its number counts as received.
    rig.initiator().cmd_sn = next.next();
    rig.initiator().function(TaskFunction::ABORT_TASK, LUN, Itt(78), next);
    rig.run();
    assert_eq!(result(&mut rig), Some(TaskResult::COMPLETE));
    rig.initiator().command(LUN, &[0], 0, Bytes::new());
    rig.take_command();
}

#[test]
fn abort_task_while_data_is_awaited() {
    let mut rig = Rig::new(&[("ImmediateData", "No")]);
    rig.initiator().automatic = false;
    let (cmd_sn, itt) =
        (rig.initiator().cmd_sn, rig.initiator().command(LUN, &[0x2a], 0, pattern(4096)));
    rig.run();
    let Some(Notice::Other(frame)) = rig.notices(0).pop() else { panic!("R2T") };
    rig.initiator().function(TaskFunction::ABORT_TASK, LUN, itt, cmd_sn);
    rig.run();
    assert_eq!(result(&mut rig), Some(TaskResult::COMPLETE));
    rig.initiator().answer(R2t::parse(&frame.bhs));
    rig.run();
    assert!(rig.commands.is_empty() && rig.notices(0).is_empty(), "late data is ignored");
    assert_eq!(rig.session.task_count(), 0);
}

#[test]
fn a_reset_follows_the_order_of_the_rfc() {
    let mut rig = Rig::new(&[("ImmediateData", "No")]);
    rig.initiator().automatic = false;
    // A task that the owner has, one that waits for data, one elsewhere.
    rig.initiator().command(LUN, &[0x28], 512, Bytes::new());
    let running = rig.take_command().task;
    rig.initiator().command(OTHER, &[0x28], 512, Bytes::new());
    let elsewhere = rig.take_command().task;
    rig.initiator().command(LUN, &[0x2a], 0, pattern(4096));
    rig.run();
    let Some(Notice::Other(r2t)) = rig.notices(0).pop() else { panic!("R2T") };
    // One command is still on its way.
    let late = rig.initiator().number();
    function(&mut rig, TaskFunction::LUN_RESET, LUN);
    assert!(rig.events.is_empty(), "a and b: data and an earlier command are awaited");
    rig.initiator().answer(R2t::parse(&r2t.bhs));
    rig.run();
    assert!(rig.commands.is_empty(), "the write is not executed any more");
    assert!(rig.events.is_empty(), "b: an earlier command is awaited");
    let (itt, cdb) = (rig.initiator().tag(), Cdb::new(&[0x28]).unwrap());
    let command = ScsiCommand {
        immediate: false,
        is_final: true,
        read: true,
        write: false,
        attribute: TaskAttribute::Simple,
        lun: LUN,
        itt,
        expected_bytes: 512,
        cmd_sn: late,
        exp_stat_sn: Sn(0),
        cdb,
        bidirectional_read_bytes: None,
    };
    rig.initiator().send(command.encode(Bytes::new()));
    rig.run();
    let Some(Event::Function { tag, function: TaskFunction::LUN_RESET, lun: LUN, affected }) =
        rig.events.pop()
    else {
        panic!("c: the owner is asked")
    };
    assert_eq!(affected, [running]);
    assert!(rig.commands.is_empty(), "the late command is not executed");
    rig.session.function_done(tag, TaskResult::COMPLETE);
    rig.run();
    assert_eq!(result(&mut rig), None, "a task still runs");
    // A status on its way that is not acknowledged holds the response back.
    rig.good(elsewhere, pattern(512));
    rig.sent.clear();
    rig.good(running, pattern(512));
    assert_eq!(rig.sent[0].1.opcode(), Opcode::NOP_IN, "d: acknowledgement is asked for");
    let Some(Notice::Other(nop)) = rig.notices(0).pop() else { panic!("ping") };
    let (cmd_sn, exp_stat_sn) = (rig.initiator().cmd_sn, rig.initiator().exp_stat_sn);
    let (lun, ttt) = (Lun(0), nop.bhs.ttt());
    let pong = NopOut { immediate: true, lun, itt: Itt::NONE, ttt, cmd_sn, exp_stat_sn };
    rig.initiator().send(pong.encode(Bytes::new()));
    rig.run();
    assert_eq!(result(&mut rig), Some(TaskResult::COMPLETE), "e");
}

#[test]
fn a_target_reset_does_not_wait_for_lost_commands() {
    let mut rig = Rig::new(&[]);
    rig.initiator().number();
    function(&mut rig, TaskFunction::TARGET_WARM_RESET, Lun(0));
    let Some(Event::Function { tag, affected, .. }) = rig.events.pop() else { panic!("asked") };
    assert!(affected.is_empty());
    rig.session.function_done(tag, TaskResult::COMPLETE);
    rig.run();
    assert_eq!(result(&mut rig), Some(TaskResult::COMPLETE));
    rig.initiator().command(LUN, &[0], 0, Bytes::new());
    rig.take_command();
}

#[test]
fn a_cold_reset_ends_the_session() {
    let mut rig = Rig::new(&[]);
    function(&mut rig, TaskFunction::TARGET_COLD_RESET, Lun(0));
    let Some(Event::Function { tag, .. }) = rig.events.pop() else { panic!("asked") };
    rig.session.function_done(tag, TaskResult::COMPLETE);
    rig.run();
    assert_eq!(result(&mut rig), Some(TaskResult::COMPLETE));
    assert!(matches!(rig.events[..], [Event::Close(..), Event::Ended(EndReason::ColdReset)]));
}

#[test]
fn functions_by_protocol_level() {
    let mut rig = Rig::new(&[]);
    let unsupported = [
        TaskFunction::CLEAR_ACA,
        TaskFunction::QUERY_TASK,
        TaskFunction::QUERY_TASK_SET,
        TaskFunction::I_T_NEXUS_RESET,
        TaskFunction::QUERY_ASYNC_EVENT,
        TaskFunction(99),
    ];
    for f in unsupported {
        function(&mut rig, f, LUN);
        assert_eq!(result(&mut rig), Some(TaskResult::NOT_SUPPORTED), "{f:?}");
    }
    function(&mut rig, TaskFunction::TASK_REASSIGN, LUN);
    assert_eq!(result(&mut rig), Some(TaskResult::REASSIGNMENT_NOT_SUPPORTED));

    let mut rig = Rig::new(&[("iSCSIProtocolLevel", "2")]);
    function(&mut rig, TaskFunction::QUERY_TASK_SET, LUN);
    assert_eq!(result(&mut rig), Some(TaskResult::COMPLETE));
    let itt = rig.initiator().command(LUN, &[0x28], 512, Bytes::new());
    rig.take_command();
    function(&mut rig, TaskFunction::QUERY_TASK_SET, LUN);
    assert_eq!(result(&mut rig), Some(TaskResult::SUCCEEDED));
    rig.initiator().function(TaskFunction::QUERY_TASK, LUN, itt, Sn(0));
    rig.run();
    assert_eq!(result(&mut rig), Some(TaskResult::SUCCEEDED));
    function(&mut rig, TaskFunction::QUERY_ASYNC_EVENT, LUN);
    let Some(Event::Function { tag, .. }) = rig.events.pop() else { panic!("asked") };
    rig.session.function_done(tag, TaskResult::COMPLETE);
    rig.run();
    assert_eq!(result(&mut rig), Some(TaskResult::COMPLETE));
    function(&mut rig, TaskFunction::I_T_NEXUS_RESET, LUN);
    assert!(
        matches!(rig.events.pop(), Some(Event::Function { affected, .. }) if affected.len() == 1)
    );
}

#[test]
fn another_initiators_reset_ends_tasks_silently_or_with_a_status() {
    let mut rig = Rig::new(&[("ImmediateData", "No")]);
    rig.initiator().automatic = false;
    rig.initiator().command(LUN, &[0x2a], 0, pattern(4096));
    rig.run();
    let Some(Notice::Other(r2t)) = rig.notices(0).pop() else { panic!("R2T") };
    rig.session.abort_tasks(Some(OTHER), None);
    assert_eq!(rig.session.task_count(), 1);
    rig.session.abort_tasks(Some(LUN), Some(0x40));
    rig.initiator().answer(R2t::parse(&r2t.bhs));
    rig.run();
    assert!(matches!(rig.notices(0)[..], [Notice::Done { status: 0x40, .. }]));
    rig.initiator().command(LUN, &[0x2a], 0, pattern(4096));
    rig.run();
    rig.session.abort_tasks(Some(LUN), None);
    assert_eq!(rig.session.task_count(), 0);
}

#[test]
fn nothing_goes_on_after_the_end() {
    // RFC 7143 §11.5.1: a cold reset ends the session; a command sent after
    // the reset must not be executed any more.
    let mut rig = Rig::new(&[]);
    rig.initiator().command(LUN, &[0x28], 512, Bytes::new());
    let task = rig.take_command().task;
    function(&mut rig, TaskFunction::TARGET_COLD_RESET, Lun(0));
    rig.lose = Box::new(|bhs| bhs.opcode() == Opcode::R2T);
    rig.initiator().command(LUN, &[0x2a], 0, pattern(300_000));
    rig.run();
    let Some(Event::Function { tag, .. }) = rig.events.pop() else { panic!("a function") };
    rig.good(task, pattern(512));
    rig.session.function_done(tag, TaskResult::COMPLETE);
    rig.run();
    assert!(rig.session.is_ended());
    assert!(matches!(rig.events.last(), Some(Event::Ended(EndReason::ColdReset))));
    assert!(rig.commands.is_empty() && rig.session.task_count() == 0, "the later command");
}

#[test]
fn a_function_that_waits_ends_with_its_session() {
    let mut rig = Rig::new(&[("MaxConnections", "2")]);
    let second = rig.join(1);
    rig.lose = Box::new(|bhs| bhs.opcode() == Opcode::R2T);
    rig.initiator().command(LUN, &[0x2a], 0, pattern(300_000));
    rig.run();
    let cmd_sn = rig.links[0].initiator.cmd_sn;
    let link = &mut rig.links[second].initiator;
    link.cmd_sn = cmd_sn;
    link.function(TaskFunction::LUN_RESET, LUN, Itt::NONE, Sn(0));
    rig.run();
    assert!(rig.events.is_empty(), "it waits for the data that was asked for");
    let (itt, exp_stat_sn) = (rig.initiator().tag(), rig.initiator().exp_stat_sn);
    let (reason, cid) = (LogoutReason::CLOSE_SESSION, zgate_iscsi::names::Cid(0));
    let logout = LogoutRequest { immediate: true, reason, itt, cid, cmd_sn, exp_stat_sn };
    rig.initiator().send(logout.encode());
    rig.run();
    assert!(matches!(rig.events.last(), Some(Event::Ended(EndReason::Logout))));
}
