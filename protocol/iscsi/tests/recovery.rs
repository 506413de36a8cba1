//! Digest errors and losses at every error recovery level, SNACK, connection
//! recovery.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use std::time::Duration;
use zgate_iscsi::initiator::Notice;
use zgate_iscsi::login::Offer;
use zgate_iscsi::pdu::*;
use zgate_iscsi::serial::Sn;
use zgate_iscsi::session::*;
use zgate_store::Payload;
use zgate_test_harness::iscsi::{Harness, LUN, pattern};

fn level(level: &str) -> Harness {
    Harness::new(&[
        ("ErrorRecoveryLevel", level),
        ("MaxRecvDataSegmentLength", "4096"),
        ("MaxBurstLength", "8192"),
        ("MaxConnections", "2"),
    ])
}

/// Damages the first PDU with an opcode.
fn damage_one(harness: &mut Harness, opcode: Opcode) {
    let mut left = 1;
    harness.damage = Box::new(move |bhs| {
        let hit = left > 0 && bhs.opcode() == opcode;
        left -= usize::from(hit);
        hit
    });
}

fn lose_one(harness: &mut Harness, at: usize, opcode: Opcode) {
    let mut seen = 0;
    harness.lose = Box::new(move |bhs| {
        let hit = bhs.opcode() == opcode && seen == at;
        seen += usize::from(bhs.opcode() == opcode);
        hit
    });
}

fn rejected(harness: &Harness) -> Vec<RejectReason> {
    let is_reject = |(_, bhs): &&(usize, Bhs)| bhs.opcode() == Opcode::REJECT;
    harness.sent.iter().filter(is_reject).map(|(_, bhs)| Reject::parse(bhs).reason).collect()
}

fn snack(
    harness: &mut Harness,
    index: usize,
    kind: SnackKind,
    itt: Itt,
    ttt: Ttt,
    begin_run: u32,
    run_length: u32,
) {
    let exp_stat_sn = harness.links[index].initiator.exp_stat_sn;
    let pdu = Snack { kind, lun: Lun(0), itt, ttt, exp_stat_sn, begin_run, run_length };
    harness.links[index].initiator.send(pdu.encode());
    harness.run();
}

#[test]
fn damaged_data_out_by_level() {
    for opcode in [Opcode::DATA_OUT, Opcode::SCSI_COMMAND] {
        let mut harness = level("0");
        damage_one(&mut harness, opcode);
        harness.initiator().command(LUN, &[0x2a], 0, pattern(300_000));
        harness.run();
        assert!(harness.commands.is_empty());
        assert_eq!(rejected(&harness), [RejectReason::DATA_DIGEST_ERROR]);
        let done = harness.notices(0).into_iter().find_map(|n| match n {
            Notice::Done { status, sense, .. } => Some((status, sense[12], sense[13])),
            _ => None,
        });
        assert_eq!(done, Some((2, 0x47, 5)));

        for erl in ["1", "2"] {
            let mut harness = level(erl);
            damage_one(&mut harness, opcode);
            harness.initiator().command(LUN, &[0x2a], 0, pattern(300_000));
            assert_eq!(harness.take_command().data_out.concat(), pattern(300_000));
            assert_eq!(rejected(&harness), [RejectReason::DATA_DIGEST_ERROR]);
        }
    }
}

#[test]
fn damage_without_end_fails_the_task() {
    let mut harness = level("1");
    harness.damage = Box::new(|bhs| bhs.opcode() == Opcode::DATA_OUT);
    harness.initiator().command(LUN, &[0x2a], 0, pattern(300_000));
    harness.run();
    assert!(harness.commands.is_empty() && harness.session.task_count() == 0);
}

#[test]
fn a_damaged_other_pdu_is_discarded() {
    let mut harness = level("1");
    damage_one(&mut harness, Opcode::NOP_OUT);
    let (itt, cmd_sn, exp_stat_sn) =
        (harness.initiator().tag(), harness.initiator().cmd_sn, harness.initiator().exp_stat_sn);
    let nop = NopOut { immediate: false, lun: Lun(0), itt, ttt: Ttt::NONE, cmd_sn, exp_stat_sn };
    harness.initiator().send(nop.encode(Bytes::from_static(b"one")));
    harness.initiator().send(nop.encode(Bytes::from_static(b"two")));
    harness.run();
    assert_eq!(rejected(&harness), [RejectReason::DATA_DIGEST_ERROR]);
    let Some(Notice::Other(frame)) = harness.notices(0).pop() else { panic!("echo") };
    assert_eq!(frame.contiguous_data(), &b"two"[..], "the number was not used up");
}

