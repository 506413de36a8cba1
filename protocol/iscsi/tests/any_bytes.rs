//! Arbitrary input from a peer: no panic, and bounded memory.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use zgate_fuzz::{Dice, target};
use zgate_iscsi::framing::{Decoder, Digests};
use zgate_iscsi::limits;
use zgate_iscsi::login::{Login, Offer};
use zgate_iscsi::names::PortalGroup;
use zgate_iscsi::pdu::{Frame, Opcode};
use zgate_iscsi::session::{Completion, Event};
use zgate_test_harness::iscsi::{Harness, INITIATOR, TARGET, Target};

target!(iscsi_decoder_takes_anything, 4000, decoder);
target!(iscsi_login_takes_anything, 6000, login);
target!(iscsi_sessions_take_anything, 8000, sessions);

const OPCODES: [u8; 11] = [0, 1, 2, 3, 4, 5, 6, 0x10, 0x20, 0x3f, 0x1c];

/// A PDU with a plausible opcode and arbitrary fields, small numbers preferred.
fn arbitrary_pdu(dice: &mut Dice<'_>) -> Vec<u8> {
    let opcode = *dice.pick(&OPCODES) | if dice.once_in(2) { 0x40 } else { 0 };
    let mut pdu = vec![opcode, dice.byte(), 0, 0, 0, 0, 0, 0];
    for _ in 0..10 {
        let word = match dice.below(3) {
            0 => dice.below(8) as u32,
            1 => u32::MAX,
            _ => dice.u32(),
        };
        pdu.extend(word.to_be_bytes());
    }
    let most = if dice.once_in(4) { 599 } else { 40 };
    let mut data = dice.blob(most);
    pdu[6..8].copy_from_slice(&(data.len() as u16).to_be_bytes());
    data.resize(data.len().next_multiple_of(4), 0);
    pdu.extend(data);
    pdu
}

fn drive(harness: &mut Harness, frame: Frame) {
    let handle = harness.links[0].handle;
    harness.session.handle_pdu(handle, frame, harness.now);
    while let Some(event) = harness.session.poll_event() {
        match event {
            Event::Command(command) if command.cdb[0] % 2 == 0 => {
                let data = vec![zgate_store::Payload::Bytes(Bytes::from(vec![0; 100]))];
                harness
                    .session
                    .complete(command.task, Completion { data_in: data, ..Completion::default() });
            }
            Event::Abort(task) => harness.session.complete(task, Completion::default()),
            Event::Function { tag, affected, .. } => {
                affected
                    .into_iter()
                    .for_each(|task| harness.session.complete(task, Completion::default()));
                harness.session.function_done(tag, zgate_iscsi::pdu::TaskResult::COMPLETE);
            }
            Event::SendTargets { tag, .. } => harness.session.answer_send_targets(tag, &[]),
            _ => {}
        }
    }
    assert!(harness.session.task_count() <= 128 + limits::MAX_IMMEDIATE_TASKS);
}

fn decoder(dice: &mut Dice<'_>) {
    let mut decoder = Decoder::new(65536);
    let digests = Digests { header: dice.once_in(2), data: dice.once_in(2) };
    decoder.configure(digests, 65536);
    while !dice.is_spent() {
        decoder.feed(dice.blob(199).into());
        while let Ok(Some(frame)) = decoder.poll() {
            assert!(frame.data_bytes() <= 65536);
        }
        assert!(decoder.buffered_bytes() <= 65536 + 1024);
    }
}

fn login(dice: &mut Dice<'_>) {
    let mut target = Target::new(Offer::default());
    let mut login = Login::new(Offer::default(), None, PortalGroup(1));
    let mut decoder = Decoder::new(8192);
    let text = String::from_utf8_lossy(&dice.blob(200)).replace(char::is_control, "");
    for i in 0..20 {
        if dice.is_spent() {
            break;
        }
        let mut pdu = arbitrary_pdu(dice);
        if i % 2 == 0 {
            let body = format!("InitiatorName={INITIATOR}\0TargetName={TARGET}\0{text}\0");
            pdu.truncate(48);
            pdu[0] = Opcode::LOGIN_REQUEST.0 | 0x40;
            pdu[6..8].copy_from_slice(&(body.len() as u16).to_be_bytes());
            pdu.extend(body.as_bytes());
            pdu.resize(pdu.len().next_multiple_of(4), 0);
        }
        decoder.feed(pdu.into());
        while let Ok(Some(frame)) = decoder.poll() {
            target.feed(&mut login, &frame);
        }
    }
    let mut answers = 0;
    while login.poll_transmit().is_some() {
        answers += 1;
    }
    assert!(answers <= limits::MAX_LOGIN_REQUESTS + 1);
}

fn sessions(dice: &mut Dice<'_>) {
    let level = dice.below(3).to_string();
    let keys =
        [("ErrorRecoveryLevel", level.as_str()), ("iSCSIProtocolLevel", "2"), ("InitialR2T", "No")];
    let mut harness = Harness::new(&keys);
    let mut decoder = Decoder::new(65536);
    let mut count = 0;
    while !dice.is_spent() {
        decoder.feed(arbitrary_pdu(dice).into());
        while let Ok(Some(mut frame)) = decoder.poll() {
            frame.data_digest_ok = count % 7 != 0;
            drive(&mut harness, frame);
        }
        count += 1;
    }
    harness.session.handle_timeout(zgate_iscsi::time::Timestamp(u64::MAX / 2));
    harness.session.handle_closed(harness.links[0].handle, harness.now);
}

#[test]
fn a_peer_that_never_reads_is_cut_off() {
    let mut harness = Harness::new(&[]);
    let mut pdu = zgate_iscsi::pdu::Bhs::new(Opcode::NOP_OUT).with_immediate(true);
    pdu.put_u32(16, 5);
    let mut cut = false;
    for _ in 0..2000 {
        let frame = Frame::new(pdu, Bytes::new(), vec![Bytes::from_static(b"ping")]);
        harness.session.handle_pdu(harness.links[0].handle, frame, harness.now);
        cut |= matches!(harness.session.poll_event(), Some(Event::Close(..)));
    }
    assert!(cut);
}
