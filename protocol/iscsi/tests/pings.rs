//! Memory of pings and texts: what waits for its turn, for a peer that reads, or for an
//! acknowledgement.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use zgate_iscsi::directory::Claim;
use zgate_iscsi::initiator::LoginScript;
use zgate_iscsi::limits::{MAX_EARLY_BYTES, MAX_PING_BYTES, MAX_WAITING_ANSWER_BYTES};
use zgate_iscsi::login::Offer;
use zgate_iscsi::pdu::*;
use zgate_iscsi::serial::Sn;
use zgate_iscsi::session::{ConnHandle, Session, SessionConfig};
use zgate_iscsi::time::Timestamp;
use zgate_test_harness::iscsi::{Harness, INITIATOR, TARGET, Target, pattern};

fn ping(itt: u32, immediate: bool, cmd_sn: Sn) -> Bhs {
    let (lun, itt, ttt) = (Lun(0), Itt(itt), Ttt::NONE);
    let ping = NopOut { immediate, lun, itt, ttt, cmd_sn, exp_stat_sn: Sn(0) };
    ping.encode(Bytes::new()).bhs
}

fn text(immediate: bool, cmd_sn: Sn) -> Bhs {
    let request = TextRequest {
        immediate,
        is_final: true,
        continues: false,
        lun: Lun(0),
        itt: Itt(1),
        ttt: Ttt::NONE,
        cmd_sn,
        exp_stat_sn: Sn(0),
    };
    request.encode(Bytes::new()).bhs
}

fn with_data(bhs: Bhs, data: Bytes) -> Frame {
    Frame::new(bhs, Bytes::new(), vec![data])
}

fn answers(session: &mut Session, handle: ConnHandle) -> Vec<Outgoing> {
    std::iter::from_fn(|| session.poll_transmit(handle)).collect()
}

#[test]
fn a_ping_that_is_not_read_keeps_no_receive_buffer() {
    let mut harness = Harness::new(&[]);
    let handle = harness.links[0].handle;
    let received = pattern(1 << 20);
    for data in [received.clone(), received.slice(..100)] {
        let cmd_sn = harness.session.window().0;
        harness.session.handle_pdu(handle, with_data(ping(1, true, cmd_sn), data), harness.now);
    }
    assert!(received.is_unique());
    let sent = answers(&mut harness.session, handle);
    assert_eq!(sent.len(), 2);
    assert!(sent[0].data_bytes() <= MAX_PING_BYTES && sent[1].data_bytes() == 100);
}

/// RFC 7143 §11.19.
#[test]
fn a_long_ping_is_echoed_whole_unless_many_answers_wait() {
    const LONG: usize = 1 << 20;
    let mut harness = Harness::new(&[("MaxRecvDataSegmentLength", &LONG.to_string())]);
    let handle = harness.links[0].handle;
    let data = pattern(LONG + 1);
    let mut send = |itt: u32| {
        let cmd_sn = harness.session.window().0;
        let frame = with_data(ping(itt, true, cmd_sn), data.clone());
        harness.session.handle_pdu(handle, frame, harness.now);
    };
    let fit = MAX_WAITING_ANSWER_BYTES / LONG;
    (0..=fit).for_each(|itt| send(itt as u32));
    let sent = answers(&mut harness.session, handle);
    let (rejected, echoed) = sent.split_last().unwrap();
    assert_eq!(echoed.len(), fit);
    assert!(echoed.iter().all(|pdu| pdu.bhs.opcode() == Opcode::NOP_IN));
    assert!(echoed.iter().all(|pdu| pdu.data_bytes() == LONG));
    assert_eq!(Reject::parse(&rejected.bhs).reason, RejectReason::TOO_MANY_IMMEDIATE);
    // The others have been read: it may come again.
    let cmd_sn = harness.session.window().0;
    let again = with_data(ping(fit as u32, true, cmd_sn), data);
    harness.session.handle_pdu(handle, again, harness.now);
    let sent = answers(&mut harness.session, handle);
    assert_eq!(sent.iter().map(Outgoing::data_bytes).collect::<Vec<_>>(), [LONG]);
}

