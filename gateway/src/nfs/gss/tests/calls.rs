//! Answers to calls.

use super::gateway::{ASKS_AGAIN, REFUSED, Session, TestGateway, with_kerberos};
use crate::nfs::dispatch::Answer;
use bytes::Bytes;
use zgate_nfs_wire::{PROGRAM, v4::COMPOUND};
use zgate_rpc::auth::{OpaqueAuth, RPCSEC_GSS};
use zgate_rpc::gss::{
    GssCredential, Handle, InitResult, MAX_SEQUENCE, NO_CONTEXT, Procedure, SEQUENCE_WINDOW,
    SecurityContext, Service, open_arguments,
};
use zgate_test_harness::gss::FakeContext;
use zgate_xdr::{Decode, Decoder};

const EVERY: &str = r#"["krb5p", "krb5i", "krb5"]"#;
const NULL: [u32; 4] = [9, PROGRAM, 4, 0];
const COMPOUND4: [u32; 4] = [9, PROGRAM, 4, COMPOUND];
/// auth_stat.
const BAD_CREDENTIAL: u32 = 1;
const REJECTED: u32 = 2;
const BAD_VERIFIER: u32 = 3;
const TOO_WEAK: u32 = 5;
const CREDENTIAL_PROBLEM: u32 = 13;
const CONTEXT_PROBLEM: u32 = 14;
/// accept_stat.
const GARBAGE: u32 = 4;

/// A COMPOUND of minor version 1: no tag, the operations PUTROOTFH and LOOKUP of
/// the export.
fn lookup_of_the_export() -> Vec<u8> {
    let words = [0_u32, 0, 2, 24, 15, 6];
    let mut raw: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    raw.extend(b"export\0\0");
    raw
}

/// Status of a COMPOUND's results.
pub(super) fn status(results: &[u8]) -> u32 {
    u32::from_be_bytes(*results.first_chunk().unwrap())
}

/// auth_stat of a reply that denies.
fn denied(reply: &[u8]) -> u32 {
    let mut d = Decoder::new(reply);
    let words = [(); 5].map(|()| d.u32().unwrap());
    assert_eq!(words[..4], [9, 1, 1, 1], "denied: {words:?}");
    words[4]
}

/// Checks the verifier of a reply that was accepted; `Ok` are the results, opened.
pub(super) fn accepted(
    session: &Session,
    (sequence, service): (u32, Service),
    reply: &[u8],
) -> Result<Bytes, u32> {
    let mut d = Decoder::new(reply);
    assert_eq!([(); 3].map(|()| d.u32().unwrap()), [9, 1, 0]);
    let verifier = OpaqueAuth::decode(&mut d).unwrap();
    assert_eq!(verifier.flavor, RPCSEC_GSS);
    assert!(session.context.verifies(&sequence.to_be_bytes(), &verifier.body), "verifier");
    match d.u32().unwrap() {
        0 => {
            let procedure = Procedure::Data;
            let handle = session.handle;
            let has_no_handle = false;
            let credential = GssCredential { procedure, sequence, service, handle, has_no_handle };
            let body = Bytes::copy_from_slice(d.rest());
            Ok(open_arguments(&session.context, &credential, &body, 0).unwrap())
        }
        error => Err(error),
    }
}

