//! ONC RPC (RFC 5531): record marking, call headers, credentials and replies
//! on any bytes.
#![allow(clippy::unwrap_used, reason = "tests")]

use zgate_fuzz::{Dice, target};
use zgate_rpc::auth::OpaqueAuth;
use zgate_rpc::message::{CallError, decode_reply, encode_rejection, encode_success};
use zgate_rpc::record::{Parsed, parse};
use zgate_rpc::{AcceptError, AuthSys, CallHeader, Credential, Rejection};
use zgate_xdr::{Decode, Decoder, Encode, Encoder};

target!(rpc_records, 2000, records);
target!(rpc_records_before_junk, 1500, records_before_junk);
target!(rpc_record_cut, 300, record_cut);
target!(rpc_any_record, 600, any_record);
target!(rpc_headers, 800, headers);
target!(rpc_headers_cut_and_damaged, 1000, headers_cut_and_damaged);
target!(rpc_any_bytes, 500, any_bytes);
target!(rpc_credentials, 500, credentials);
target!(rpc_replies, 16, replies);

const LAST: u32 = 1 << 31;

fn bytes_of(value: &impl Encode) -> Vec<u8> {
    let mut e = Encoder::new();
    value.encode(&mut e);
    e.finish().flatten().unwrap().to_vec()
}

/// A record of these fragments.
fn record(fragments: &[Vec<u8>]) -> Vec<u8> {
    let mut raw = Vec::new();
    for (at, fragment) in fragments.iter().enumerate() {
        let last = if at + 1 == fragments.len() { LAST } else { 0 };
        raw.extend((fragment.len() as u32 | last).to_be_bytes());
        raw.extend(fragment);
    }
    raw
}

/// Any cut of a record needs more, and the whole is found.
fn record_cut(dice: &mut Dice<'_>) {
    let cut = dice.below(1 << 16);
    let fragments: Vec<Vec<u8>> = (0..1 + dice.below(7)).map(|_| dice.blob(19)).collect();
    let raw = record(&fragments);
    let cut = cut % raw.len();
    let Ok(Parsed::Need(more)) = parse(&raw[..cut]) else { panic!("found too early") };
    assert!(more > 0 && cut + more <= raw.len());
    let Ok(Parsed::Record(record)) = parse(&raw) else { panic!("not found") };
    assert_eq!(record.body(&raw).to_vec(), fragments.concat());
    assert_eq!(record.consumed, raw.len());
}

fn any_record(dice: &mut Dice<'_>) {
    let raw = dice.rest();
    if let Ok(Parsed::Record(record)) = parse(raw) {
        assert!(record.consumed <= raw.len());
        assert_eq!(record.body(raw).len(), record.len());
    }
}