#[test]
fn pings_before_their_turn_hold_little_and_the_others_are_rejected_at_once() {
    let mut harness = Harness::new(&[]);
    let (handle, first) = (harness.links[0].handle, harness.session.window().0);
    let received = pattern(MAX_PING_BYTES);
    let fit = (MAX_EARLY_BYTES / MAX_PING_BYTES) as u32;
    let mut send = |number: u32| {
        let bhs = ping(number, false, first.plus(number));
        harness.session.handle_pdu(handle, with_data(bhs, received.clone()), harness.now);
        answers(&mut harness.session, handle)
    };
    for number in (2..=fit + 1).rev() {
        assert!(send(number).is_empty());
    }
    // The last one to come, the second in turn, finds no room.
    let sent = send(1);
    assert!(received.is_unique(), "no receive buffer waits with them");
    assert_eq!(sent.len(), 1);
    assert_eq!(Reject::parse(&sent[0].bhs).reason, RejectReason::LONG_OPERATION);
    // It is not received, so that the others still wait for it.
    for (number, answered) in [(0, 0..=0), (1, 1..=fit + 1)] {
        let sent = send(number);
        assert!(sent.iter().all(|pdu| pdu.bhs.opcode() == Opcode::NOP_IN));
        let of: Vec<Itt> = sent.iter().map(|pdu| pdu.bhs.itt()).collect();
        assert_eq!(of, answered.map(Itt).collect::<Vec<_>>());
    }
    assert_eq!(harness.session.window().0, first.plus(fit + 2));
}

#[test]
fn what_came_without_its_data_is_rejected_and_may_come_again() {
    let mut harness = Harness::new(&[]);
    let handle = harness.links[0].handle;
    let makes: [fn(bool, Sn) -> Bhs; 2] = [|immediate, cmd_sn| ping(1, immediate, cmd_sn), text];
    // The last ones come before their turn.
    for (immediate, ahead, reason) in [
        (true, 0, RejectReason::TOO_MANY_IMMEDIATE),
        (false, 0, RejectReason::LONG_OPERATION),
        (false, 1, RejectReason::LONG_OPERATION),
    ] {
        for make in makes {
            let before = harness.session.window().0;
            let whole =
                |cmd_sn: Sn| with_data(make(immediate, cmd_sn), Bytes::from_static(b"A=b\0"));
            let mut frame = whole(before.plus(ahead));
            frame.data.clear();
            harness.session.handle_pdu(handle, frame, harness.now);
            let sent = answers(&mut harness.session, handle);
            assert_eq!(sent.len(), 1);
            assert_eq!(Reject::parse(&sent[0].bhs).reason, reason);
            assert_eq!(harness.session.window().0, before, "it is not received");
            harness.session.handle_pdu(handle, whole(before), harness.now);
            let sent = answers(&mut harness.session, handle);
            assert_eq!(sent.len(), 1);
            assert_ne!(sent[0].bhs.opcode(), Opcode::REJECT);
            let after = if immediate { before } else { before.next() };
            assert_eq!(harness.session.window().0, after, "nothing else is received");
        }
    }
}

#[test]
fn answers_that_are_not_acknowledged_stay_within_the_bound_on_retained_data() {
    const KEPT: usize = 4;
    let mut target = Target::new(Offer::default());
    let script = LoginScript::normal(INITIATOR, TARGET)
        .with("ErrorRecoveryLevel", "1")
        .with("MaxRecvDataSegmentLength", &MAX_PING_BYTES.to_string());
    let (_, login) = target.login_ok(&script);
    let Claim::New(tsih) = login.claim else { panic!("a new session") };
    let most = (KEPT * MAX_PING_BYTES) as u64;
    let config = SessionConfig { max_retained_bytes: most, ..SessionConfig::default() };
    let mut session = Session::new(&login, tsih, config, Timestamp(0));
    let handle = session.attach(&login, Timestamp(0)).unwrap();
    let data = pattern(MAX_PING_BYTES);
    for itt in 1..=2 * KEPT as u32 {
        let cmd_sn = session.window().0;
        let frame = with_data(ping(itt, true, cmd_sn), data.clone());
        session.handle_pdu(handle, frame, Timestamp(0));
        assert_eq!(answers(&mut session, handle)[0].data_bytes(), MAX_PING_BYTES);
    }
    // All that the target can still send again.
    let snack = Snack {
        kind: SnackKind::Status,
        lun: Lun(0),
        itt: Itt::NONE,
        ttt: Ttt::NONE,
        exp_stat_sn: Sn(0),
        begin_run: 0,
        run_length: 0,
    };
    session.handle_pdu(handle, Frame::new(snack.encode().bhs, Bytes::new(), vec![]), Timestamp(0));
    let again: Vec<Itt> = answers(&mut session, handle).iter().map(|pdu| pdu.bhs.itt()).collect();
    let last: Vec<Itt> = (KEPT as u32 + 1..=2 * KEPT as u32).map(Itt).collect();
    assert_eq!(again, last);
}
