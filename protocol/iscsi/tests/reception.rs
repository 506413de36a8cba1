//! Data-Out PDUs that are lost with nothing behind them, and R2Ts that are lost: the
//! sequence reception timeout (RFC 7143 §7.1.4.1, §7.9).

use bytes::Bytes;
use std::time::Duration;
use zgate_iscsi::initiator::Notice;
use zgate_iscsi::limits::{MAX_SEQUENCE_TIMEOUTS, SEQUENCE_RECEPTION_TIMEOUT};
use zgate_iscsi::login::Offer;
use zgate_iscsi::pdu::*;
use zgate_iscsi::time::Timestamp;
use zgate_test_harness::iscsi::{Harness, LUN, pattern, write_command};

const MOMENT: Duration = Duration::from_millis(1);

fn harness(level: &str, keys: &[(&str, &str)]) -> Harness {
    let always = [
        ("ErrorRecoveryLevel", level),
        ("MaxBurstLength", "8192"),
        ("FirstBurstLength", "8192"),
        ("ImmediateData", "No"),
    ];
    let offer = Offer { initial_r2t: false, max_recv_bytes: 4096, ..Offer::default() };
    Harness::with_offer(&[&always, keys].concat(), offer)
}

/// Loses Data-Out PDUs, counted from 0.
fn lose_data(harness: &mut Harness, lost: impl Fn(usize, &DataOut) -> bool + 'static) {
    let mut seen = 0;
    harness.lose_up = Box::new(move |bhs| {
        let is_data = bhs.opcode() == Opcode::DATA_OUT;
        seen += usize::from(is_data);
        is_data && lost(seen - 1, &DataOut::parse(bhs))
    });
}

/// Offset and length of the R2Ts sent so far.
fn requested(harness: &Harness) -> Vec<(u32, u32)> {
    let r2ts = harness.sent.iter().filter(|(_, bhs)| bhs.opcode() == Opcode::R2T);
    r2ts.map(|(_, bhs)| R2t::parse(bhs)).map(|r2t| (r2t.offset, r2t.desired_bytes)).collect()
}

/// All data is solicited.
const SOLICITED: [(&str, &str); 1] = [("InitialR2T", "Yes")];

/// A write of which the first 8192 bytes come unsolicited, in two PDUs.
fn unsolicited(harness: &mut Harness, data: &Bytes) -> Vec<Outgoing> {
    let initiator = harness.initiator();
    let (itt, cmd_sn, exp_stat_sn) = (initiator.tag(), initiator.cmd_sn, initiator.exp_stat_sn);
    initiator.cmd_sn = cmd_sn.next();
    initiator.open(itt, LUN, data.clone());
    let command = write_command(itt, cmd_sn, data.len() as u32);
    let command = ScsiCommand { is_final: false, exp_stat_sn, ..command };
    let part = |data_sn: u32| {
        let (ttt, offset, is_final) = (Ttt::NONE, data_sn * 4096, data_sn == 1);
        let pdu = DataOut { is_final, lun: LUN, itt, ttt, exp_stat_sn, data_sn, offset };
        pdu.encode(data.slice(offset as usize..offset as usize + 4096))
    };
    vec![command.encode(Bytes::new()), part(0), part(1)]
}

/// Passes the time of one timeout in two looks at the clock: the first one begins it.
fn one_timeout(harness: &mut Harness) {
    harness.pass_time(MOMENT);
    let before = harness.sent.len();
    harness.pass_time(SEQUENCE_RECEPTION_TIMEOUT - MOMENT);
    assert_eq!(harness.sent.len(), before, "it is not over yet");
    harness.pass_time(MOMENT);
}

#[test]
fn the_last_pdu_of_a_solicited_sequence_is_asked_for_again() {
    for level in ["1", "2"] {
        let mut harness = harness(level, &SOLICITED);
        lose_data(&mut harness, |number, _| number == 1);
        harness.initiator().command(LUN, &[0x2a], 0, pattern(8192));
        harness.run();
        assert!(harness.commands.is_empty());
        one_timeout(&mut harness);
        assert_eq!(requested(&harness), [(0, 8192), (4096, 4096)]);
        assert_eq!(harness.take_command().data_out.concat(), pattern(8192));
    }
}