/// However a stream is cut into reads, the same records come out, and junk behind
/// them changes nothing before.
fn records_before_junk(dice: &mut Dice<'_>) {
    let steps: Vec<usize> = (0..1 + dice.below(39)).map(|_| 1 + dice.below(39)).collect();
    let junk = dice.blob(9);
    let records: Vec<Vec<Vec<u8>>> = (0..dice.below(6))
        .map(|_| (0..1 + dice.below(4)).map(|_| dice.blob(29)).collect())
        .collect();
    let mut stream: Vec<u8> = records.iter().flat_map(|fragments| record(fragments)).collect();
    stream.extend(&junk);
    let (mut buffer, mut seen, mut fed) = (Vec::new(), Vec::new(), 0);
    let mut steps = steps.iter().cycle();
    'stream: loop {
        loop {
            match parse(&buffer) {
                Ok(Parsed::Record(record)) => {
                    assert!(record.consumed > 0 && record.consumed <= buffer.len());
                    seen.push(record.body(&buffer).to_vec());
                    buffer.drain(..record.consumed);
                }
                Ok(Parsed::Need(more)) => {
                    assert!(more > 0);
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
    assert!(seen.starts_with(&expected), "the junk behind them changes nothing before");
}

fn header(dice: &mut Dice<'_>) -> CallHeader {
    let mut auth = || OpaqueAuth { flavor: dice.below(8) as u32, body: dice.blob(399) };
    let (credential, verifier) = (auth(), auth());
    let [xid, program, version, procedure] = [(); 4].map(|()| dice.u32());
    CallHeader { xid, program, version, procedure, credential, verifier }
}

/// Headers survive the trip, every cut is refused, and damage adds nothing.
fn headers_cut_and_damaged(dice: &mut Dice<'_>) {
    let (cut, at, word) = (dice.below(1 << 16), dice.below(1 << 16), dice.u32());
    let header = header(dice);
    let mut raw = bytes_of(&header);
    let mut d = Decoder::new(&raw);
    assert_eq!(CallHeader::decode(&mut d), Ok(header.clone()));
    assert_eq!(d.remaining(), 0);
    let cut = cut % raw.len();
    match CallHeader::decode(&mut Decoder::new(&raw[..cut])) {
        Ok(_) => panic!("a part of a header is no header"),
        Err(CallError::NotACall) => assert!(cut < 12),
        Err(CallError::Reject { xid, .. }) => assert_eq!(xid, header.xid),
    }
    let at = (at % raw.len()) & !3;
    raw[at..at + 4].copy_from_slice(&word.to_be_bytes());
    if let Ok(header) = CallHeader::decode(&mut Decoder::new(&raw)) {
        assert!(header.credential.body.len() <= 400 && header.verifier.body.len() <= 400);
    }
}

/// Any bytes as header, credential and reply.
fn any_bytes(dice: &mut Dice<'_>) {
    let raw = dice.rest();
    if let Err(CallError::Reject { xid, why }) = CallHeader::decode(&mut Decoder::new(raw)) {
        // Every refusal can be told to the peer, and reads back as one.
        let mut e = Encoder::new();
        encode_rejection(&mut e, xid, why);
        let told = e.finish().flatten().unwrap();
        assert!(decode_reply(&mut Decoder::new(&told)).is_err());
    }
    let _ = decode_reply(&mut Decoder::new(raw));
    let _ = AuthSys::decode(&mut Decoder::new(raw));
    for flavor in 0..8 {
        let _ = Credential::parse(&OpaqueAuth { flavor, body: raw.to_vec() });
    }
}

/// Credentials survive the trip, and no part of one is one.
fn credentials(dice: &mut Dice<'_>) {
    let (cut, stamp, uid, gid) = (dice.below(1 << 16), dice.u32(), dice.u32(), dice.u32());
    let groups = (0..dice.below(17)).map(|_| dice.u32()).collect();
    let machine = dice.blob(255);
    let credential = Credential::Sys(AuthSys { stamp, machine, uid, gid, groups });
    let wire = credential.to_opaque();
    assert_eq!(Credential::parse(&wire).ok(), Some(credential));
    let body = wire.body[..cut % wire.body.len()].to_vec();
    assert!(Credential::parse(&OpaqueAuth { body, ..wire }).is_err());
}

/// Replies say what they were made of.
fn replies(dice: &mut Dice<'_>) {
    let (which, xid) = (dice.below(5), dice.u32());
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
    assert_eq!(read.is_ok(), why.is_none());
    let named = read.map_or_else(|(xid, _)| xid, Some);
    assert_eq!(named, Some(xid));
}

/// The records do not depend on the segmentation of the stream, and the number
/// of requested bytes is never too small.
fn records(dice: &mut Dice<'_>) {
    let cuts: Vec<usize> = dice.raw(8).iter().map(|cut| usize::from(*cut)).collect();
    let mut stream = Vec::new();
    while !dice.is_spent() && stream.len() < 1500 {
        if dice.once_in(8) {
            stream.extend(dice.u32().to_be_bytes());
            continue;
        }
        let body = dice.blob(40);
        let last = if dice.once_in(3) { 0 } else { 1 << 31 };
        stream.extend((body.len() as u32 | last).to_be_bytes());
        stream.extend(body);
    }
    let mut whole = Vec::new();
    let mut rest = &stream[..];
    while let Ok(Parsed::Record(record)) = parse(rest) {
        assert!(record.consumed >= 4 && record.consumed <= rest.len());
        assert_eq!(record.body(rest).len(), record.len());
        whole.push(record.body(rest).to_vec());
        rest = &rest[record.consumed..];
    }
    let (mut pieces, mut buffer, mut at) = (Vec::new(), Vec::new(), 0);
    for cut in cuts.iter().cycle().take(4000) {
        let end = stream.len().min(at + cut.max(&1));
        buffer.extend_from_slice(&stream[at..end]);
        at = end;
        while let Ok(Parsed::Record(record)) = parse(&buffer) {
            pieces.push(record.body(&buffer).to_vec());
            buffer.drain(..record.consumed);
        }
        match parse(&buffer) {
            Ok(Parsed::Need(more)) => assert!(more > 0),
            Ok(Parsed::Record(_)) => unreachable!("all were taken"),
            Err(_) => break,
        }
        if at == stream.len() {
            break;
        }
    }
    if at == stream.len() {
        assert_eq!(pieces, whole);
    } else {
        assert!(whole.starts_with(&pieces) || pieces.starts_with(&whole));
    }
}

fn headers(dice: &mut Dice<'_>) {
    let mut bytes = Vec::new();
    if !dice.once_in(4) {
        for word in [dice.u32(), 0, 2, 100_003, 4, 1] {
            bytes.extend((word).to_be_bytes());
        }
        for _ in 0..2 {
            let most = if dice.once_in(8) { 500 } else { 60 };
            let body = dice.blob(most);
            bytes.extend(u32::from(dice.byte() % 8).to_be_bytes());
            bytes.extend((body.len() as u32).to_be_bytes());
            bytes.extend(&body);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
    }
    bytes.extend_from_slice(dice.rest());
    let mut d = Decoder::new(&bytes);
    match CallHeader::decode(&mut d) {
        Ok(header) => {
            let mut e = Encoder::new();
            header.encode(&mut e);
            let again = e.finish().flatten().unwrap_or_default();
            assert_eq!(&again[..], &bytes[..d.position()]);
            if let Ok(credential @ Credential::Sys(_)) = Credential::parse(&header.credential) {
                assert_eq!(Credential::parse(&credential.to_opaque()), Ok(credential));
            }
        }
        Err(CallError::Reject { xid, why }) => {
            assert_eq!(xid.to_be_bytes(), bytes[..4]);
            assert!(!matches!(why, Rejection::Accept(e) if e == AcceptError::SystemError));
            let mut e = Encoder::new();
            encode_rejection(&mut e, xid, why);
            let reply = e.finish().flatten().unwrap_or_default();
            assert!(decode_reply(&mut Decoder::new(&reply)).is_err());
        }
        Err(CallError::NotACall) => {}
    }
    let _ = decode_reply(&mut Decoder::new(&bytes));
}
