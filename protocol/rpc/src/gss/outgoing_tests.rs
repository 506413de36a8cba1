//! Calls under contexts of this server, against a callback service of the tests
//! that uses the server's own side of RFC 2203.

use super::super::fake::FakeContext;
use super::super::{GssCredential, open_arguments, seal_results};
use super::*;
use crate::message::{AcceptError, Rejection, decode_reply, encode_accepted, encode_rejection};

const PROGRAM: u32 = 0x4000_0000;
const CONTEXT: FakeContext = FakeContext { key: 0x5a };
/// Not of the length of our own handles.
const HANDLE: &[u8] = b"eleven bytes";
const WINDOW: u32 = 128;

fn bytes(build: impl FnOnce(&mut Encoder)) -> Bytes {
    let mut e = Encoder::new();
    build(&mut e);
    e.finish_bytes().unwrap()
}

fn verifier(context: FakeContext, number: u32) -> OpaqueAuth {
    OpaqueAuth { flavor: RPCSEC_GSS, body: context.mic(&number.to_be_bytes()).unwrap() }
}

/// Reply to a token.
fn told(xid: u32, (major, window): (u32, u32), verifier: &OpaqueAuth) -> Bytes {
    bytes(|e| {
        encode_accepted(e, xid, verifier, None);
        e.opaque(HANDLE);
        [major, 7, window].into_iter().for_each(|word| e.u32(word));
        e.opaque(b"answer");
    })
}

fn established(service: Service) -> OutgoingContext {
    let mut establishing = Establishing::new(PROGRAM, 1);
    establishing.call(1, b"token".to_vec()).unwrap();
    let raw = told(1, (COMPLETE, WINDOW), &verifier(CONTEXT, WINDOW));
    let step = establishing.reply(1, &raw).unwrap();
    establishing.finish(Box::new(CONTEXT), &step.proof.unwrap(), service, 100).unwrap()
}

/// CB_COMPOUND without protection.
fn plain(xid: u32) -> Message {
    let header = CallHeader {
        xid,
        program: PROGRAM,
        version: 1,
        procedure: 1,
        credential: OpaqueAuth::none(),
        verifier: OpaqueAuth::none(),
    };
    Message::from(bytes(|e| {
        header.encode(e);
        e.raw(b"arguments...");
    }))
}

/// The callback service: verifies a call, opens it, and answers.
fn answer(call: &[u8], (context, results): (FakeContext, &[u8])) -> Bytes {
    let record = Bytes::copy_from_slice(call);
    let mut d = Decoder::new(&record);
    let header = CallHeader::decode(&mut d).unwrap();
    let signed = signed_header(&record, &header).unwrap();
    assert!(CONTEXT.verifies(signed, &header.verifier.body), "header");
    let mut words = Decoder::new(&header.credential.body);
    let [version, procedure, sequence, service] = [(); 4].map(|()| words.u32().unwrap());
    assert_eq!((version, procedure, words.opaque(128).unwrap()), (1, 0, HANDLE));
    let service = Service::ALL[service as usize - 1];
    let credential = GssCredential {
        procedure: Procedure::Data,
        sequence,
        service,
        handle: None,
        has_no_handle: true,
    };
    let opened = open_arguments(&CONTEXT, &credential, &record, d.position());
    assert_eq!(opened.as_deref(), Ok(&b"arguments..."[..]));
    let mut results = Message::from(Bytes::copy_from_slice(results));
    results = seal_results(&context, &credential, results).unwrap();
    results.prepend(bytes(|e| {
        encode_accepted(e, header.xid, &verifier(context, sequence), None);
    }));
    results.flatten().unwrap()
}