#[test]
fn the_only_pdu_of_a_sequence_and_a_lost_r2t_are_asked_for_again() {
    for lost in [Opcode::DATA_OUT, Opcode::R2T] {
        let mut harness = harness("1", &SOLICITED);
        let once = |mut left: usize| {
            move |bhs: &Bhs| {
                let hit = left > 0 && bhs.opcode() == lost;
                left -= usize::from(hit);
                hit
            }
        };
        (harness.lose_up, harness.lose) = (Box::new(once(1)), Box::new(once(1)));
        harness.initiator().command(LUN, &[0x2a], 0, pattern(4096));
        harness.run();
        one_timeout(&mut harness);
        assert_eq!(requested(&harness), [(0, 4096), (0, 4096)], "{lost:?}");
        assert_eq!(harness.take_command().data_out.concat(), pattern(4096));
    }
}

#[test]
fn the_last_unsolicited_pdu_is_solicited() {
    let mut harness = harness("1", &[("InitialR2T", "No")]);
    lose_data(&mut harness, |_, pdu| pdu.ttt == Ttt::NONE && pdu.is_final);
    let pdus = unsolicited(&mut harness, &pattern(20_000));
    pdus.into_iter().for_each(|pdu| harness.initiator().send(pdu));
    harness.run();
    assert_eq!(requested(&harness), []);
    one_timeout(&mut harness);
    assert_eq!(requested(&harness), [(4096, 8192), (12_288, 7712)]);
    assert_eq!(harness.take_command().data_out.concat(), pattern(20_000));
}

/// RFC 7143 §13.19: the target asks again for the last sequence, before it goes on.
#[test]
fn what_is_lost_is_asked_for_before_the_rest() {
    for number in [0, 1] {
        let mut harness = harness("1", &SOLICITED);
        lose_data(&mut harness, move |seen, _| seen == number);
        harness.initiator().command(LUN, &[0x2a], 0, pattern(24_576));
        harness.run();
        if number == 1 {
            one_timeout(&mut harness);
        }
        // Behind the second PDU the rest begins at once: one request has both.
        let again = [(0, 4096), (4096, 8192)][number];
        assert_eq!(requested(&harness)[..2], [(0, 8192), again]);
        assert_eq!(harness.take_command().data_out.concat(), pattern(24_576));
    }
}

/// An initiator that never sends its data: requests at growing distances, then the end.
#[test]
fn silence_ends_the_command() {
    let mut harness = harness("1", &SOLICITED);
    lose_data(&mut harness, |_, _| true);
    harness.initiator().command(LUN, &[0x2a], 0, pattern(4096));
    harness.run();
    for silences in 0..=MAX_SEQUENCE_TIMEOUTS {
        assert_eq!(requested(&harness).len(), 1 + silences as usize);
        harness.pass_time(MOMENT);
        let wait = SEQUENCE_RECEPTION_TIMEOUT * (1 << silences);
        // In steps: the initiator must answer pings.
        let steps = wait.as_secs();
        (0..steps).for_each(|_| harness.pass_time(wait / steps as u32));
    }
    let done = harness.notices(0).into_iter().find_map(|notice| match notice {
        Notice::Done { status, sense, .. } => Some((status, sense[12], sense[13])),
        _ => None,
    });
    assert_eq!(done, Some((2, 0x47, 5)));
    assert_eq!((harness.session.task_count(), harness.session.gathering_bytes()), (0, 0));
    assert!(harness.commands.is_empty() && harness.events.is_empty());
}

/// The R2Ts that the initiator has got.
fn r2ts(harness: &mut Harness) -> Vec<R2t> {
    let notices = harness.notices(0).into_iter();
    let r2ts = notices.map(|notice| match notice {
        Notice::Other(frame) if frame.bhs.opcode() == Opcode::R2T => R2t::parse(&frame.bhs),
        other => panic!("nothing but R2Ts is sent: {other:?}"),
    });
    r2ts.collect()
}

/// Data that was slow, not lost: the answer to the first request is passed over, the one to
/// the second counts.
#[test]
fn late_solicited_data_harms_nothing() {
    let mut harness = harness("1", &SOLICITED);
    harness.initiator().automatic = false;
    harness.initiator().command(LUN, &[0x2a], 0, pattern(8192));
    harness.run();
    one_timeout(&mut harness);
    let both = r2ts(&mut harness);
    assert_eq!(both.len(), 2);
    harness.initiator().answer(both[0]);
    harness.run();
    assert!(harness.commands.is_empty() && r2ts(&mut harness).is_empty());
    harness.initiator().answer(both[1]);
    assert_eq!(harness.take_command().data_out.concat(), pattern(8192));
}

