//! Digest errors and losses at every error recovery level, SNACK, connection
//! recovery.
#![allow(clippy::unwrap_used)]

mod rig;

use bytes::Bytes;
use rig::{Rig, pattern};
use std::time::Duration;
use zgate_iscsi::initiator::Notice;
use zgate_iscsi::login::Offer;
use zgate_iscsi::pdu::*;
use zgate_iscsi::serial::Sn;
use zgate_iscsi::session::*;
use zgate_store::Payload;

const LUN: Lun = Lun(0x0001_0000_0000_0000);

fn level(level: &str) -> Rig {
    Rig::new(&[
        ("ErrorRecoveryLevel", level),
        ("MaxRecvDataSegmentLength", "4096"),
        ("MaxBurstLength", "8192"),
        ("MaxConnections", "2"),
    ])
}

/// Damages the first PDU of a kind.
fn damage_one(rig: &mut Rig, opcode: Opcode) {
    let mut left = 1;
    rig.damage = Box::new(move |bhs| {
        let hit = left > 0 && bhs.opcode() == opcode;
        left -= usize::from(hit);
        hit
    });
}

fn lose_one(rig: &mut Rig, at: usize, opcode: Opcode) {
    let mut seen = 0;
    rig.lose = Box::new(move |bhs| {
        let hit = bhs.opcode() == opcode && seen == at;
        seen += usize::from(bhs.opcode() == opcode);
        hit
    });
}

fn rejected(rig: &Rig) -> Vec<RejectReason> {
    let is_reject = |(_, bhs): &&(usize, Bhs)| bhs.opcode() == Opcode::REJECT;
    rig.sent.iter().filter(is_reject).map(|(_, bhs)| Reject::parse(bhs).reason).collect()
}

fn snack(
    rig: &mut Rig,
    index: usize,
    kind: SnackKind,
    itt: Itt,
    ttt: Ttt,
    begin_run: u32,
    run_length: u32,
) {
    let exp_stat_sn = rig.links[index].initiator.exp_stat_sn;
    let pdu = Snack { kind, lun: Lun(0), itt, ttt, exp_stat_sn, begin_run, run_length };
    rig.links[index].initiator.send(pdu.encode());
    rig.run();
}

#[test]
fn damaged_data_out_by_level() {
    for opcode in [Opcode::DATA_OUT, Opcode::SCSI_COMMAND] {
        let mut rig = level("0");
        damage_one(&mut rig, opcode);
        rig.initiator().command(LUN, &[0x2a], 0, pattern(300_000));
        rig.run();
        assert!(rig.commands.is_empty());
        assert_eq!(rejected(&rig), [RejectReason::DATA_DIGEST_ERROR]);
        let done = rig.notices(0).into_iter().find_map(|n| match n {
            Notice::Done { status, sense, .. } => Some((status, sense[12], sense[13])),
            _ => None,
        });
        assert_eq!(done, Some((2, 0x47, 5)));

        for erl in ["1", "2"] {
            let mut rig = level(erl);
            damage_one(&mut rig, opcode);
            rig.initiator().command(LUN, &[0x2a], 0, pattern(300_000));
            assert_eq!(rig.take_command().data_out.concat(), pattern(300_000));
            assert_eq!(rejected(&rig), [RejectReason::DATA_DIGEST_ERROR]);
        }
    }
}

#[test]
fn damage_without_end_fails_the_task() {
    let mut rig = level("1");
    rig.damage = Box::new(|bhs| bhs.opcode() == Opcode::DATA_OUT);
    rig.initiator().command(LUN, &[0x2a], 0, pattern(300_000));
    rig.run();
    assert!(rig.commands.is_empty() && rig.session.task_count() == 0);
}

