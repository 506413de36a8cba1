//! Memory for the data of writes: the session's accounting, and its limit on
//! solicited data.

use bytes::Bytes;
use std::time::Duration;
use zgate_iscsi::limits::SEQUENCE_RECEPTION_TIMEOUT;
use zgate_iscsi::pdu::*;
use zgate_iscsi::serial::Sn;
use zgate_iscsi::session::{CloseReason, Completion};
use zgate_test_harness::iscsi::{Harness, LUN, pattern, write_command};

const EACH: usize = 64 << 10;
const NOTHING_UNASKED: [(&str, &str); 2] = [("InitialR2T", "Yes"), ("ImmediateData", "No")];

fn write(harness: &mut Harness, len: usize) {
    harness.initiator().command(LUN, &[0x2a], 0, pattern(len));
}

/// Sends the initiator's queued PDUs, without its reactions to the answers.
fn hear_once(harness: &mut Harness) {
    let handle = harness.links[0].handle;
    while let Some(pdu) = harness.initiator().poll_transmit() {
        let now = harness.now;
        harness.session.handle_pdu(handle, zgate_test_harness::iscsi::plain(pdu), now);
    }
}

/// Number of tasks for which data was solicited since the last call.
fn asked_for(harness: &mut Harness) -> usize {
    let is_r2t = |bhs: &Bhs| bhs.opcode() == Opcode::R2T;
    harness.sent.drain(..).filter(|(_, bhs)| is_r2t(bhs)).count()
}

#[test]
fn without_room_writes_go_one_at_a_time_and_none_fails() {
    let mut harness = Harness::new(&NOTHING_UNASKED);
    harness.session.set_memory_room(0);
    (0..3).for_each(|_| write(&mut harness, EACH));
    for left in [2, 1, 0] {
        let command = harness.take_command();
        assert_eq!((command.data_out.concat().len(), asked_for(&mut harness)), (EACH, 1));
        // The data of this write was delivered, and no other was solicited.
        assert_eq!(harness.session.gathering_bytes(), 0);
        harness.session.complete(command.task, Completion::default());
        let next = if left > 0 { EACH as u64 } else { 0 };
        assert_eq!(harness.session.gathering_bytes(), next);
    }
    harness.run();
    assert_eq!(harness.notices(0).len(), 3);
}

/// Its storage may hang; the owner bounds the memory of its data.
#[test]
fn a_write_that_the_owner_has_begun_keeps_no_other_one_waiting() {
    let mut harness = Harness::new(&NOTHING_UNASKED);
    harness.session.set_memory_room(0);
    (0..2).for_each(|_| write(&mut harness, EACH));
    let hung = harness.take_command();
    assert_eq!((hung.holds_memory, asked_for(&mut harness)), (true, 1), "the second one waits");
    harness.session.begun(hung.task);
    let other = harness.take_command();
    assert_eq!((other.data_out.concat().len(), asked_for(&mut harness)), (EACH, 1));
    harness.session.complete(other.task, Completion::default());
    harness.session.complete(hung.task, Completion::default());
    harness.run();
    assert_eq!(harness.notices(0).len(), 2);
}

#[test]
fn room_is_used_up_and_given_anew() {
    let mut harness = Harness::new(&NOTHING_UNASKED);
    harness.session.set_memory_room(2 * EACH as u64);
    (0..4).for_each(|_| write(&mut harness, EACH));
    hear_once(&mut harness);
    // Two writes have room. The data of the first makes no room for the third.
    assert_eq!(harness.session.gathering_bytes(), 2 * EACH as u64);
    harness.run();
    assert_eq!((harness.commands.len(), asked_for(&mut harness)), (2, 2));
    let first = harness.commands.remove(0);
    harness.session.set_memory_room(2 * EACH as u64);
    harness.good(first.task, Bytes::new());
    assert_eq!((harness.commands.len(), asked_for(&mut harness)), (3, 2));
    assert_eq!(harness.session.gathering_bytes(), 0);
}

#[test]
fn memory_is_counted_from_the_first_byte_until_the_owner_has_it() {
    let mut harness = Harness::new(&[("InitialR2T", "Yes"), ("ImmediateData", "Yes")]);
    let params = harness.session.params();
    let immediate = params.first_burst_bytes.min(params.target_recv_bytes) as u64;
    let len = immediate as usize + EACH;
    harness.session.set_memory_room(0);
    write(&mut harness, len);
    hear_once(&mut harness);
    assert_eq!(harness.session.gathering_bytes(), len as u64, "memory for all of it is reserved");
    write(&mut harness, len);
    hear_once(&mut harness);
    assert_eq!(harness.session.gathering_bytes(), len as u64 + immediate, "the second one waits");
    let first = harness.take_command();
    assert_eq!(harness.session.gathering_bytes(), immediate);
    harness.session.complete(first.task, Completion::default());
    assert_eq!(harness.session.gathering_bytes(), len as u64);
    // A task that ends early releases its memory.
    harness.session.terminate(CloseReason::Reinstated);
    assert_eq!(harness.session.gathering_bytes(), 0);
}