#[test]
fn lost_data_in_and_status_come_again() {
    let mut harness = level("1");
    let itt = harness.initiator().command(LUN, &[0x28], 20_000, Bytes::new());
    let task = harness.take_command().task;
    let sense = Bytes::from_static(&[0x70; 18]);
    let data_in = vec![zgate_store::Payload::Bytes(pattern(20_000))];
    harness.lose = {
        let mut data = 0;
        Box::new(move |bhs| {
            data += usize::from(bhs.opcode() == Opcode::DATA_IN);
            bhs.opcode() == Opcode::SCSI_RESPONSE || (bhs.opcode() == Opcode::DATA_IN && data == 2)
        })
    };
    harness
        .session
        .complete(task, Completion { status: 2, sense, data_in, ..Completion::default() });
    harness.run();
    harness.lose = Box::new(|_| false);
    harness.sent.clear();
    snack(&mut harness, 0, SnackKind::DataOrR2t, itt, Ttt::NONE, 1, 1);
    let again: Vec<_> = harness.sent.iter().map(|(_, bhs)| DataIn::parse(bhs).data_sn).collect();
    assert_eq!(again, [1]);
    snack(&mut harness, 0, SnackKind::Status, Itt::NONE, Ttt::NONE, 0, 0);
    let done = harness.notices(0).into_iter().find_map(|n| match n {
        Notice::Done { status, data, .. } => Some((status, data)),
        _ => None,
    });
    assert_eq!(done, Some((2, pattern(20_000))));
    // After the acknowledgement the status is no longer retained.
    harness.sent.clear();
    snack(&mut harness, 0, SnackKind::Status, Itt::NONE, Ttt::NONE, 0, 0);
    assert!(harness.sent.is_empty(), "{:?}", harness.sent);
    snack(&mut harness, 0, SnackKind::DataOrR2t, itt, Ttt::NONE, 0, 1);
    assert_eq!(rejected(&harness), [RejectReason::SNACK_REJECT]);
}

#[test]
fn snack_out_of_place_is_rejected() {
    let mut harness = level("0");
    snack(&mut harness, 0, SnackKind::Status, Itt::NONE, Ttt::NONE, 0, 0);
    assert_eq!(rejected(&harness), [RejectReason::PROTOCOL_ERROR]);
    let mut harness = level("1");
    harness.initiator().command(LUN, &[0x28], 20_000, Bytes::new());
    let task = harness.take_command().task;
    harness.good(task, pattern(20_000));
    harness.sent.clear();
    snack(&mut harness, 0, SnackKind::DataOrR2t, Itt(999), Ttt::NONE, 0, 0);
    assert_eq!(rejected(&harness), [RejectReason::SNACK_REJECT]);
}

#[test]
fn data_is_acknowledged() {
    let mut harness = level("1");
    harness.lose = Box::new(|bhs| bhs.opcode() == Opcode::DATA_IN && bhs.flags() & 1 != 0);
    let itt = harness.initiator().command(LUN, &[0x28], 20_000, Bytes::new());
    let task = harness.take_command().task;
    harness.good(task, pattern(20_000));
    let asked: Vec<_> =
        harness.sent.iter().map(|(_, bhs)| DataIn::parse(bhs)).filter(|d| d.acknowledge).collect();
    assert_eq!(asked.iter().map(|d| d.data_sn).collect::<Vec<_>>(), [1, 3], "at the end of bursts");
    snack(&mut harness, 0, SnackKind::DataAck, itt, asked[1].ttt, 4, 0);
    assert!(rejected(&harness).is_empty());
    snack(&mut harness, 0, SnackKind::DataAck, itt, asked[1].ttt, 99, 0);
    assert_eq!(rejected(&harness), [RejectReason::INVALID_DATA_ACK]);
    harness.lose = Box::new(|_| false);
    harness.sent.clear();
    snack(&mut harness, 0, SnackKind::DataOrR2t, itt, Ttt::NONE, 2, 0);
    assert_eq!(rejected(&harness), [RejectReason::SNACK_REJECT], "what was acknowledged is gone");
    snack(&mut harness, 0, SnackKind::DataOrR2t, itt, Ttt::NONE, 4, 0);
    assert!(harness.notices(0).iter().any(|n| matches!(n, Notice::Done { status: 0, .. })));
}