#[test]
fn a_damaged_other_pdu_is_discarded() {
    let mut rig = level("1");
    damage_one(&mut rig, Opcode::NOP_OUT);
    let (itt, cmd_sn, exp_stat_sn) =
        (rig.initiator().tag(), rig.initiator().cmd_sn, rig.initiator().exp_stat_sn);
    let nop = NopOut { immediate: false, lun: Lun(0), itt, ttt: Ttt::NONE, cmd_sn, exp_stat_sn };
    rig.initiator().send(nop.encode(Bytes::from_static(b"one")));
    rig.initiator().send(nop.encode(Bytes::from_static(b"two")));
    rig.run();
    assert_eq!(rejected(&rig), [RejectReason::DATA_DIGEST_ERROR]);
    let Some(Notice::Other(frame)) = rig.notices(0).pop() else { panic!("echo") };
    assert_eq!(frame.contiguous_data(), &b"two"[..], "the number was not used up");
}

#[test]
fn lost_data_in_and_status_come_again() {
    let mut rig = level("1");
    lose_one(&mut rig, 1, Opcode::DATA_IN);
    let itt = rig.initiator().command(LUN, &[0x28], 20_000, Bytes::new());
    let task = rig.take_command().task;
    let sense = Bytes::from_static(&[0x70; 18]);
    let data_in = vec![zgate_store::Payload::Bytes(pattern(20_000))];
    rig.lose = {
        let mut data = 0;
        Box::new(move |bhs| {
            data += usize::from(bhs.opcode() == Opcode::DATA_IN);
            bhs.opcode() == Opcode::SCSI_RESPONSE || (bhs.opcode() == Opcode::DATA_IN && data == 2)
        })
    };
    rig.session.complete(task, Completion { status: 2, sense, data_in, ..Completion::default() });
    rig.run();
    rig.lose = Box::new(|_| false);
    rig.sent.clear();
    snack(&mut rig, 0, SnackKind::DataOrR2t, itt, Ttt::NONE, 1, 1);
    let again: Vec<_> = rig.sent.iter().map(|(_, bhs)| DataIn::parse(bhs).data_sn).collect();
    assert_eq!(again, [1]);
    snack(&mut rig, 0, SnackKind::Status, Itt::NONE, Ttt::NONE, 0, 0);
    let done = rig.notices(0).into_iter().find_map(|n| match n {
        Notice::Done { status, data, .. } => Some((status, data)),
        _ => None,
    });
    assert_eq!(done, Some((2, pattern(20_000))));
    // Acknowledged, it is gone.
    snack(&mut rig, 0, SnackKind::Status, Itt::NONE, Ttt::NONE, 0, 0);
    rig.sent.clear();
    snack(&mut rig, 0, SnackKind::DataOrR2t, itt, Ttt::NONE, 0, 1);
    assert_eq!(rejected(&rig), [RejectReason::SNACK_REJECT]);
}

#[test]
fn snack_out_of_place_is_rejected() {
    let mut rig = level("0");
    snack(&mut rig, 0, SnackKind::Status, Itt::NONE, Ttt::NONE, 0, 0);
    assert_eq!(rejected(&rig), [RejectReason::PROTOCOL_ERROR]);
    let mut rig = level("1");
    let itt = rig.initiator().command(LUN, &[0x28], 20_000, Bytes::new());
    let task = rig.take_command().task;
    rig.good(task, pattern(20_000));
    rig.sent.clear();
    snack(&mut rig, 0, SnackKind::DataOrR2t, Itt(999), Ttt::NONE, 0, 0);
    assert_eq!(rejected(&rig), [RejectReason::SNACK_REJECT]);
    let _ = itt;
}

#[test]
fn data_is_acknowledged() {
    let mut rig = level("1");
    rig.lose = Box::new(|bhs| bhs.opcode() == Opcode::DATA_IN && bhs.flags() & 1 != 0);
    let itt = rig.initiator().command(LUN, &[0x28], 20_000, Bytes::new());
    let task = rig.take_command().task;
    rig.good(task, pattern(20_000));
    let asked: Vec<_> =
        rig.sent.iter().map(|(_, bhs)| DataIn::parse(bhs)).filter(|d| d.acknowledge).collect();
    assert_eq!(asked.iter().map(|d| d.data_sn).collect::<Vec<_>>(), [1, 3], "at the end of bursts");
    snack(&mut rig, 0, SnackKind::DataAck, itt, asked[1].ttt, 4, 0);
    assert!(rejected(&rig).is_empty());
    snack(&mut rig, 0, SnackKind::DataAck, itt, asked[1].ttt, 99, 0);
    assert_eq!(rejected(&rig), [RejectReason::INVALID_DATA_ACK]);
    rig.lose = Box::new(|_| false);
    rig.sent.clear();
    snack(&mut rig, 0, SnackKind::DataOrR2t, itt, Ttt::NONE, 2, 0);
    assert_eq!(rejected(&rig), [RejectReason::SNACK_REJECT], "what was acknowledged is gone");
    snack(&mut rig, 0, SnackKind::DataOrR2t, itt, Ttt::NONE, 4, 0);
    assert!(rig.notices(0).iter().any(|n| matches!(n, Notice::Done { status: 0, .. })));
}