#[test]
fn a_context_begins_with_tokens_in_null_calls() {
    let mut establishing = Establishing::new(PROGRAM, 1);
    let first = establishing.call(1, b"first".to_vec()).unwrap().flatten().unwrap();
    let mut d = Decoder::new(&first);
    let header = CallHeader::decode(&mut d).unwrap();
    assert_eq!((header.program, header.version, header.procedure), (PROGRAM, 1, 0));
    let credential = GssCredential::parse(&header.credential).unwrap();
    assert_eq!((credential.procedure, credential.has_no_handle), (Procedure::Init, true));
    assert_eq!(InitToken::decode(&mut d), Ok(InitToken(b"first".to_vec())));

    let more = told(1, (CONTINUE_NEEDED, 0), &OpaqueAuth::none());
    let step = establishing.reply(1, &more).unwrap();
    assert_eq!(step, ServerStep { token: b"answer".to_vec(), proof: None });
    let second = establishing.call(2, b"second".to_vec()).unwrap().flatten().unwrap();
    let header = CallHeader::decode(&mut Decoder::new(&second)).unwrap();
    let credential = GssCredential::parse(&header.credential).unwrap();
    assert_eq!((credential.procedure, credential.has_no_handle), (Procedure::ContinueInit, false));
    assert!(header.credential.body.ends_with(HANDLE));
}

#[test]
fn a_client_that_wants_tokens_without_end_is_left() {
    let mut establishing = Establishing::new(PROGRAM, 1);
    for xid in 0..MAX_INIT_EXCHANGES {
        establishing.call(xid, Vec::new()).unwrap();
        let more = told(xid, (CONTINUE_NEEDED, 0), &OpaqueAuth::none());
        assert!(establishing.reply(xid, &more).unwrap().proof.is_none());
    }
    assert_eq!(establishing.call(9, Vec::new()).err(), Some(OutgoingFault::TooManyTokens));
}

#[test]
fn a_context_counts_only_with_the_clients_proof() {
    let finish = |window: u32, verifier: OpaqueAuth| {
        let mut establishing = Establishing::new(PROGRAM, 1);
        establishing.call(1, Vec::new()).unwrap();
        let step = establishing.reply(1, &told(1, (COMPLETE, window), &verifier)).unwrap();
        establishing.finish(Box::new(CONTEXT), &step.proof.unwrap(), Service::None, 9).err()
    };
    assert_eq!(finish(WINDOW, verifier(CONTEXT, WINDOW)), None);
    let wrong = Some(OutgoingFault::BadVerifier);
    assert_eq!(finish(WINDOW, verifier(CONTEXT, WINDOW + 1)), wrong);
    assert_eq!(finish(WINDOW, verifier(FakeContext { key: 1 }, WINDOW)), wrong);
    assert_eq!(finish(WINDOW, OpaqueAuth::none()), wrong);
    let small = MIN_OUTGOING_WINDOW - 1;
    assert_eq!(finish(small, verifier(CONTEXT, small)), Some(OutgoingFault::SmallWindow(small)));
}

#[test]
fn refusals_of_tokens_are_told_apart() {
    let reply = |raw: &[u8]| Establishing::new(PROGRAM, 1).reply(1, raw).err();
    let refused = told(1, (13 << 16, 0), &OpaqueAuth::none());
    let fault = OutgoingFault::TokenRefused { major: 13 << 16, minor: 7 };
    assert_eq!(reply(&refused), Some(fault));
    let denied = bytes(|e| encode_rejection(e, 1, Rejection::Auth(AuthError::RejectedCredential)));
    assert_eq!(reply(&denied), Some(OutgoingFault::Refused(2)));
    let other = told(2, (COMPLETE, WINDOW), &OpaqueAuth::none());
    assert_eq!(reply(&other), Some(OutgoingFault::NotAReply));
    for cut in 0..refused.len() {
        assert!(reply(&refused[..cut]).is_some(), "cut at {cut}");
    }
}

#[test]
fn calls_are_what_a_server_of_the_rfc_opens() {
    for service in Service::ALL {
        let context = established(service);
        for xid in 5..9 {
            let call = context.protect(&plain(xid)).unwrap();
            let raw = answer(&call.record, (CONTEXT, b"the results."));
            let opened = context.open(&call, &raw).unwrap();
            let mut d = Decoder::new(&opened);
            assert_eq!(decode_reply(&mut d), Ok(xid));
            assert_eq!(d.rest(), b"the results.", "{service:?}");
            if service == Service::Privacy {
                assert!(!call.record.windows(9).any(|part| part == b"arguments"), "readable");
            }
        }
    }
}

