//! Commands, data in both directions, the command window, text, NOP, logout.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use std::time::Duration;
use zgate_iscsi::access::TargetListing;
use zgate_iscsi::directory::Claim;
use zgate_iscsi::initiator::{Initiator, LoginScript, Notice};
use zgate_iscsi::login::Offer;
use zgate_iscsi::names::{Cid, IscsiName, PortalGroup};
use zgate_iscsi::pdu::*;
use zgate_iscsi::serial::Sn;
use zgate_iscsi::session::*;
use zgate_iscsi::time::Timestamp;
use zgate_store::Payload;
use zgate_test_harness::iscsi::{
    Harness, INITIATOR, LUN, Target, pattern, scsi_command, write_command,
};

fn write_all(keys: &[(&str, &str)], offer: Offer, len: usize) -> (Harness, Command) {
    let mut harness = Harness::with_offer(keys, offer);
    let data = pattern(len);
    harness.initiator().command(LUN, &[0x2a], 0, data.clone());
    let command = harness.take_command();
    assert_eq!(command.data_out.concat(), data);
    harness.good(command.task, Bytes::new());
    let [Notice::Done { status: 0, residual: Residual::None, .. }] = harness.notices(0)[..] else {
        panic!("good status")
    };
    (harness, command)
}

fn r2ts(harness: &Harness) -> Vec<(u32, u32, u32)> {
    let is_r2t = |(_, bhs): &&(usize, Bhs)| bhs.opcode() == Opcode::R2T;
    let shape = |r: R2t| (r.r2t_sn, r.offset, r.desired_bytes);
    harness.sent.iter().filter(is_r2t).map(|(_, bhs)| shape(R2t::parse(bhs))).collect()
}

#[test]
fn writes_with_every_kind_of_data() {
    for immediate in ["Yes", "No"] {
        for digest in ["None", "CRC32C"] {
            for outstanding in ["1", "4"] {
                let keys = [
                    ("ImmediateData", immediate),
                    ("InitialR2T", "No"),
                    ("HeaderDigest", digest),
                    ("DataDigest", digest),
                    ("FirstBurstLength", "8192"),
                    ("MaxBurstLength", "16384"),
                    ("MaxOutstandingR2T", outstanding),
                ];
                let (harness, _) = write_all(&keys, Offer::default(), 50_000);
                let first = if immediate == "Yes" { 8192 } else { 0 };
                let total: u32 = r2ts(&harness).iter().map(|r| r.2).sum();
                assert_eq!(total, 50_000 - first);
                assert!(r2ts(&harness).iter().all(|r| r.2 <= 16384));
                assert!(r2ts(&harness).iter().enumerate().all(|(i, r)| r.0 == i as u32));
            }
        }
    }
}

#[test]
fn data_in_any_order_when_agreed() {
    let offer =
        Offer { data_pdu_in_order: false, data_sequence_in_order: false, ..Offer::default() };
    let mut harness =
        Harness::with_offer(&[("DataPDUInOrder", "No"), ("DataSequenceInOrder", "No")], offer);
    assert!(!harness.session.params().data_pdu_in_order);
    harness.initiator().automatic = false;
    let data = pattern(12288);
    let (itt, cmd_sn) = (harness.initiator().tag(), harness.initiator().number());
    harness.initiator().send(write_command(itt, cmd_sn, 12288).encode(Bytes::new()));
    harness.run();
    let Notice::Other(frame) = &harness.notices(0)[0] else { panic!("R2T") };
    let ttt = R2t::parse(&frame.bhs).ttt;
    for (data_sn, offset) in [8192u32, 0, 4096].into_iter().enumerate() {
        let pdu = data_out(itt, ttt, data_sn as u32, offset, data_sn == 2);
        let at = offset as usize;
        harness.initiator().send(pdu.encode(data.slice(at..at + 4096)));
    }
    assert_eq!(harness.take_command().data_out.concat(), data);
}