#[test]
fn data_is_cut_anew_for_another_segment_length() {
    let mut rig = level("1");
    rig.lose = Box::new(|bhs| bhs.opcode() == Opcode::DATA_IN);
    let itt = rig.initiator().command(LUN, &[0x28], 8192, Bytes::new());
    let task = rig.take_command().task;
    rig.good(task, pattern(8192));
    let (text_itt, cmd_sn, exp_stat_sn) =
        (rig.initiator().tag(), rig.initiator().cmd_sn, rig.initiator().exp_stat_sn);
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
    rig.initiator().send(request.encode(Bytes::from_static(b"MaxRecvDataSegmentLength=1024\0")));
    rig.run();
    rig.lose = Box::new(|_| false);
    rig.sent.clear();
    snack(&mut rig, 0, SnackKind::DataOrR2t, itt, Ttt::NONE, 0, 0);
    assert_eq!(rejected(&rig), [RejectReason::SNACK_REJECT], "only R-Data will do");
    rig.sent.clear();
    snack(&mut rig, 0, SnackKind::ResegmentData, itt, Ttt(0x55), 0, 0);
    let (response, data) = rig.sent.split_last().unwrap();
    assert_eq!((data.len(), ScsiResponse::parse(&response.1).snack_tag), (8, 0x55));
    let data = rig.notices(0).into_iter().find_map(|n| match n {
        Notice::Done { data, .. } => Some(data),
        _ => None,
    });
    assert_eq!(data, Some(pattern(8192)));
}

#[test]
fn a_lost_r2t_comes_again() {
    let mut rig = level("1");
    lose_one(&mut rig, 0, Opcode::R2T);
    let itt = rig.initiator().command(LUN, &[0x2a], 0, pattern(300_000));
    rig.run();
    assert!(rig.commands.is_empty());
    snack(&mut rig, 0, SnackKind::DataOrR2t, itt, Ttt::NONE, 0, 0);
    assert_eq!(rig.take_command().data_out.concat(), pattern(300_000));
}

fn reassign(rig: &mut Rig, index: usize, referenced: Itt, exp_data_sn: u32) -> Option<TaskResult> {
    let initiator = &mut rig.links[index].initiator;
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
    rig.run();
    let mut others = Vec::new();
    let mut result = None;
    for notice in rig.notices(index) {
        match notice {
            Notice::Function(i, r) if i == itt => result = Some(r),
            other => others.push(other),
        }
    }
    rig.held.extend(others);
    result
}

