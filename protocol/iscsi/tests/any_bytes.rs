//! Whatever a peer sends: no panic, and memory stays within bounds.
#![allow(clippy::unwrap_used)]

mod rig;

use bytes::Bytes;
use proptest::prelude::*;
use rig::{INITIATOR, Rig, TARGET, Target};
use zgate_iscsi::framing::{Decoder, Digests};
use zgate_iscsi::limits;
use zgate_iscsi::login::{Login, Offer};
use zgate_iscsi::names::PortalGroup;
use zgate_iscsi::pdu::{Frame, Opcode};
use zgate_iscsi::session::{Completion, Event};

/// A PDU with a plausible opcode and arbitrary fields, small numbers preferred.
fn arbitrary_pdu() -> impl Strategy<Value = Vec<u8>> {
    let opcodes = prop::sample::select(vec![0u8, 1, 2, 3, 4, 5, 6, 0x10, 0x20, 0x3f, 0x1c]);
    let word = prop_oneof![0u32..8, Just(u32::MAX), any::<u32>()];
    let words = prop::collection::vec(word, 10);
    (opcodes, any::<bool>(), any::<u8>(), words, prop::collection::vec(any::<u8>(), 0..600))
        .prop_map(|(opcode, immediate, flags, words, mut data)| {
            let mut pdu = vec![opcode | if immediate { 0x40 } else { 0 }, flags, 0, 0, 0, 0, 0, 0];
            pdu[6..8].copy_from_slice(&(data.len() as u16).to_be_bytes());
            words.iter().for_each(|word| pdu.extend(word.to_be_bytes()));
            data.resize(data.len().next_multiple_of(4), 0);
            pdu.extend(data);
            pdu
        })
}

fn drive(rig: &mut Rig, frame: Frame) {
    let handle = rig.links[0].handle;
    rig.session.handle_pdu(handle, frame, rig.now);
    while let Some(event) = rig.session.poll_event() {
        match event {
            Event::Command(command) if command.cdb[0] % 2 == 0 => {
                let data = vec![zgate_store::Payload::Bytes(Bytes::from(vec![0; 100]))];
                rig.session
                    .complete(command.task, Completion { data_in: data, ..Completion::default() });
            }
            Event::Abort(task) => rig.session.complete(task, Completion::default()),
            Event::Function { tag, affected, .. } => {
                affected
                    .into_iter()
                    .for_each(|task| rig.session.complete(task, Completion::default()));
                rig.session.function_done(tag, zgate_iscsi::pdu::TaskResult::COMPLETE);
            }
            Event::SendTargets { tag, .. } => rig.session.answer_send_targets(tag, &[]),
            _ => {}
        }
    }
    assert!(rig.session.task_count() <= 128 + limits::MAX_IMMEDIATE_TASKS);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn decoder_takes_anything(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..40),
                              header: bool, data: bool) {
        let mut decoder = Decoder::new(65536);
        decoder.configure(Digests { header, data }, 65536);
        for chunk in chunks {
            decoder.feed(chunk.into());
            while let Ok(Some(frame)) = decoder.poll() {
                prop_assert!(frame.data_bytes() <= 65536);
            }
            prop_assert!(decoder.buffered_bytes() <= 65536 + 1024);
        }
    }

    #[test]
    fn login_takes_anything(pdus in prop::collection::vec(arbitrary_pdu(), 1..20), text in "\\PC{0,200}") {
        let mut target = Target::new(Offer::default());
        let mut login = Login::new(Offer::default(), None, PortalGroup(1));
        let mut decoder = Decoder::new(8192);
        for (i, mut pdu) in pdus.into_iter().enumerate() {
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
        prop_assert!(answers <= limits::MAX_LOGIN_REQUESTS + 1);
    }

    #[test]
    fn sessions_take_anything(pdus in prop::collection::vec(arbitrary_pdu(), 1..300), level in 0u32..3) {
        let level = level.to_string();
        let mut rig = Rig::new(&[("ErrorRecoveryLevel", &level), ("iSCSIProtocolLevel", "2"), ("InitialR2T", "No")]);
        let mut decoder = Decoder::new(65536);
        for (i, pdu) in pdus.into_iter().enumerate() {
            decoder.feed(pdu.into());
            while let Ok(Some(mut frame)) = decoder.poll() {
                frame.data_digest_ok = i % 7 != 0;
                drive(&mut rig, frame);
            }
        }
        rig.session.handle_timeout(zgate_iscsi::time::Timestamp(u64::MAX / 2));
        rig.session.handle_closed(rig.links[0].handle, rig.now);
    }
}

#[test]
fn a_peer_that_never_reads_is_cut_off() {
    let mut rig = Rig::new(&[]);
    let mut pdu = zgate_iscsi::pdu::Bhs::new(Opcode::NOP_OUT).with_immediate(true);
    pdu.put_u32(16, 5);
    let mut cut = false;
    for _ in 0..2000 {
        let frame = Frame::new(pdu, Bytes::new(), vec![Bytes::from_static(b"ping")]);
        rig.session.handle_pdu(rig.links[0].handle, frame, rig.now);
        cut |= matches!(rig.session.poll_event(), Some(Event::Close(..)));
    }
    assert!(cut);
}