fn data_out(itt: Itt, ttt: Ttt, data_sn: u32, offset: u32, is_final: bool) -> DataOut {
    DataOut { is_final, lun: LUN, itt, ttt, exp_stat_sn: Sn(0), data_sn, offset }
}

/// Sends a write of two PDUs of 512 bytes with the given DataSNs and offsets,
/// solicited or not; returns the sense code of the response.
fn misnumbered(unsolicited: bool, pdus: &[(u32, u32)]) -> Option<(u8, u8)> {
    let mut harness = Harness::new(&[("InitialR2T", "No"), ("ImmediateData", "No")]);
    harness.initiator().automatic = false;
    let (itt, cmd_sn) = (harness.initiator().tag(), harness.initiator().number());
    harness.initiator().open(itt, LUN, Bytes::new());
    let command = ScsiCommand { is_final: !unsolicited, ..write_command(itt, cmd_sn, 1024) };
    harness.initiator().send(command.encode(Bytes::new()));
    harness.run();
    let ttt = match harness.notices(0).first() {
        Some(Notice::Other(frame)) => R2t::parse(&frame.bhs).ttt,
        _ => Ttt::NONE,
    };
    for (i, &(data_sn, offset)) in pdus.iter().enumerate() {
        let pdu = data_out(itt, ttt, data_sn, offset, i + 1 == pdus.len());
        harness.initiator().send(pdu.encode(Bytes::from(vec![1; 512])));
    }
    harness.run();
    match harness.notices(0).pop() {
        Some(Notice::Done { status: 2, sense, .. }) => Some((sense[12], sense[13])),
        None => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn misnumbered_data_fails_the_command() {
    for unsolicited in [true, false] {
        assert_eq!(misnumbered(unsolicited, &[(0, 0), (0, 512)]), Some((0x47, 5)));
        assert_eq!(misnumbered(unsolicited, &[(27, 0)]), Some((0x47, 5)));
        assert_eq!(misnumbered(unsolicited, &[(u32::MAX, 0)]), Some((0x47, 5)));
        assert_eq!(misnumbered(unsolicited, &[(1, 0), (0, 512)]), Some((0x47, 5)));
        assert_eq!(misnumbered(unsolicited, &[(0, 0), (1, 1024)]), Some((0x0c, 0x0d)));
    }
    assert_eq!(misnumbered(false, &[(0, 0)]), Some((0x0c, 0x0d)), "too little");
}

#[test]
fn unwelcome_unsolicited_data_is_refused() {
    let mut harness = Harness::with_offer(
        &[("InitialR2T", "Yes"), ("ImmediateData", "No")],
        Offer { immediate_data: false, ..Offer::default() },
    );
    harness.initiator().automatic = false;
    let (itt, cmd_sn) = (harness.initiator().tag(), harness.initiator().number());
    harness.initiator().open(itt, LUN, Bytes::new());
    harness.initiator().send(write_command(itt, cmd_sn, 1024).encode(vec![1; 512].into()));
    harness.run();
    let Some(Notice::Done { status: 2, sense, .. }) = harness.notices(0).pop() else {
        panic!("sense")
    };
    assert_eq!((sense[12], sense[13]), (0x0c, 0x0c));
}

#[test]
fn reads_are_cut_and_residuals_told() {
    let mut harness =
        Harness::new(&[("MaxRecvDataSegmentLength", "4096"), ("MaxBurstLength", "10000")]);
    let data = pattern(30_000);
    for (asked, given, residual) in [
        (30_000, 30_000, Residual::None),
        (40_000, 30_000, Residual::Underflow(10_000)),
        (20_000, 30_000, Residual::Overflow(10_000)),
    ] {
        harness.initiator().command(LUN, &[0x28], asked, Bytes::new());
        let task = harness.take_command().task;
        harness.sent.clear();
        harness.good(task, data.slice(..given));
        let Some(Notice::Done { status: 0, data: got, residual: told, .. }) =
            harness.notices(0).pop()
        else {
            panic!("good")
        };
        assert_eq!(told, residual);
        assert_eq!(got, data.slice(..given.min(asked as usize)));
        assert!(
            harness
                .sent
                .iter()
                .all(|(_, bhs)| bhs.opcode() == Opcode::DATA_IN && bhs.data_bytes() <= 4096)
        );
    }
}

#[test]
fn wanted_bytes_decide_the_residual_of_a_write() {
    let mut harness = Harness::new(&[]);
    for (wanted, residual) in [(512, Residual::Underflow(512)), (2048, Residual::Overflow(1024))] {
        harness.initiator().command(LUN, &[0x2a], 0, pattern(1024));
        let task = harness.take_command().task;
        harness
            .session
            .complete(task, Completion { wanted_bytes: Some(wanted), ..Completion::default() });
        harness.run();
        let Some(Notice::Done { residual: told, .. }) = harness.notices(0).pop() else {
            panic!("done")
        };
        assert_eq!(told, residual);
    }
}

#[test]
fn sense_travels_in_a_response() {
    let mut harness = Harness::new(&[]);
    harness.initiator().command(LUN, &[0x28], 512, Bytes::new());
    let task = harness.take_command().task;
    let sense = Bytes::from_static(&[0x70, 0, 5, 0, 0, 0, 0, 10]);
    harness
        .session
        .complete(task, Completion { status: 2, sense: sense.clone(), ..Completion::default() });
    harness.run();
    let Some(Notice::Done { status: 2, sense: told, residual, .. }) = harness.notices(0).pop()
    else {
        panic!()
    };
    assert_eq!((told, residual), (sense, Residual::Underflow(512)));
    // The same tag a second time is unknown.
    harness.session.complete(task, Completion::default());
    harness.run();
    assert!(harness.notices(0).is_empty());
}

#[test]
fn numbers_outside_the_window_are_ignored() {
    let mut harness = Harness::new(&[]);
    let max = harness.initiator().max_cmd_sn;
    let first = harness.initiator().cmd_sn;
    for cmd_sn in [max.next(), first.plus(u32::MAX)] {
        let itt = harness.initiator().tag();
        harness.initiator().send(write_command(itt, cmd_sn, 0).encode(Bytes::new()));
    }
    harness.run();
    assert!(harness.commands.is_empty() && harness.sent.is_empty());
    harness.initiator().command(LUN, &[0], 0, Bytes::new());
    let task = harness.take_command().task;
    harness.good(task, Bytes::new());
    assert_eq!(harness.notices(0).len(), 1);
}

#[test]
fn commands_are_put_in_order_and_the_window_closes() {
    let mut harness = Harness::with_offer(&[], Offer { command_window: 4, ..Offer::default() });
    let first = harness.initiator().cmd_sn;
    for i in [2u32, 1, 3, 2, 0] {
        let command = scsi_command(Itt(100 + i), first.plus(i));
        harness.initiator().send(command.encode(Bytes::new()));
    }
    harness.run();
    let order: Vec<_> = harness.commands.iter().map(|c| c.cmd_sn.ahead_of(first)).collect();
    assert_eq!(order, [0, 1, 2, 3]);
    let fifth = write_command(Itt(200), first.plus(4), 0);
    harness.initiator().send(fifth.encode(Bytes::new()));
    harness.run();
    assert_eq!(harness.commands.len(), 4, "the window is closed");
    let task = harness.commands[1].task;
    harness.good(task, Bytes::new());
    assert_eq!(harness.initiator().max_cmd_sn, first.plus(4));
}

#[test]
fn a_tag_in_use_is_rejected() {
    let mut harness = Harness::new(&[]);
    for _ in 0..2 {
        let cmd_sn = harness.initiator().number();
        harness.initiator().send(write_command(Itt(9), cmd_sn, 0).encode(Bytes::new()));
    }
    harness.run();
    assert_eq!(harness.commands.len(), 1);
    let Some(Notice::Other(frame)) = harness.notices(0).pop() else { panic!("Reject") };
    assert_eq!(Reject::parse(&frame.bhs).reason, RejectReason::TASK_IN_PROGRESS);
    assert_eq!(frame.contiguous_data().len(), 48);
}

#[test]
fn commands_spread_over_connections() {
    let mut harness = Harness::new(&[("MaxConnections", "2")]);
    let second = harness.join(1);
    let first_sn = harness.links[0].initiator.cmd_sn;
    harness.links[second].initiator.cmd_sn = first_sn.next();
    harness.links[second].initiator.command(LUN, &[0x12], 16, Bytes::new());
    harness.run();
    assert!(harness.commands.is_empty(), "its turn has not come");
    harness.links[0].initiator.command(LUN, &[0x12], 16, Bytes::new());
    harness.run();
    let (a, b) = (harness.commands.remove(0), harness.commands.remove(0));
    assert_eq!((a.conn, b.conn), (harness.links[0].handle, harness.links[second].handle));
    harness.good(b.task, pattern(16));
    harness.good(a.task, pattern(16));
    assert_eq!((harness.notices(0).len(), harness.notices(second).len()), (1, 1));
    // The loss of one connection at level 0 ends only its tasks.
    harness.links[second].initiator.cmd_sn = first_sn.plus(2);
    harness.links[second].initiator.command(LUN, &[0x12], 16, Bytes::new());
    let task = harness.take_command().task;
    harness.session.handle_closed(harness.links[second].handle, harness.now);
    harness.run();
    assert!(matches!(harness.events.pop(), Some(Event::Abort(t)) if t == task));
    harness.good(task, pattern(16));
    assert_eq!(harness.session.task_count(), 0);
    assert!(!harness.session.is_ended());
}

#[test]
fn pings_both_ways_and_dead_peers() {
    let mut harness = Harness::new(&[]);
    let (itt, cmd_sn) = (harness.initiator().tag(), harness.initiator().cmd_sn);
    let nop =
        NopOut { immediate: true, lun: Lun(0), itt, ttt: Ttt::NONE, cmd_sn, exp_stat_sn: Sn(0) };
    harness.initiator().send(nop.encode(Bytes::from_static(b"echo")));
    harness.run();
    let Some(Notice::Other(frame)) = harness.notices(0).pop() else { panic!("NOP-In") };
    assert_eq!((frame.bhs.itt(), &frame.contiguous_data()[..]), (itt, &b"echo"[..]));
    assert_eq!(harness.session.poll_timeout(), Some(Timestamp(15_000_000_000)));
    harness.pass_time(Duration::from_secs(15));
    assert!(harness.events.is_empty(), "the initiator answered");
    harness.initiator().automatic = false;
    harness.pass_time(Duration::from_secs(15));
    harness.pass_time(Duration::from_secs(15));
    assert!(matches!(harness.events[0], Event::Close(_, CloseReason::Silent)));
    assert!(matches!(harness.events[1], Event::Ended(EndReason::ConnectionLost)));
}

fn text(initiator: &mut Initiator, ttt: Ttt, value: &str) -> Itt {
    let itt = initiator.tag();
    let request = TextRequest {
        immediate: true,
        is_final: true,
        continues: false,
        lun: Lun(0),
        itt,
        ttt,
        cmd_sn: initiator.cmd_sn,
        exp_stat_sn: initiator.exp_stat_sn,
    };
    initiator.send(request.encode(Bytes::copy_from_slice(value.as_bytes())));
    itt
}

fn listing(count: usize) -> Vec<TargetListing> {
    let one = |i: usize| TargetListing {
        name: IscsiName::parse(&format!("iqn.2026-01.test:disk{i}")).unwrap(),
        portals: vec![
            ("10.0.0.1:3260".into(), PortalGroup(1)),
            ("[fd00::1]:3260".into(), PortalGroup(2)),
        ],
    };
    (0..count).map(one).collect()
}

#[test]
fn send_targets_in_normal_and_discovery_sessions() {
    let mut harness = Harness::new(&[("MaxRecvDataSegmentLength", "512")]);
    for value in [
        "SendTargets=All\0",
        "SendTargets=\0",
        &format!("SendTargets={}\0", zgate_test_harness::iscsi::TARGET),
    ] {
        text(harness.initiator(), Ttt::NONE, value);
        harness.run();
        let Some(Event::SendTargets { tag, .. }) = harness.events.pop() else { panic!("{value}") };
        harness.session.answer_send_targets(tag, &listing(1));
        harness.run();
        let Some(Notice::Other(frame)) = harness.notices(0).pop() else { panic!("text") };
        let expected = "TargetName=iqn.2026-01.test:disk0\0TargetAddress=10.0.0.1:3260,1\0TargetAddress=[fd00::1]:3260,2\0";
        assert_eq!(frame.contiguous_data(), expected.as_bytes());
        assert_eq!(frame.bhs.flags(), 0x80);
    }
    for bad in
        ["SendTargets=Alle\0", "SendTargets=A\0", "sENDtARGETS=aLL\0", "MaxBurstLength=512\0"]
    {
        text(harness.initiator(), Ttt::NONE, bad);
        harness.run();
        let Some(Notice::Other(frame)) = harness.notices(0).pop() else { panic!("{bad}") };
        assert_eq!(frame.bhs.opcode(), Opcode::REJECT, "{bad}");
    }
}

#[test]
fn a_long_target_list_comes_in_pieces() {
    let mut harness = Harness::new(&[("MaxRecvDataSegmentLength", "512")]);
    let itt = text(harness.initiator(), Ttt::NONE, "SendTargets=All\0");
    harness.run();
    let Some(Event::SendTargets { tag, scope: SendTargets::All }) = harness.events.pop() else {
        panic!()
    };
    harness.session.answer_send_targets(tag, &listing(40));
    let mut all = Vec::new();
    loop {
        harness.run();
        let Some(Notice::Other(frame)) = harness.notices(0).pop() else { panic!("text") };
        all.extend_from_slice(&frame.contiguous_data());
        let response = TextResponse::parse(&frame.bhs);
        if response.is_final {
            break;
        }
        assert!(response.continues && response.ttt != Ttt::NONE);
        let (cmd_sn, exp_stat_sn) = (harness.initiator().cmd_sn, harness.initiator().exp_stat_sn);
        let request = TextRequest {
            immediate: true,
            is_final: true,
            continues: false,
            lun: Lun(0),
            itt,
            ttt: response.ttt,
            cmd_sn,
            exp_stat_sn,
        };
        harness.initiator().send(request.encode(Bytes::new()));
    }
    assert_eq!(all.split(|b| *b == 0).filter(|s| s.starts_with(b"TargetName=")).count(), 40);
}

#[test]
fn discovery_sessions_take_no_commands() {
    let mut target = Target::new(Offer::default());
    let (outcome, done) = target.login_ok(&LoginScript::discovery(INITIATOR));
    let Claim::New(tsih) = done.claim else { panic!("new") };
    let mut session = Session::new(&done, tsih, SessionConfig::default(), Timestamp(0));
    let handle = session.attach(&done, Timestamp(0)).unwrap();
    let mut initiator = Initiator::new(&outcome);
    initiator.command(LUN, &[0x12], 16, Bytes::new());
    text(&mut initiator, Ttt::NONE, "SendTargets=All\0");
    while let Some(pdu) = initiator.poll_transmit() {
        session.handle_pdu(handle, zgate_test_harness::iscsi::plain(pdu), Timestamp(0));
    }
    assert_eq!(session.poll_transmit(handle).unwrap().bhs.opcode(), Opcode::REJECT);
    assert!(matches!(session.poll_event(), Some(Event::SendTargets { .. })));
}

#[test]
fn logout_waits_for_tasks() {
    let mut harness = Harness::new(&[]);
    harness.initiator().command(LUN, &[0x28], 16, Bytes::new());
    let task = harness.take_command().task;
    let (itt, cmd_sn, exp_stat_sn) =
        (harness.initiator().tag(), harness.initiator().number(), harness.initiator().exp_stat_sn);
    let reason = LogoutReason::CLOSE_SESSION;
    let logout = LogoutRequest { immediate: false, reason, itt, cid: Cid(0), cmd_sn, exp_stat_sn };
    harness.initiator().send(logout.encode());
    harness.run();
    assert!(matches!(harness.events.pop(), Some(Event::Abort(t)) if t == task));
    assert!(harness.notices(0).is_empty(), "the task is still there");
    harness.good(task, pattern(16));
    let Some(Notice::Other(frame)) = harness.notices(0).pop() else { panic!("logout response") };
    assert_eq!(LogoutResponse::parse(&frame.bhs).result, LogoutResult::CLOSED);
    assert!(matches!(
        harness.events[..],
        [Event::Close(_, CloseReason::Logout), Event::Ended(EndReason::Logout)]
    ));
}

#[test]
fn logout_of_connections() {
    let mut harness = Harness::new(&[("MaxConnections", "2")]);
    harness.join(1);
    let logout = |harness: &mut Harness, reason, cid| {
        let (itt, cmd_sn, exp_stat_sn) = (
            harness.initiator().tag(),
            harness.initiator().cmd_sn,
            harness.initiator().exp_stat_sn,
        );
        let pdu =
            LogoutRequest { immediate: true, reason, itt, cid: Cid(cid), cmd_sn, exp_stat_sn };
        harness.initiator().send(pdu.encode());
        harness.run();
        let Some(Notice::Other(frame)) = harness.notices(0).pop() else {
            panic!("logout response")
        };
        LogoutResponse::parse(&frame.bhs).result
    };
    assert_eq!(
        logout(&mut harness, LogoutReason::CLOSE_CONNECTION, 7),
        LogoutResult::CID_NOT_FOUND
    );
    assert_eq!(
        logout(&mut harness, LogoutReason::REMOVE_FOR_RECOVERY, 1),
        LogoutResult::RECOVERY_NOT_SUPPORTED
    );
    assert_eq!(logout(&mut harness, LogoutReason::CLOSE_CONNECTION, 1), LogoutResult::CLOSED);
    let closed = harness.links[1].handle;
    assert!(matches!(harness.events[..], [Event::Close(h, CloseReason::Logout)] if h == closed));
    assert!(!harness.session.is_ended());
}

#[test]
fn asynchronous_messages() {
    let mut harness = Harness::new(&[]);
    let handle = harness.links[0].handle;
    harness.session.request_logout(handle);
    harness.session.scsi_event(LUN, &[0x70; 18]);
    harness.run();
    let events: Vec<_> = harness
        .notices(0)
        .into_iter()
        .map(|notice| match notice {
            Notice::Other(frame) => AsyncMessage::parse(&frame.bhs),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!((events[0].event, events[0].parameters), (AsyncEvent::LOGOUT_REQUESTED, [0, 0, 10]));
    assert_eq!((events[1].event, events[1].lun), (AsyncEvent::SCSI, LUN));
    harness.pass_time(Duration::from_secs(10));
    assert!(matches!(harness.events[0], Event::Close(_, CloseReason::Dropped)));
}

#[test]
fn a_session_that_is_ended_says_so_first() {
    let mut harness = Harness::new(&[("DefaultTime2Wait", "3")]);
    harness.session.terminate(CloseReason::Dropped);
    harness.run();
    let told = harness.notices(0);
    let [Notice::Other(frame)] = &told[..] else { panic!("{told:?}") };
    let message = AsyncMessage::parse(&frame.bhs);
    assert_eq!((message.event, message.parameters[1]), (AsyncEvent::DROPS_ALL_CONNECTIONS, 3));
    let ends = |event: &Event| matches!(event, Event::Close(_, CloseReason::Dropped));
    assert!(harness.events.iter().any(ends) && harness.session.is_ended());
}

#[test]
fn many_tasks_keep_their_data_apart() {
    let mut harness = Harness::new(&[("MaxRecvDataSegmentLength", "1024")]);
    for i in 0..20u32 {
        harness.initiator().command(LUN, &[0x28, i as u8], 5000, Bytes::new());
    }
    harness.run();
    let commands = std::mem::take(&mut harness.commands);
    for command in commands.into_iter().rev() {
        let data = Bytes::from(vec![command.cdb[1]; 5000]);
        let data_in = vec![Payload::Bytes(data.slice(..999)), Payload::Bytes(data.slice(999..))];
        harness.session.complete(command.task, Completion { data_in, ..Completion::default() });
    }
    harness.run();
    let notices = harness.notices(0);
    assert_eq!(notices.len(), 20);
    for notice in notices {
        let Notice::Done { data, .. } = notice else { panic!("done") };
        assert!(data.len() == 5000 && data.iter().all(|b| *b == data[0]));
    }
}

#[test]
fn ordered_tasks_keep_their_place() {
    let mut harness = Harness::new(&[("ImmediateData", "No")]);
    harness.initiator().automatic = false;
    // A write that waits for data, then ORDERED, SIMPLE and HEAD OF QUEUE.
    harness.initiator().command(LUN, &[0x2a], 0, pattern(4096));
    harness.run();
    let Some(Notice::Other(r2t)) = harness.notices(0).pop() else { panic!("R2T") };
    let attributes = [TaskAttribute::Ordered, TaskAttribute::Simple, TaskAttribute::HeadOfQueue];
    for (i, attribute) in attributes.into_iter().enumerate() {
        let (itt, cmd_sn) = (harness.initiator().tag(), harness.initiator().number());
        let cdb = Cdb::new(&[i as u8 + 1]).unwrap();
        let command = ScsiCommand { cdb, attribute, ..write_command(itt, cmd_sn, 0) };
        harness.initiator().send(command.encode(Bytes::new()));
    }
    assert_eq!(harness.take_command().cdb[0], 3, "only the head of the queue");
    harness.initiator().answer(R2t::parse(&r2t.bhs));
    let write = harness.take_command();
    assert_eq!(write.cdb[0], 0x2a);
    harness.good(write.task, Bytes::new());
    let ordered = harness.take_command();
    assert_eq!(ordered.cdb[0], 1);
    harness.good(ordered.task, Bytes::new());
    assert_eq!(harness.take_command().cdb[0], 2);
}

#[test]
fn writes_wait_for_memory_and_all_end() {
    let mut harness = Harness::new(&[("InitialR2T", "Yes"), ("ImmediateData", "No")]);
    let most = zgate_iscsi::limits::MAX_GATHERED_BYTES as usize;
    let data = Bytes::from(vec![7; most + 512]);
    for _ in 0..3 {
        harness.initiator().command(LUN, &[0x2a], 0, data.clone());
    }
    for _ in 0..3 {
        // Two writes do not fit into memory together, and no more than the
        // limit of one command is solicited.
        let command = harness.take_command();
        assert_eq!(command.data_out.iter().map(Bytes::len).sum::<usize>(), most);
        assert_eq!(command.expected_write_bytes as usize, data.len());
        harness.good(command.task, Bytes::new());
    }
    assert_eq!(harness.notices(0).len(), 3);
}

#[test]
fn sessions_can_move_between_threads() {
    fn check<T: Send>() {}
    check::<Session>();
    check::<Event>();
    check::<zgate_iscsi::login::Login>();
}