#[test]
fn data_is_cut_anew_for_another_segment_length() {
    let mut harness = level("1");
    harness.lose = Box::new(|bhs| bhs.opcode() == Opcode::DATA_IN);
    let itt = harness.initiator().command(LUN, &[0x28], 8192, Bytes::new());
    let task = harness.take_command().task;
    harness.good(task, pattern(8192));
    let (text_itt, cmd_sn, exp_stat_sn) =
        (harness.initiator().tag(), harness.initiator().cmd_sn, harness.initiator().exp_stat_sn);
    let request = TextRequest {
        immediate: true,
        is_final: true,
        continues: false,
        lun: Lun(0),
        itt: text_itt,
        ttt: Ttt::NONE,
        cmd_sn,
        exp_stat_sn,
    };
    harness
        .initiator()
        .send(request.encode(Bytes::from_static(b"MaxRecvDataSegmentLength=1024\0")));
    harness.run();
    harness.lose = Box::new(|_| false);
    harness.sent.clear();
    snack(&mut harness, 0, SnackKind::DataOrR2t, itt, Ttt::NONE, 0, 0);
    assert_eq!(rejected(&harness), [RejectReason::SNACK_REJECT], "only R-Data will do");
    harness.sent.clear();
    snack(&mut harness, 0, SnackKind::ResegmentData, itt, Ttt(0x55), 0, 0);
    let (response, data) = harness.sent.split_last().unwrap();
    assert_eq!((data.len(), ScsiResponse::parse(&response.1).snack_tag), (8, 0x55));
    let data = harness.notices(0).into_iter().find_map(|n| match n {
        Notice::Done { data, .. } => Some(data),
        _ => None,
    });
    assert_eq!(data, Some(pattern(8192)));
}

#[test]
fn who_asks_for_data_again_and_again_and_reads_nothing_is_refused() {
    const PDU_BYTES: usize = 4096 + 48;
    let mut harness = level("1");
    harness.lose = Box::new(|bhs| [Opcode::DATA_IN, Opcode::SCSI_RESPONSE].contains(&bhs.opcode()));
    let itt = harness.initiator().command(LUN, &[0x28], 1 << 20, Bytes::new());
    let task = harness.take_command().task;
    let data_in = vec![Payload::Bytes(pattern(1 << 20))];
    harness.session.complete(task, Completion { data_in, ..Completion::default() });
    harness.run();
    let handle = harness.links[0].handle;
    for _ in 0..100 {
        let exp_stat_sn = harness.links[0].initiator.exp_stat_sn;
        let (kind, ttt) = (SnackKind::DataOrR2t, Ttt::NONE);
        let pdu = Snack { kind, lun: Lun(0), itt, ttt, exp_stat_sn, begin_run: 0, run_length: 0 };
        let frame = Frame::new(pdu.encode().bhs, Bytes::new(), Vec::new());
        harness.session.handle_pdu(handle, frame, harness.now);
    }
    // Whole retransmissions of 256 PDUs each, and short rejections.
    let waiting = harness.session.queued_bytes(handle) / PDU_BYTES;
    assert!((512..1024).contains(&waiting), "{waiting}");
}

#[test]
fn a_lost_r2t_comes_again() {
    let mut harness = level("1");
    lose_one(&mut harness, 0, Opcode::R2T);
    let itt = harness.initiator().command(LUN, &[0x2a], 0, pattern(300_000));
    harness.run();
    assert!(harness.commands.is_empty());
    snack(&mut harness, 0, SnackKind::DataOrR2t, itt, Ttt::NONE, 0, 0);
    assert_eq!(harness.take_command().data_out.concat(), pattern(300_000));
}

fn reassign(
    harness: &mut Harness,
    index: usize,
    referenced: Itt,
    exp_data_sn: u32,
) -> Option<TaskResult> {
    let initiator = &mut harness.links[index].initiator;
    let itt = initiator.tag();
    let (cmd_sn, exp_stat_sn) = (initiator.cmd_sn, initiator.exp_stat_sn);
    let request = TaskRequest {
        immediate: true,
        function: TaskFunction::TASK_REASSIGN,
        lun: LUN,
        itt,
        referenced,
        cmd_sn,
        exp_stat_sn,
        ref_cmd_sn: Sn(0),
        exp_data_sn,
    };
    initiator.send(request.encode());
    harness.run();
    let mut others = Vec::new();
    let mut result = None;
    for notice in harness.notices(index) {
        match notice {
            Notice::Function(i, r) if i == itt => result = Some(r),
            other => others.push(other),
        }
    }
    harness.held.extend(others);
    result
}