#[test]
fn no_changed_reply_has_results() {
    for service in [Service::Integrity, Service::Privacy] {
        let context = established(service);
        let call = context.protect(&plain(5)).unwrap();
        let good = answer(&call.record, (CONTEXT, b"the results."));
        let opened = context.open(&call, &good).unwrap();
        for bit in 0..good.len() * 8 {
            let mut raw = good.to_vec();
            raw[bit / 8] ^= 1 << (bit % 8);
            // The word that says "accepted" has several readings with one meaning.
            let changed = context.open(&call, &Bytes::from(raw));
            assert!(changed.is_err() || changed == Ok(opened.clone()), "{service:?} bit {bit}");
            assert!(changed.is_err() || bit / 32 == 2, "{service:?} bit {bit}");
        }
        for cut in 0..good.len() {
            assert!(context.open(&call, &good.slice(..cut)).is_err(), "{service:?} cut at {cut}");
        }
        let forged = answer(&call.record, (FakeContext { key: 1 }, b"the results."));
        assert_eq!(context.open(&call, &forged), Err(OutgoingFault::BadVerifier));
        // A reply to an earlier call, whose number is another.
        let later = context.protect(&plain(5)).unwrap();
        assert_eq!(context.open(&later, &good), Err(OutgoingFault::BadVerifier));
    }
}

#[test]
fn a_lost_context_is_told_from_other_refusals() {
    let context = established(Service::None);
    let call = context.protect(&plain(5)).unwrap();
    let denied = |error| bytes(|e| encode_rejection(e, 5, Rejection::Auth(error)));
    let open = |raw: Bytes| context.open(&call, &raw).unwrap_err();
    for error in [AuthError::GssCredentialProblem, AuthError::GssContextProblem] {
        assert_eq!(open(denied(error)), OutgoingFault::ContextLost);
    }
    assert_eq!(open(denied(AuthError::BadCredential)), OutgoingFault::Refused(1));
    let garbage = AcceptError::GarbageArguments;
    let not_run = bytes(|e| encode_accepted(e, 5, &verifier(CONTEXT, 1), Some(garbage)));
    assert_eq!(open(not_run), OutgoingFault::NotRun(4));
}

#[test]
fn a_context_ends_by_time_and_by_number() {
    let context = established(Service::Integrity);
    assert!(context.is_usable(99) && !context.is_usable(100));
    context.next.store(MAX_SEQUENCE - 1, Ordering::Relaxed);
    assert!(context.protect(&plain(5)).is_ok());
    assert!(!context.is_usable(0));
    assert!(context.protect(&plain(5)).is_ok());
    assert_eq!(context.protect(&plain(5)).err(), Some(OutgoingFault::Expired));
    let mut broken = context;
    broken.security = Box::new(FakeContext { key: 0 });
    broken.next.store(1, Ordering::Relaxed);
    assert_eq!(broken.protect(&plain(5)).err(), Some(OutgoingFault::Expired));
}

#[test]
fn the_end_of_a_context_is_told_once_and_only_while_it_can_sign() {
    for service in Service::ALL {
        let (tell, told) = std::sync::mpsc::channel();
        let context = established(service);
        context.protect(&plain(5)).unwrap();
        drop(context.told_when_dropped(move |call| tell.send(call).unwrap()));
        let call = told.try_recv().unwrap();
        assert!(told.try_recv().is_err());
        let mut d = Decoder::new(&call.record);
        let header = CallHeader::decode(&mut d).unwrap();
        assert_eq!((header.program, header.version, header.procedure), (PROGRAM, 1, 0));
        assert!(d.rest().is_empty(), "a DESTROY has no arguments");
        let signed = signed_header(&call.record, &header).unwrap();
        assert!(CONTEXT.verifies(signed, &header.verifier.body));
        let mut words = Decoder::new(&header.credential.body);
        let [_, procedure, sequence, _] = [(); 4].map(|()| words.u32().unwrap());
        assert_eq!((procedure, sequence, words.opaque(128).unwrap()), (3, 2, HANDLE));

        let other = established(service);
        let done = |number| bytes(|e| encode_accepted(e, 0, &verifier(CONTEXT, number), None));
        assert_eq!(other.open_destroyed(&call, &done(2)), Ok(()));
        assert_eq!(other.open_destroyed(&call, &done(1)), Err(OutgoingFault::BadVerifier));
    }
    let mut broken = established(Service::None).told_when_dropped(|_| panic!("nothing to send"));
    broken.security = Box::new(FakeContext { key: 0 });
}