#[test]
fn tasks_survive_their_connection() {
    let mut rig = level("2");
    rig.lose = Box::new(|bhs| bhs.opcode() == Opcode::DATA_IN || bhs.opcode() == Opcode::R2T);
    // A read whose answer is lost, one still running, a write without R2T.
    let answered = rig.initiator().command(LUN, &[0x28, 1], 8192, Bytes::new());
    let task = rig.take_command().task;
    rig.good(task, pattern(8192));
    let running = rig.initiator().command(LUN, &[0x28, 2], 4096, Bytes::new());
    let running_task = rig.take_command().task;
    let writing = rig.initiator().command(LUN, &[0x2a], 0, pattern(300_000));
    rig.run();
    rig.session.handle_closed(rig.links[0].handle, rig.now);
    rig.run();
    assert!(rig.events.is_empty() && rig.session.task_count() == 2, "nothing ends");
    rig.lose = Box::new(|_| false);
    let second = rig.join(1);
    rig.links[second].initiator.cmd_sn = rig.links[0].initiator.cmd_sn;
    for itt in [answered, running] {
        rig.links[second].initiator.open(itt, LUN, Bytes::new());
    }
    rig.links[second].initiator.open(writing, LUN, pattern(300_000));
    rig.session.complete(
        running_task,
        Completion {
            data_in: vec![zgate_store::Payload::Bytes(pattern(4096))],
            ..Completion::default()
        },
    );
    for itt in [answered, running, writing] {
        assert_eq!(reassign(&mut rig, second, itt, 0), Some(TaskResult::COMPLETE), "{itt:?}");
    }
    let command = rig.take_command();
    assert_eq!(command.data_out.concat(), pattern(300_000));
    assert_eq!(reassign(&mut rig, second, writing, 0), Some(TaskResult::TASK_STILL_ALLEGIANT));
    assert_eq!(reassign(&mut rig, second, Itt(4711), 0), Some(TaskResult::TASK_DOES_NOT_EXIST));
    rig.good(command.task, Bytes::new());
    let held = std::mem::take(&mut rig.held).into_iter().chain(rig.notices(second));
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
    let mut rig = level("2");
    rig.initiator().command(LUN, &[0x28], 512, Bytes::new());
    let task = rig.take_command().task;
    rig.session.handle_closed(rig.links[0].handle, rig.now);
    rig.pass_time(Duration::from_secs(21));
    assert!(rig.events.is_empty());
    rig.pass_time(Duration::from_secs(1));
    assert!(
        matches!(rig.events[..], [Event::Abort(t), Event::Ended(EndReason::ConnectionLost)] if t == task)
    );
}

#[test]
fn below_level_two_a_lost_connection_ends_the_session() {
    for erl in ["0", "1"] {
        let mut rig = level(erl);
        rig.initiator().command(LUN, &[0x28], 512, Bytes::new());
        rig.take_command();
        rig.session.handle_closed(rig.links[0].handle, rig.now);
        rig.run();
        assert!(matches!(
            rig.events[..],
            [Event::Abort(_), Event::Ended(EndReason::ConnectionLost)]
        ));
    }
}

#[test]
fn a_connection_is_removed_for_recovery_and_reinstated() {
    let mut rig = level("2");
    let second = rig.join(1);
    rig.links[second].initiator.cmd_sn = rig.links[0].initiator.cmd_sn;
    let itt = rig.links[second].initiator.command(LUN, &[0x28], 512, Bytes::new());
    let task = rig.take_command().task;
    let (tag, exp_stat_sn) = (rig.initiator().tag(), rig.initiator().exp_stat_sn);
    let cmd_sn = rig.links[second].initiator.cmd_sn;
    rig.initiator().cmd_sn = cmd_sn;
    let reason = LogoutReason::REMOVE_FOR_RECOVERY;
    let cid = zgate_iscsi::names::Cid(1);
    rig.initiator().send(
        LogoutRequest { immediate: true, reason, itt: tag, cid, cmd_sn, exp_stat_sn }.encode(),
    );
    rig.run();
    assert!(
        matches!(rig.events[..], [Event::Close(h, CloseReason::Logout)] if h == rig.links[second].handle)
    );
    rig.links[0].initiator.open(itt, LUN, Bytes::new());
    assert_eq!(reassign(&mut rig, 0, itt, 0), Some(TaskResult::COMPLETE));
    rig.good(task, pattern(512));
    assert!(rig.notices(0).iter().any(|n| matches!(n, Notice::Done { status: 0, .. })));
    // The same CID logs in again while the old one is still open.
    let third = rig.join(0);
    let replaced = rig.links[0].handle;
    rig.run();
    assert!(
        rig.events
            .iter()
            .any(|e| matches!(e, Event::Close(h, CloseReason::Reinstated) if *h == replaced))
    );
    assert_eq!(rig.session.connections().count(), 1);
    assert_eq!(rig.session.connections().next().map(|c| c.handle), Some(rig.links[third].handle));
}