#[test]
fn tasks_survive_their_connection() {
    let mut harness = level("2");
    harness.lose = Box::new(|bhs| bhs.opcode() == Opcode::DATA_IN || bhs.opcode() == Opcode::R2T);
    // A read whose answer is lost, one still running, a write without R2T.
    let answered = harness.initiator().command(LUN, &[0x28, 1], 8192, Bytes::new());
    let task = harness.take_command().task;
    harness.good(task, pattern(8192));
    let running = harness.initiator().command(LUN, &[0x28, 2], 4096, Bytes::new());
    let running_task = harness.take_command().task;
    let writing = harness.initiator().command(LUN, &[0x2a], 0, pattern(300_000));
    harness.run();
    harness.session.handle_closed(harness.links[0].handle, harness.now);
    harness.run();
    assert!(harness.events.is_empty() && harness.session.task_count() == 2, "nothing ends");
    harness.lose = Box::new(|_| false);
    let second = harness.join(1);
    harness.links[second].initiator.cmd_sn = harness.links[0].initiator.cmd_sn;
    for itt in [answered, running] {
        harness.links[second].initiator.open(itt, LUN, Bytes::new());
    }
    harness.links[second].initiator.open(writing, LUN, pattern(300_000));
    harness.session.complete(
        running_task,
        Completion {
            data_in: vec![zgate_store::Payload::Bytes(pattern(4096))],
            ..Completion::default()
        },
    );
    for itt in [answered, running, writing] {
        assert_eq!(reassign(&mut harness, second, itt, 0), Some(TaskResult::COMPLETE), "{itt:?}");
    }
    let command = harness.take_command();
    assert_eq!(command.data_out.concat(), pattern(300_000));
    assert_eq!(reassign(&mut harness, second, writing, 0), Some(TaskResult::TASK_STILL_ALLEGIANT));
    assert_eq!(reassign(&mut harness, second, Itt(4711), 0), Some(TaskResult::TASK_DOES_NOT_EXIST));
    harness.good(command.task, Bytes::new());
    let held = std::mem::take(&mut harness.held).into_iter().chain(harness.notices(second));
    let done: Vec<_> = held
        .filter_map(|n| match n {
            Notice::Done { itt, status: 0, data, .. } => Some((itt, data.len())),
            _ => None,
        })
        .collect();
    assert_eq!(done, [(answered, 8192), (running, 4096), (writing, 0)]);
}

#[test]
fn lost_connections_are_given_up_in_time() {
    let mut harness = level("2");
    harness.initiator().command(LUN, &[0x28], 512, Bytes::new());
    let task = harness.take_command().task;
    harness.session.handle_closed(harness.links[0].handle, harness.now);
    harness.pass_time(Duration::from_secs(21));
    assert!(harness.events.is_empty());
    harness.pass_time(Duration::from_secs(1));
    assert!(
        matches!(harness.events[..], [Event::Abort(t), Event::Ended(EndReason::ConnectionLost)] if t == task)
    );
}

/// RFC 7143 §13.16: with 0, nothing is kept.
#[test]
fn without_time_to_retain_tasks_end_with_their_connection() {
    let keys = [("ErrorRecoveryLevel", "2"), ("DefaultTime2Retain", "0")];
    let mut harness = Harness::new(&keys);
    harness.initiator().command(LUN, &[0x2a], 0, pattern(512));
    let task = harness.take_command().task;
    harness.session.handle_closed(harness.links[0].handle, harness.now);
    harness.run();
    assert!(
        matches!(harness.events[..], [Event::Abort(t), Event::Ended(EndReason::ConnectionLost)] if t == task)
    );
}

#[test]
fn below_level_two_a_lost_connection_ends_the_session() {
    for erl in ["0", "1"] {
        let mut harness = level(erl);
        harness.initiator().command(LUN, &[0x28], 512, Bytes::new());
        harness.take_command();
        harness.session.handle_closed(harness.links[0].handle, harness.now);
        harness.run();
        assert!(matches!(
            harness.events[..],
            [Event::Abort(_), Event::Ended(EndReason::ConnectionLost)]
        ));
    }
}

