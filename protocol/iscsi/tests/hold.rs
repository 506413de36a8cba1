//! A time in which the target reads nothing, and in which its clock of timeouts
//! stands still: no initiator is late because of it.

use bytes::Bytes;
use std::time::Duration;
use zgate_iscsi::pdu::*;
use zgate_iscsi::session::*;
use zgate_test_harness::iscsi::{Harness, LUN, pattern};

/// Longer than any timeout.
const HOLD: Duration = Duration::from_secs(100);

/// Holds the target; what is due afterwards is handled.
fn hold(harness: &mut Harness) {
    harness.now = harness.now.after(HOLD);
    harness.session.resume_after_hold(HOLD, harness.now);
    harness.session.handle_timeout(harness.now);
}

#[test]
fn a_peer_whose_answer_was_not_read_is_not_silent() {
    let ping_after = SessionConfig::default().ping_after;
    let mut harness = Harness::new(&[]);
    harness.lose_up = Box::new(|_| true);
    harness.pass_time(ping_after);
    assert!(harness.sent.iter().any(|(_, bhs)| bhs.opcode() == Opcode::NOP_IN), "a ping");
    hold(&mut harness);
    harness.lose_up = Box::new(|_| false);
    harness.run();
    assert!(harness.events.is_empty(), "{:?}", harness.events);
    assert_eq!(harness.session.poll_timeout(), Some(harness.now.after(ping_after)));
    harness.pass_time(ping_after);
    assert!(harness.events.is_empty(), "it answers the next ping");
    harness.initiator().automatic = false;
    harness.pass_time(ping_after);
    harness.pass_time(SessionConfig::default().ping_timeout);
    assert!(matches!(harness.events[0], Event::Close(_, CloseReason::Silent)));
}

#[test]
fn who_was_asked_to_log_out_still_has_its_time() {
    let mut harness = Harness::new(&[]);
    harness.session.request_logout(harness.links[0].handle);
    hold(&mut harness);
    assert!(harness.session.poll_event().is_none());
    let end = harness.now.after(SessionConfig::default().logout_timeout);
    harness.session.handle_timeout(end);
    let event = harness.session.poll_event();
    assert!(matches!(event, Some(Event::Close(_, CloseReason::Dropped))), "{event:?}");
}

#[test]
fn a_lost_connection_may_still_be_recovered() {
    let mut harness = Harness::new(&[("ErrorRecoveryLevel", "2")]);
    harness.initiator().command(LUN, &[0x28], 512, Bytes::new());
    harness.take_command();
    harness.session.handle_closed(harness.links[0].handle, harness.now);
    hold(&mut harness);
    harness.run();
    assert!(harness.events.is_empty(), "{:?}", harness.events);
    harness.pass_time(HOLD);
    let ended = |event: &Event| matches!(event, Event::Ended(EndReason::ConnectionLost));
    assert!(harness.events.iter().any(ended), "{:?}", harness.events);
}

#[test]
fn data_that_was_not_read_is_not_asked_for_again() {
    let mut harness = Harness::new(&[("ErrorRecoveryLevel", "1"), ("InitialR2T", "Yes")]);
    harness.lose_up = Box::new(|bhs| bhs.opcode() == Opcode::DATA_OUT);
    harness.initiator().command(LUN, &[0x2a], 0, pattern(300_000));
    harness.run();
    // The first look at the clock begins the timeout.
    harness.pass_time(Duration::from_millis(1));
    let asked = |harness: &Harness| {
        harness.sent.iter().filter(|(_, bhs)| bhs.opcode() == Opcode::R2T).count()
    };
    let before = asked(&harness);
    assert!(before > 0);
    hold(&mut harness);
    harness.run();
    assert_eq!(asked(&harness), before);
}