/// A write of which `EACH` bytes come unsolicited, and as many on request.
fn half_unsolicited(itt: u32, cmd_sn: Sn, attribute: TaskAttribute) -> Outgoing {
    let command = write_command(Itt(itt), cmd_sn, 2 * EACH as u32);
    ScsiCommand { is_final: false, attribute, ..command }.encode(Bytes::new())
}

#[test]
fn an_older_write_is_not_kept_waiting_by_one_that_waits_for_it() {
    let mut harness = Harness::new(&[
        ("InitialR2T", "No"),
        ("ImmediateData", "No"),
        ("FirstBurstLength", &EACH.to_string()),
    ]);
    harness.session.set_memory_room(0);
    let (handle, first) = (harness.links[0].handle, harness.session.window().0);
    let say = |harness: &mut Harness, pdu| {
        harness.session.handle_pdu(handle, zgate_test_harness::iscsi::plain(pdu), harness.now)
    };
    let data = |itt, ttt, offset: usize| {
        let (is_final, offset) = (true, offset as u32);
        let pdu = DataOut {
            is_final,
            lun: LUN,
            itt: Itt(itt),
            ttt,
            exp_stat_sn: Sn(0),
            data_sn: 0,
            offset,
        };
        pdu.encode(pattern(EACH))
    };
    let r2t = |harness: &mut Harness| loop {
        let pdu = harness.session.poll_transmit(handle).expect("an R2T");
        if pdu.bhs.opcode() == Opcode::R2T {
            return R2t::parse(&pdu.bhs);
        }
    };
    say(&mut harness, half_unsolicited(1, first, TaskAttribute::Simple));
    say(&mut harness, half_unsolicited(2, first.next(), TaskAttribute::Ordered));
    // The younger one has the memory and all its data, and waits for the older one.
    say(&mut harness, data(2, Ttt::NONE, 0));
    let asked = r2t(&mut harness);
    assert_eq!(asked.itt, Itt(2));
    say(&mut harness, data(2, asked.ttt, EACH));
    say(&mut harness, data(1, Ttt::NONE, 0));
    let asked = r2t(&mut harness);
    assert_eq!(asked.itt, Itt(1));
    say(&mut harness, data(1, asked.ttt, EACH));
    for itt in [1, 2] {
        harness.run();
        let command = harness.commands.remove(0);
        assert_eq!((command.task.itt(), command.data_out.concat().len()), (Itt(itt), 2 * EACH));
        harness.session.complete(command.task, Completion::default());
    }
    assert_eq!(harness.session.gathering_bytes(), 0);
}

#[test]
fn a_write_whose_data_was_thrown_away_is_told_to_come_again() {
    const HALF: usize = 4096;
    let keys = [("InitialR2T", "No"), ("ImmediateData", "Yes"), ("FirstBurstLength", "8192")];
    let mut harness = Harness::new(&keys);
    let handle = harness.links[0].handle;
    let command = |itt, cmd_sn| {
        let command = write_command(Itt(itt), cmd_sn, 2 * HALF as u32);
        ScsiCommand { is_final: false, ..command }
    };
    let rest = |itt| DataOut {
        is_final: true,
        lun: LUN,
        itt: Itt(itt),
        ttt: Ttt::NONE,
        exp_stat_sn: Sn(0),
        data_sn: 0,
        offset: HALF as u32,
    };
    let say = |harness: &mut Harness, pdu: Outgoing, lacks_data: bool| {
        let mut frame = zgate_test_harness::iscsi::plain(pdu);
        if lacks_data {
            frame.data.clear();
        }
        harness.session.handle_pdu(handle, frame, harness.now);
    };
    let statuses = |harness: &mut Harness| -> Vec<u8> {
        let sent = std::iter::from_fn(|| harness.session.poll_transmit(handle));
        let answers = sent.filter(|pdu| pdu.bhs.opcode() == Opcode::SCSI_RESPONSE);
        answers.map(|pdu| pdu.bhs.0[3]).collect()
    };
    for (itt, command_lacks, rest_lacks) in [(1, true, false), (2, false, true), (3, true, true)] {
        let cmd_sn = harness.session.window().0;
        say(&mut harness, command(itt, cmd_sn).encode(pattern(HALF)), command_lacks);
        assert!(statuses(&mut harness).is_empty(), "more of its data is under way");
        say(&mut harness, rest(itt).encode(pattern(HALF)), rest_lacks);
        assert_eq!(statuses(&mut harness), [0x28], "TASK SET FULL");
        assert_eq!(harness.session.window().0, cmd_sn.next());
    }
    assert_eq!((harness.session.task_count(), harness.session.gathering_bytes()), (0, 0));
    harness.run();
    assert!(harness.commands.is_empty());
}

