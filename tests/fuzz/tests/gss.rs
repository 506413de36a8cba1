//! RPCSEC_GSS (RFC 2203): credentials, tokens and protected bodies of any bytes,
//! and damaged calls of a client that has a context.
#![allow(clippy::unwrap_used, reason = "tests")]

use bytes::Bytes;
use zgate_fuzz::{Dice, target};
use zgate_rpc::CallHeader;
use zgate_rpc::auth::{OpaqueAuth, RPCSEC_GSS};
use zgate_rpc::gss::{
    GssCredential, Handle, InitResult, InitToken, Procedure, SEQUENCE_WINDOW, SecurityContext,
    SequenceWindow, Service, open_arguments, seal_results, signed_header,
};
use zgate_test_harness::gss::{FakeCall, FakeContext};
use zgate_xdr::{Decode, Decoder, Message};

target!(gss_any_bytes, 600, any_bytes);
target!(gss_damaged_calls, 400, damaged_calls);
target!(gss_results, 300, results);
target!(gss_sequence, 800, sequence);

const CONTEXT: FakeContext = FakeContext { key: 0x5a };

fn service(dice: &mut Dice<'_>) -> Service {
    Service::ALL[dice.below(3)]
}

/// Reads a call as a server does: its header, its credential, its arguments.
/// `None`: it does not run.
fn runs(raw: &[u8]) -> Option<(GssCredential, Bytes)> {
    let record = Bytes::copy_from_slice(raw);
    let mut d = Decoder::new(raw);
    let header = CallHeader::decode(&mut d).ok()?;
    let at = d.position();
    if header.credential.flavor != RPCSEC_GSS {
        return None;
    }
    let credential = GssCredential::parse(&header.credential).ok()?;
    let signed = signed_header(raw, &header)?;
    CONTEXT.verifies(signed, &header.verifier.body).then_some(())?;
    let arguments = open_arguments(&CONTEXT, &credential, &record, at).ok()?;
    Some((credential, arguments))
}

fn any_bytes(dice: &mut Dice<'_>) {
    let raw = dice.rest();
    let _ = runs(raw);
    let _ = InitToken::decode(&mut Decoder::new(raw));
    let _ = InitResult::decode(&mut Decoder::new(raw));
    let body = raw[..raw.len().min(400)].to_vec();
    if let Ok(credential) = GssCredential::parse(&OpaqueAuth { flavor: RPCSEC_GSS, body }) {
        let again = GssCredential::parse(&credential.to_opaque());
        assert_eq!(again.map(|again| again.sequence), Ok(credential.sequence));
    }
    let record = Bytes::copy_from_slice(raw);
    for service in [Service::Integrity, Service::Privacy] {
        let credential = GssCredential {
            procedure: Procedure::Data,
            sequence: 1,
            service,
            handle: None,
            has_no_handle: true,
        };
        for at in [0, 4, raw.len(), raw.len() + 1] {
            assert!(open_arguments(&CONTEXT, &credential, &record, at).is_err(), "forged");
        }
    }
}

/// A call runs as it was sent, and a damaged or cut one not at all; unless the
/// damage is in the arguments of a service that leaves them alone.
fn damaged_calls(dice: &mut Dice<'_>) {
    let service = service(dice);
    let (at, flip, cut) = (dice.below(1 << 16), 1 + dice.below(255) as u8, dice.below(1 << 16));
    let (sequence, words) = (dice.u32(), [(); 4].map(|()| dice.u32()));
    let mut arguments = dice.blob(200);
    arguments.resize(arguments.len().next_multiple_of(4), 0);
    let call = FakeCall {
        context: CONTEXT,
        handle: Some(Handle(7)),
        procedure: Procedure::Data,
        sequence,
        service,
        words,
        arguments: &arguments,
    };
    let raw = call.record();
    let (credential, opened) = runs(&raw).expect("as it was sent");
    assert_eq!((credential.sequence, &opened[..]), (sequence, &arguments[..]));
    let unprotected = if service == Service::None { arguments.len() } else { 0 };
    let protected = raw.len() - unprotected;
    let mut damaged = raw.clone();
    damaged[at % protected] ^= flip;
    if let Some((_, opened)) = runs(&damaged) {
        // Only the padding of a token means nothing.
        assert_eq!(&opened[..], &arguments[..], "byte {} of {service:?}", at % protected);
    }
    assert!(runs(&raw[..cut % protected]).is_none(), "cut");
}

/// Results are what the client opens.
fn results(dice: &mut Dice<'_>) {
    let (service, sequence) = (service(dice), dice.u32());
    let procedure = Procedure::Data;
    let credential =
        GssCredential { procedure, sequence, service, handle: None, has_no_handle: true };
    let mut results = dice.rest().to_vec();
    results.resize(results.len().next_multiple_of(4), 0);
    let message = Message::from(Bytes::from(results.clone()));
    let sealed = seal_results(&CONTEXT, &credential, message).unwrap().flatten().unwrap();
    let opened = open_arguments(&CONTEXT, &credential, &Bytes::from(sealed.to_vec()), 0);
    assert_eq!(opened.as_deref(), Ok(&results[..]));
}

/// No number is taken twice, in whatever order.
fn sequence(dice: &mut Dice<'_>) {
    let mut window = SequenceWindow::default();
    let mut taken = std::collections::BTreeSet::new();
    for _ in 0..200 {
        let highest = taken.last().copied().unwrap_or(0_u32);
        let step = dice.below(4 * SEQUENCE_WINDOW as usize) as u32;
        let sequence = (highest + step).saturating_sub(3 * SEQUENCE_WINDOW);
        if window.take(sequence).is_ok() {
            assert!(taken.insert(sequence), "{sequence} twice");
            assert!(sequence + SEQUENCE_WINDOW > highest, "{sequence} below the window");
        }
    }
}