#[test]
fn every_service_serves_and_exports_decide_by_it() {
    for (security, allowed) in [
        (EVERY, [true, true, true]),
        (r#"["krb5p"]"#, [false, false, true]),
        (r#"["krb5i", "sys"]"#, [false, true, false]),
        (r#"["sys"]"#, [false, false, false]),
    ] {
        with_kerberos(security, async |gateway| {
            let session = gateway.session(0x33, "alice").await;
            for (service, allowed) in Service::ALL.into_iter().zip(allowed) {
                let sequence = 10 + service as u32;
                let null = session.call((sequence, service), NULL, b"");
                let reply = gateway.ask(&null).await.unwrap();
                assert_eq!(accepted(&session, (sequence, service), &reply).as_deref(), Ok(&[][..]));
                let (sequence, lookup) = (sequence + 10, lookup_of_the_export());
                let call = session.call((sequence, service), COMPOUND4, &lookup);
                let reply = gateway.ask(&call).await.unwrap();
                let results = accepted(&session, (sequence, service), &reply).unwrap();
                // NFS4ERR_WRONGSEC
                let expected = if allowed { 0 } else { 10016 };
                assert_eq!(status(&results), expected, "{security} {service:?}");
            }
        });
    }
}

#[test]
fn a_call_is_run_once_and_dropped_the_second_time() {
    with_kerberos(EVERY, async |gateway| {
        let session = gateway.session(0x33, "alice").await;
        let call = |sequence| session.call((sequence, Service::Privacy), NULL, b"");
        let far = 3 * SEQUENCE_WINDOW;
        assert!(gateway.ask(&call(far)).await.is_some());
        assert!(gateway.ask(&call(far)).await.is_none(), "repeated");
        assert!(gateway.ask(&call(far - SEQUENCE_WINDOW)).await.is_none(), "below the window");
        assert!(gateway.ask(&call(far - SEQUENCE_WINDOW + 1)).await.is_some(), "within it");
        let exhausted = gateway.ask(&call(MAX_SEQUENCE + 1)).await.unwrap();
        assert_eq!(denied(&exhausted), CONTEXT_PROBLEM);
        let refused = gateway.gateway.shared.nfs.kerberos.refused();
        assert!(refused.contains(&("sequence", 3)), "{refused:?}");
    });
}

/// Each bit of a call, changed: it is refused, and does not run.
#[test]
fn no_changed_call_runs() {
    with_kerberos(EVERY, async |gateway| {
        let session = gateway.session(0x33, "alice").await;
        let lookup = lookup_of_the_export();
        let mut sequence = 1;
        for service in [Service::Integrity, Service::Privacy] {
            let len = session.call((1, service), COMPOUND4, &lookup).record().len();
            for at in 0..len * 8 {
                sequence += 1;
                let mut raw = session.call((sequence, service), COMPOUND4, &lookup).record();
                raw[at / 8] ^= 1 << (at % 8);
                let Answer::Reply(reply) = gateway.raw(raw).await else { continue };
                let reply = reply.flatten().unwrap();
                let words: Vec<u32> = reply
                    .chunks_exact(4)
                    .map(|word| u32::from_be_bytes(word.try_into().unwrap()))
                    .collect();
                let has_run = words[1..3] == [1, 0] && words[6..].contains(&0) && {
                    let mut d = Decoder::new(&reply);
                    d.take(12).unwrap();
                    OpaqueAuth::decode(&mut d).unwrap();
                    d.u32() == Ok(0)
                };
                assert!(!has_run, "{service:?} bit {at}: {words:?}");
            }
        }
    });
}

#[test]
fn who_is_wrong_is_told_so() {
    with_kerberos(EVERY, async |gateway| {
        let session = gateway.session(0x33, "alice").await;
        let data = |session: Session| session.call((5, Service::None), NULL, b"");
        let unknown = Session { handle: Some(Handle(4711)), ..session };
        assert_eq!(denied(&gateway.ask(&data(unknown)).await.unwrap()), CREDENTIAL_PROBLEM);
        let none = Session { handle: None, ..session };
        assert_eq!(denied(&gateway.ask(&data(none)).await.unwrap()), CREDENTIAL_PROBLEM);
        let other_key = Session { context: FakeContext { key: 0x34 }, ..session };
        assert_eq!(denied(&gateway.ask(&data(other_key)).await.unwrap()), CREDENTIAL_PROBLEM);
        // The sequence number of a call that was refused is not used up.
        assert!(gateway.ask(&data(session)).await.is_some());
        // Arguments of another service.
        let mut call = session.call((6, Service::None), COMPOUND4, b"");
        call.service = Service::Integrity;
        let mut raw = call.record();
        raw.truncate(raw.len() - 4);
        let Answer::Reply(reply) = gateway.raw(raw).await else { panic!() };
        let reply = reply.flatten().unwrap();
        assert_eq!(accepted(&session, (6, Service::Integrity), &reply), Err(GARBAGE));
        // INIT beside the rules of RFC 2203 §5.2.2.
        let mut init = session.call((0, Service::None), [9, PROGRAM, 4, 0], b"\0\0\0\x04\x33bob");
        init.procedure = Procedure::Init;
        assert_eq!(denied(&gateway.ask(&init).await.unwrap()), BAD_CREDENTIAL, "with a handle");
        init.handle = None;
        init.words[3] = 1;
        assert_eq!(denied(&gateway.ask(&init).await.unwrap()), BAD_CREDENTIAL, "of COMPOUND");
        init.words[3] = 0;
        let mut raw = init.record();
        // The verifier stands behind 8 words and the credential of 5.
        raw[13 * 4 + 3] = 6;
        let Answer::Reply(reply) = gateway.raw(raw).await else { panic!() };
        assert_eq!(denied(&reply.flatten().unwrap()), BAD_VERIFIER);
    });
}

#[test]
fn contexts_begin_and_end() {
    with_kerberos(EVERY, async |gateway| {
        let kerberos = &gateway.gateway.shared.nfs.kerberos;
        let first = (Procedure::Init, None);
        let (told, verifier) = gateway.token(first, &[REFUSED]).await;
        assert_eq!(told, InitResult::failed(9 << 16, 7));
        assert_eq!(verifier, OpaqueAuth::none());
        let (told, _) = gateway.token((Procedure::ContinueInit, Some(Handle(1))), &[0x33]).await;
        assert_eq!(told, InitResult::failed(NO_CONTEXT, 0));
        assert_eq!(kerberos.context_count(), 0);

        // Two tokens.
        let (told, verifier) = gateway.token(first, &[ASKS_AGAIN]).await;
        assert!(told.needs_more() && verifier == OpaqueAuth::none());
        let unfinished =
            Session { context: FakeContext { key: ASKS_AGAIN.into() }, handle: told.handle };
        let early = gateway.ask(&unfinished.call((1, Service::None), NULL, b"")).await.unwrap();
        assert_eq!(denied(&early), CREDENTIAL_PROBLEM);
        let (told, _) = gateway.token((Procedure::ContinueInit, told.handle), &[ASKS_AGAIN]).await;
        assert!(told.is_complete());
        assert_eq!(kerberos.context_count(), 1);

        // DESTROY, by whoever has the key.
        let session = gateway.session(0x33, "alice").await;
        let mut destroy = session.call((3, Service::None), NULL, b"");
        destroy.procedure = Procedure::Destroy;
        destroy.context = FakeContext { key: 0x34 };
        assert_eq!(denied(&gateway.ask(&destroy).await.unwrap()), CREDENTIAL_PROBLEM);
        destroy.context = session.context;
        let reply = gateway.ask(&destroy).await.unwrap();
        assert!(accepted(&session, (3, Service::None), &reply).is_ok());
        let after = session.call((4, Service::None), NULL, b"");
        assert_eq!(denied(&gateway.ask(&after).await.unwrap()), CREDENTIAL_PROBLEM);

        // A reload without Kerberos.
        let session = gateway.session(0x33, "alice").await;
        kerberos.replace(None);
        let after = session.call((4, Service::None), NULL, b"");
        assert_eq!(denied(&gateway.ask(&after).await.unwrap()), REJECTED);
        assert_eq!(kerberos.context_count(), 0);
    });
}

#[test]
fn a_host_that_no_export_names_gets_no_context() {
    with_kerberos(EVERY, async |gateway: &TestGateway| {
        let mut init = gateway.session(0x33, "alice").await.call((0, Service::None), NULL, b"");
        (init.procedure, init.handle) = (Procedure::Init, None);
        let (head, stranger) = (Bytes::from(init.record()), [198, 51, 100, 1].into());
        let received =
            crate::nfs::record::Received { head, bulk: None, head_copies: 1, copied_bytes: 0 };
        let source = gateway.source(stranger);
        let Answer::Reply(reply) = crate::nfs::dispatch::answer(&source, false, received).await
        else {
            panic!()
        };
        assert_eq!(denied(&reply.flatten().unwrap()), TOO_WEAK);
        assert_eq!(gateway.gateway.shared.nfs.kerberos.context_count(), 1);
    });
}