#[test]
fn a_connection_is_removed_for_recovery_and_reinstated() {
    let mut harness = level("2");
    let second = harness.join(1);
    harness.links[second].initiator.cmd_sn = harness.links[0].initiator.cmd_sn;
    let itt = harness.links[second].initiator.command(LUN, &[0x28], 512, Bytes::new());
    let task = harness.take_command().task;
    let (tag, exp_stat_sn) = (harness.initiator().tag(), harness.initiator().exp_stat_sn);
    let cmd_sn = harness.links[second].initiator.cmd_sn;
    harness.initiator().cmd_sn = cmd_sn;
    let reason = LogoutReason::REMOVE_FOR_RECOVERY;
    let cid = zgate_iscsi::names::Cid(1);
    harness.initiator().send(
        LogoutRequest { immediate: true, reason, itt: tag, cid, cmd_sn, exp_stat_sn }.encode(),
    );
    harness.run();
    assert!(
        matches!(harness.events[..], [Event::Close(h, CloseReason::Logout)] if h == harness.links[second].handle)
    );
    harness.links[0].initiator.open(itt, LUN, Bytes::new());
    assert_eq!(reassign(&mut harness, 0, itt, 0), Some(TaskResult::COMPLETE));
    harness.good(task, pattern(512));
    assert!(harness.notices(0).iter().any(|n| matches!(n, Notice::Done { status: 0, .. })));
    // The same CID logs in again while the old connection is still open.
    let third = harness.join(0);
    let replaced = harness.links[0].handle;
    harness.run();
    assert!(
        harness
            .events
            .iter()
            .any(|e| matches!(e, Event::Close(h, CloseReason::Reinstated) if *h == replaced))
    );
    assert_eq!(harness.session.connections().count(), 1);
    assert_eq!(
        harness.session.connections().next().map(|c| c.handle),
        Some(harness.links[third].handle)
    );
}

/// RFC 7143 §11.15.3-4: the times begin with the response, however late the loss was noticed.
#[test]
fn tasks_of_a_lost_connection_are_kept_from_its_logout_on() {
    let mut harness = level("2");
    let second = harness.join(1);
    let itt = harness.links[second].initiator.command(LUN, &[0x28], 512, Bytes::new());
    let task = harness.take_command().task;
    harness.session.handle_closed(harness.links[second].handle, harness.now);
    harness.pass_time(Duration::from_secs(20));
    let cmd_sn = harness.links[second].initiator.cmd_sn;
    let initiator = harness.initiator();
    initiator.cmd_sn = cmd_sn;
    let (tag, exp_stat_sn) = (initiator.tag(), initiator.exp_stat_sn);
    let (reason, cid) = (LogoutReason::REMOVE_FOR_RECOVERY, zgate_iscsi::names::Cid(1));
    let logout = LogoutRequest { immediate: true, reason, itt: tag, cid, cmd_sn, exp_stat_sn };
    initiator.send(logout.encode());
    harness.run();
    harness.pass_time(Duration::from_secs(20));
    assert!(harness.events.is_empty(), "nothing was aborted");
    harness.links[0].initiator.open(itt, LUN, Bytes::new());
    assert_eq!(reassign(&mut harness, 0, itt, 0), Some(TaskResult::COMPLETE));
    harness.good(task, pattern(512));
    let is_done = |n: &Notice| matches!(n, Notice::Done { status: 0, .. });
    assert!(harness.notices(0).iter().any(is_done));
}

/// All commands of the window are sent before there is a status that they could acknowledge.
#[test]
fn retained_statuses_leave_room_in_the_window_and_are_asked_about() {
    const WINDOW: u32 = 8;
    let offer = Offer { command_window: WINDOW, ..Offer::default() };
    let mut harness = Harness::with_offer(&[("ErrorRecoveryLevel", "1")], offer);
    let nothing = harness.initiator().exp_stat_sn;
    for _ in 0..WINDOW {
        harness.initiator().command(LUN, &[0x28], 512, Bytes::new());
    }
    harness.run();
    let commands = std::mem::take(&mut harness.commands);
    assert_eq!(commands.len(), WINDOW as usize, "the window is full");
    for command in commands {
        harness.good(command.task, pattern(512));
    }
    assert_eq!(harness.notices(0).len(), WINDOW as usize);
    let initiator = harness.initiator();
    let room = initiator.max_cmd_sn.next().ahead_of(initiator.cmd_sn);
    assert_eq!(room, WINDOW as i32 / 2, "commands that may be sent");
    let unacknowledged = |harness: &Harness| {
        harness.session.connections().map(|conn| conn.unacknowledged as usize).sum::<usize>()
    };
    assert_eq!(unacknowledged(&harness), WINDOW as usize);
    // A PDU that acknowledges nothing is answered with a ping.
    let (cmd_sn, all) = (harness.initiator().cmd_sn, harness.initiator().exp_stat_sn);
    let nop = |ttt, exp_stat_sn| {
        let (immediate, lun, itt) = (true, Lun(0), Itt::NONE);
        NopOut { immediate, lun, itt, ttt, cmd_sn, exp_stat_sn }.encode(Bytes::new())
    };
    harness.initiator().automatic = false;
    harness.sent.clear();
    harness.initiator().send(nop(Ttt::NONE, nothing));
    harness.run();
    let pings = harness.sent.iter().filter(|(_, bhs)| bhs.opcode() == Opcode::NOP_IN);
    let asked: Vec<_> = pings.map(|(_, bhs)| bhs.ttt()).collect();
    assert!(asked.len() == 1 && asked[0] != Ttt::NONE, "{asked:?}");
    harness.initiator().send(nop(asked[0], all));
    harness.run();
    assert_eq!(unacknowledged(&harness), 0);
}