#[test]
fn retained_statuses_are_asked_about_before_they_close_the_window() {
    let offer = Offer { command_window: 8, ..Offer::default() };
    let mut rig = Rig::with_offer(&[("ErrorRecoveryLevel", "1")], offer);
    for _ in 0..100 {
        rig.initiator().command(LUN, &[0x28], 512, Bytes::new());
        let exp = rig.initiator().exp_stat_sn;
        let _ = exp;
        let task = rig.take_command().task;
        rig.good(task, pattern(512));
    }
    assert_eq!(rig.notices(0).len(), 100);
}

#[test]
fn data_that_nobody_acknowledges_is_kept_within_bounds() {
    const READ: u32 = 16 << 20;
    let keys = [("ErrorRecoveryLevel", "2"), ("MaxRecvDataSegmentLength", "4194304")];
    let mut rig = Rig::new(&keys);
    let itts: Vec<_> =
        (0..6).map(|_| rig.initiator().command(LUN, &[0x28], READ, Bytes::new())).collect();
    rig.run();
    let data = Bytes::from(vec![7; READ as usize]);
    for command in std::mem::take(&mut rig.commands) {
        rig.session.complete(
            command.task,
            Completion { data_in: vec![Payload::Bytes(data.clone())], ..Completion::default() },
        );
    }
    rig.run();
    let done = |notice: &Notice| matches!(notice, Notice::Done { .. });
    assert_eq!(rig.notices(0).iter().filter(|notice| done(notice)).count(), 6);
    // Four of them fit into 64 MiB.
    for (number, itt) in itts.iter().enumerate() {
        let before = rejected(&rig).len();
        let exp = rig.initiator().exp_stat_sn;
        rig.initiator().exp_stat_sn = Sn(exp.0.wrapping_sub(100));
        snack(&mut rig, 0, SnackKind::DataOrR2t, *itt, Ttt::NONE, 0, 1);
        rig.initiator().exp_stat_sn = exp;
        assert_eq!(rejected(&rig).len() > before, number < 2, "{number}");
    }
    // With the connection gone they wait for it, within the same bound.
    rig.session.handle_closed(rig.links[0].handle, rig.now);
    rig.run();
    assert!(!rig.session.is_ended());
}

#[test]
fn a_header_digest_error_closes_the_connection() {
    for erl in ["0", "1", "2"] {
        let mut rig = level(erl);
        rig.initiator().command(LUN, &[0x28], 512, Bytes::new());
        let task = rig.take_command().task;
        rig.session.handle_framing_error(rig.links[0].handle, rig.now);
        rig.run();
        assert!(matches!(rig.events[0], Event::Close(_, CloseReason::Protocol)));
        if erl == "2" {
            assert_eq!((rig.events.len(), rig.session.task_count()), (1, 1), "kept for recovery");
        } else {
            assert!(matches!(rig.events[1], Event::Abort(t) if t == task));
            assert!(rig.session.is_ended());
        }
    }
}

#[test]
fn data_out_that_comes_twice_is_passed_over() {
    for erl in ["1", "2"] {
        let mut rig = level(erl);
        rig.initiator().automatic = false;
        rig.initiator().command(LUN, &[0x2a], 0, pattern(300_000));
        rig.run();
        while rig.commands.is_empty() {
            let notices = rig.notices(0).into_iter();
            let r2ts: Vec<_> = notices
                .filter_map(|n| match n {
                    Notice::Other(frame) => Some(R2t::parse(&frame.bhs)),
                    _ => None,
                })
                .collect();
            assert!(!r2ts.is_empty(), "the task goes on");
            r2ts.into_iter().for_each(|r2t| rig.initiator().answer(r2t));
            let sent: Vec<_> = std::iter::from_fn(|| rig.initiator().poll_transmit()).collect();
            for pdu in sent {
                rig.initiator().send(pdu.clone());
                rig.initiator().send(pdu);
            }
            rig.run();
        }
        assert_eq!(rig.take_command().data_out.concat(), pattern(300_000));
    }
}
