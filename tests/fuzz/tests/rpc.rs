//! ONC RPC (RFC 5531): record marking, call headers, credentials and replies
//! on any bytes.

use zgate_fuzz::{Dice, target};
use zgate_rpc::message::{CallError, decode_reply, encode_rejection};
use zgate_rpc::record::{Parsed, parse};
use zgate_rpc::{AcceptError, CallHeader, Credential, Rejection};
use zgate_xdr::{Decoder, Encode, Encoder};

target!(rpc_records, 2000, records);
target!(rpc_headers, 800, headers);

/// However a stream is cut, the same records come out of it, and never is less
/// asked for than is needed.
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