#[test]
fn data_that_nobody_acknowledges_is_kept_within_bounds() {
    const READ: u32 = 16 << 20;
    let keys = [("ErrorRecoveryLevel", "2"), ("MaxRecvDataSegmentLength", "4194304")];
    let mut harness = Harness::new(&keys);
    let itts: Vec<_> =
        (0..6).map(|_| harness.initiator().command(LUN, &[0x28], READ, Bytes::new())).collect();
    harness.run();
    let data = Bytes::from(vec![7; READ as usize]);
    for command in std::mem::take(&mut harness.commands) {
        harness.session.complete(
            command.task,
            Completion { data_in: vec![Payload::Bytes(data.clone())], ..Completion::default() },
        );
    }
    harness.run();
    let done = |notice: &Notice| matches!(notice, Notice::Done { .. });
    assert_eq!(harness.notices(0).iter().filter(|notice| done(notice)).count(), 6);
    // Four of them fit into 64 MiB.
    for (number, itt) in itts.iter().enumerate() {
        let before = rejected(&harness).len();
        let exp = harness.initiator().exp_stat_sn;
        harness.initiator().exp_stat_sn = Sn(exp.0.wrapping_sub(100));
        snack(&mut harness, 0, SnackKind::DataOrR2t, *itt, Ttt::NONE, 0, 1);
        harness.initiator().exp_stat_sn = exp;
        assert_eq!(rejected(&harness).len() > before, number < 2, "{number}");
    }
    // After the loss of the connection they wait for recovery, within the same
    // bound.
    harness.session.handle_closed(harness.links[0].handle, harness.now);
    harness.run();
    assert!(!harness.session.is_ended());
}

#[test]
fn a_header_digest_error_closes_the_connection() {
    for erl in ["0", "1", "2"] {
        let mut harness = level(erl);
        harness.initiator().command(LUN, &[0x28], 512, Bytes::new());
        let task = harness.take_command().task;
        harness.session.handle_framing_error(harness.links[0].handle, harness.now);
        harness.run();
        assert!(matches!(harness.events[0], Event::Close(_, CloseReason::Protocol)));
        if erl == "2" {
            assert_eq!(
                (harness.events.len(), harness.session.task_count()),
                (1, 1),
                "kept for recovery"
            );
        } else {
            assert!(matches!(harness.events[1], Event::Abort(t) if t == task));
            assert!(harness.session.is_ended());
        }
    }
}

#[test]
fn data_out_that_comes_twice_is_passed_over() {
    for erl in ["1", "2"] {
        let mut harness = level(erl);
        harness.initiator().automatic = false;
        harness.initiator().command(LUN, &[0x2a], 0, pattern(300_000));
        harness.run();
        while harness.commands.is_empty() {
            let notices = harness.notices(0).into_iter();
            let r2ts: Vec<_> = notices
                .filter_map(|n| match n {
                    Notice::Other(frame) => Some(R2t::parse(&frame.bhs)),
                    _ => None,
                })
                .collect();
            assert!(!r2ts.is_empty(), "the task goes on");
            r2ts.into_iter().for_each(|r2t| harness.initiator().answer(r2t));
            let sent: Vec<_> = std::iter::from_fn(|| harness.initiator().poll_transmit()).collect();
            for pdu in sent {
                harness.initiator().send(pdu.clone());
                harness.initiator().send(pdu);
            }
            harness.run();
        }
        assert_eq!(harness.take_command().data_out.concat(), pattern(300_000));
    }
}