/// Its sequence was given up, and a request for its data waits for memory: nothing else
/// would answer the write.
#[test]
fn late_data_that_was_thrown_away_leaves_the_write_waiting_for_memory() {
    let first_burst = EACH.to_string();
    for level in ["1", "2"] {
        let mut harness = Harness::new(&[
            ("ErrorRecoveryLevel", level),
            ("InitialR2T", "No"),
            ("ImmediateData", "No"),
            ("FirstBurstLength", first_burst.as_str()),
        ]);
        harness.session.set_memory_room(0);
        let (handle, first) = (harness.links[0].handle, harness.session.window().0);
        let say = |harness: &mut Harness, pdu: Outgoing, lacks_data: bool| {
            let mut frame = zgate_test_harness::iscsi::plain(pdu);
            if lacks_data {
                frame.data.clear();
            }
            harness.session.handle_pdu(handle, frame, harness.now);
        };
        let data = |itt, ttt, offset: usize| {
            let (is_final, offset, exp_stat_sn) = (true, offset as u32, Sn(0));
            let itt = Itt(itt);
            let pdu = DataOut { is_final, lun: LUN, itt, ttt, exp_stat_sn, data_sn: 0, offset };
            pdu.encode(pattern(EACH))
        };
        let r2t = |harness: &mut Harness| {
            let mut sent = std::iter::from_fn(|| harness.session.poll_transmit(handle));
            let found = sent.find(|pdu| pdu.bhs.opcode() == Opcode::R2T);
            R2t::parse(&found.expect("an R2T").bhs)
        };
        // The first write is with the owner, and has its memory until it has ended.
        say(&mut harness, half_unsolicited(1, first, TaskAttribute::Simple), false);
        say(&mut harness, data(1, Ttt::NONE, 0), false);
        let asked = r2t(&mut harness);
        say(&mut harness, data(1, asked.ttt, EACH), false);
        let older = harness.take_command();
        say(&mut harness, half_unsolicited(2, first.next(), TaskAttribute::Simple), false);
        // The first look at the clock begins the timeout.
        harness.pass_time(Duration::from_millis(1));
        harness.pass_time(SEQUENCE_RECEPTION_TIMEOUT);
        assert_eq!(asked_for(&mut harness), 0, "there is no memory");
        say(&mut harness, data(2, Ttt::NONE, 0), true);
        harness.session.complete(older.task, Completion::default());
        let asked = r2t(&mut harness);
        assert_eq!((asked.itt, asked.offset), (Itt(2), 0), "level {level}");
    }
}

#[test]
fn without_room_the_window_stays_until_the_commands_have_ended() {
    let mut harness = Harness::new(&NOTHING_UNASKED);
    let (_, max) = harness.session.window();
    (0..2).for_each(|_| {
        harness.initiator().command(LUN, &[0], 0, Bytes::new());
    });
    harness.session.set_memory_room(0);
    harness.run();
    let (first, second) = (harness.commands.remove(0), harness.commands.remove(0));
    harness.good(first.task, Bytes::new());
    assert_eq!(harness.session.window().1, max);
    harness.good(second.task, Bytes::new());
    assert_eq!(harness.session.window().1, max.plus(2));
}

#[test]
fn what_waits_to_be_sent_is_counted() {
    let mut harness = Harness::new(&[]);
    harness.initiator().command(LUN, &[0x28], EACH as u32, Bytes::new());
    let command = harness.take_command();
    let handle = harness.links[0].handle;
    assert_eq!(harness.session.queued_bytes(handle), 0);
    let data_in = vec![zgate_store::Payload::Bytes(pattern(EACH))];
    harness.session.complete(command.task, Completion { data_in, ..Completion::default() });
    assert!((EACH..EACH + 4096).contains(&harness.session.queued_bytes(handle)));
    harness.run();
    assert_eq!(harness.session.queued_bytes(handle), 0);
}
