//! What a hostile peer may send below NFS: record markers, call and reply
//! headers, credentials. `PROPTEST_CASES` makes the runs longer,
//! `PROPTEST_RNG_SEED` (default 1) makes others.
#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngSeed};
use zgate_rpc::auth::OpaqueAuth;
use zgate_rpc::message::{CallError, decode_reply, encode_rejection, encode_success};
use zgate_rpc::record::{Parsed, parse};
use zgate_rpc::{AcceptError, AuthSys, CallHeader, Credential, Rejection};
use zgate_xdr::{Decode, Decoder, Encode, Encoder};

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn config(cases: u32) -> Config {
    let seed = number("PROPTEST_RNG_SEED").unwrap_or(1);
    println!("PROPTEST_RNG_SEED={seed}");
    Config {
        cases: number("PROPTEST_CASES").map_or(cases, |cases| cases as u32),
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..Config::default()
    }
}

fn bytes_of(value: &impl Encode) -> Vec<u8> {
    let mut e = Encoder::new();
    value.encode(&mut e);
    e.finish().flatten().unwrap().to_vec()
}

fn header() -> impl Strategy<Value = CallHeader> {
    let auth = || {
        let body = prop::collection::vec(any::<u8>(), 0..400);
        (0..8_u32, body).prop_map(|(flavor, body)| OpaqueAuth { flavor, body })
    };
    (any::<[u32; 4]>(), auth(), auth()).prop_map(|(words, credential, verifier)| CallHeader {
        xid: words[0],
        program: words[1],
        version: words[2],
        procedure: words[3],
        credential,
        verifier,
    })
}

proptest! {
    #![proptest_config(config(500))]

    #[test]
    fn headers_survive_the_trip_and_every_cut_is_refused(header in header(), cut in any::<Index>()) {
        let raw = bytes_of(&header);
        let mut d = Decoder::new(&raw);
        prop_assert_eq!(CallHeader::decode(&mut d), Ok(header.clone()));
        prop_assert_eq!(d.remaining(), 0);
        let cut = cut.index(raw.len());
        match CallHeader::decode(&mut Decoder::new(&raw[..cut])) {
            Ok(_) => prop_assert!(false, "a part of a header is no header"),
            Err(CallError::NotACall) => prop_assert!(cut < 12),
            Err(CallError::Reject { xid, .. }) => prop_assert_eq!(xid, header.xid),
        }
    }

    #[test]
    fn any_bytes_as_header_credential_and_reply(raw in prop::collection::vec(any::<u8>(), 0..500)) {
        let mut d = Decoder::new(&raw);
        if let Err(CallError::Reject { xid, why }) = CallHeader::decode(&mut d) {
            // Every refusal can be told to the peer, and reads back as one.
            let mut e = Encoder::new();
            encode_rejection(&mut e, xid, why);
            let told = e.finish().flatten().unwrap();
            prop_assert!(decode_reply(&mut Decoder::new(&told)).is_err());
        }
        let _ = decode_reply(&mut Decoder::new(&raw));
        let _ = AuthSys::decode(&mut Decoder::new(&raw));
        for flavor in 0..8 {
            let _ = Credential::parse(&OpaqueAuth { flavor, body: raw.clone() });
        }
    }

    #[test]
    fn damaged_headers(header in header(), at in any::<Index>(), word in any::<u32>()) {
        let mut raw = bytes_of(&header);
        let at = at.index(raw.len()) & !3;
        raw[at..at + 4].copy_from_slice(&word.to_be_bytes());
        let mut d = Decoder::new(&raw);
        if let Ok(header) = CallHeader::decode(&mut d) {
            prop_assert!(header.credential.body.len() <= 400 && header.verifier.body.len() <= 400);
        }
    }

    #[test]
    fn credentials_survive_the_trip(
        stamp in any::<u32>(),
        machine in prop::collection::vec(any::<u8>(), 0..=255),
        ids in any::<[u32; 2]>(),
        groups in prop::collection::vec(any::<u32>(), 0..=16),
        cut in any::<Index>(),
    ) {
        let sys = AuthSys { stamp, machine, uid: ids[0], gid: ids[1], groups };
        let credential = Credential::Sys(sys);
        let wire = credential.to_opaque();
        prop_assert_eq!(Credential::parse(&wire).ok(), Some(credential));
        let body = wire.body[..cut.index(wire.body.len())].to_vec();
        let short = OpaqueAuth { body, ..wire };
        prop_assert!(Credential::parse(&short).is_err());
    }

    #[test]
    fn replies_say_what_they_were_made_of(xid in any::<u32>(), which in 0..5) {
        let mut e = Encoder::new();
        let why = match which {
            0 => {
                encode_success(&mut e, xid);
                None
            }
            1 => Some(AcceptError::ProgramUnavailable),
            2 => Some(AcceptError::ProgramMismatch(3, 4)),
            3 => Some(AcceptError::ProcedureUnavailable),
            _ => Some(AcceptError::GarbageArguments),
        };
        if let Some(why) = why {
            encode_rejection(&mut e, xid, Rejection::Accept(why));
        }
        let raw = e.finish().flatten().unwrap();
        let read = decode_reply(&mut Decoder::new(&raw));
        prop_assert_eq!(read.is_ok(), why.is_none());
        let named = read.map_or_else(|(xid, _)| xid, Some);
        prop_assert_eq!(named, Some(xid));
    }

    /// However the stream is cut into reads, the same records come out.
    #[test]
    fn a_stream_of_records_parses_the_same_however_it_arrives(
        records in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..30), 1..5), 0..6),
        junk in prop::collection::vec(any::<u8>(), 0..10),
        steps in prop::collection::vec(1..40_usize, 1..40),
    ) {
        let mut stream = Vec::new();
        for fragments in &records {
            for (at, fragment) in fragments.iter().enumerate() {
                let last = if at + 1 == fragments.len() { 0x8000_0000 } else { 0 };
                stream.extend((fragment.len() as u32 | last).to_be_bytes());
                stream.extend(fragment);
            }
        }
        stream.extend(&junk);
        let (mut buffer, mut seen, mut fed, mut steps) = (Vec::new(), Vec::new(), 0, steps.iter().cycle());
        'stream: loop {
            loop {
                match parse(&buffer) {
                    Ok(Parsed::Record(record)) => {
                        prop_assert!(record.consumed > 0 && record.consumed <= buffer.len());
                        seen.push(record.body(&buffer).to_vec());
                        buffer.drain(..record.consumed);
                    }
                    Ok(Parsed::Need(more)) => {
                        prop_assert!(more > 0);
                        break;
                    }
                    Err(_) => break 'stream,
                }
            }
            if fed == stream.len() {
                break;
            }
            let next = (fed + steps.next().unwrap()).min(stream.len());
            buffer.extend(&stream[fed..next]);
            fed = next;
        }
        let expected: Vec<Vec<u8>> = records.iter().map(|fragments| fragments.concat()).collect();
        prop_assert!(seen.starts_with(&expected), "the junk behind them changes nothing before");
    }
}