#[test]
fn late_unsolicited_data_harms_nothing() {
    let mut harness = harness("2", &[("InitialR2T", "No")]);
    harness.initiator().automatic = false;
    let mut pdus = unsolicited(&mut harness, &pattern(8192));
    let late = pdus.split_off(1);
    pdus.into_iter().for_each(|pdu| harness.initiator().send(pdu));
    harness.run();
    one_timeout(&mut harness);
    late.into_iter().for_each(|pdu| harness.initiator().send(pdu));
    harness.run();
    let asked = r2ts(&mut harness);
    assert!(harness.commands.is_empty() && asked.len() == 1);
    harness.initiator().answer(asked[0]);
    assert_eq!(harness.take_command().data_out.concat(), pattern(8192));
}

#[test]
fn a_busy_sequence_has_all_the_time_it_needs() {
    let mut harness = harness("1", &SOLICITED);
    harness.initiator().automatic = false;
    harness.initiator().command(LUN, &[0x2a], 0, pattern(8192));
    harness.run();
    let Some(Notice::Other(frame)) = harness.notices(0).pop() else { panic!("an R2T") };
    let (itt, ttt, exp_stat_sn) =
        (frame.bhs.itt(), frame.bhs.ttt(), harness.initiator().exp_stat_sn);
    for data_sn in 0..16 {
        harness.pass_time(SEQUENCE_RECEPTION_TIMEOUT - MOMENT);
        let (offset, is_final) = (data_sn * 512, data_sn == 15);
        let pdu = DataOut { is_final, lun: LUN, itt, ttt, exp_stat_sn, data_sn, offset };
        let data = pattern(8192).slice(offset as usize..offset as usize + 512);
        harness.initiator().send(pdu.encode(data));
        harness.run();
    }
    assert_eq!(requested(&harness), [(0, 8192)]);
    assert_eq!(harness.take_command().data_out.concat(), pattern(8192));
}

/// At level 0 a damaged header ends the connection: nothing is lost, and no time counts.
#[test]
fn level_0_waits() {
    let mut harness = harness("0", &SOLICITED);
    lose_data(&mut harness, |_, _| true);
    harness.initiator().command(LUN, &[0x2a], 0, pattern(8192));
    harness.run();
    assert_eq!(harness.session.poll_timeout(), Some(Timestamp(15_000_000_000)), "the ping");
    (0..600).for_each(|_| harness.pass_time(Duration::from_secs(1)));
    assert_eq!((requested(&harness).len(), harness.session.task_count()), (1, 1));
}

/// An initiator that takes R2Ts in order (RFC 7143 §11.8.1) waits for the first one, which
/// was lost, whatever has replaced it meanwhile. Its SNACK gets it that number.
#[test]
fn a_lost_r2t_that_was_given_up_comes_again_by_its_number() {
    let mut harness = harness("1", &SOLICITED);
    harness.initiator().automatic = false;
    let mut lost = false;
    harness.lose =
        Box::new(move |bhs| bhs.opcode() == Opcode::R2T && !std::mem::replace(&mut lost, true));
    harness.initiator().command(LUN, &[0x2a], 0, pattern(16_384));
    harness.run();
    one_timeout(&mut harness);
    let numbers =
        |r2ts: &[R2t]| r2ts.iter().map(|r2t| (r2t.r2t_sn, r2t.offset)).collect::<Vec<_>>();
    let later = r2ts(&mut harness);
    assert_eq!(numbers(&later), [(1, 0)]);
    let ask = |harness: &mut Harness, begin_run: u32| {
        let exp_stat_sn = harness.initiator().exp_stat_sn;
        let (kind, itt, ttt) = (SnackKind::DataOrR2t, later[0].itt, Ttt::NONE);
        let pdu = Snack { kind, lun: Lun(0), itt, ttt, exp_stat_sn, begin_run, run_length: 0 };
        harness.initiator().send(pdu.encode());
        harness.run();
        r2ts(harness)
    };
    let first = ask(&mut harness, 0);
    assert_eq!(numbers(&first), [(0, 0)]);
    // Asked for once more, it comes once more as it is.
    assert_eq!(ask(&mut harness, 0), first);
    harness.initiator().answer(first[0]);
    harness.run();
    let second = r2ts(&mut harness);
    assert_eq!(numbers(&second), [(1, 8192)]);
    // Data for what was replaced is passed over.
    harness.initiator().answer(later[0]);
    harness.initiator().answer(second[0]);
    assert_eq!(harness.take_command().data_out.concat(), pattern(16_384));
}
