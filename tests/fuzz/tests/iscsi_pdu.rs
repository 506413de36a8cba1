//! iSCSI framing and headers (RFC 7143 §11) on arbitrary bytes: the PDUs do not
//! depend on the segmentation of the stream, memory is bounded, and a decoded
//! header encodes to an equivalent one.

use bytes::Bytes;
use zgate_fuzz::{Dice, target};
use zgate_iscsi::framing::{Decoder, Digests, Encoder, FramingError};
use zgate_iscsi::limits::{MAX_AHS_BYTES, MAX_CDB_BYTES};
use zgate_iscsi::pdu::*;
use zgate_store::Payload;

target!(iscsi_framing, 3000, framing);
target!(iscsi_headers, 400, headers);

const MOST_BYTES: u32 = 1024;

type Seen = (Vec<([u8; 48], Vec<u8>, Vec<u8>, bool)>, Option<FramingError>);

fn decode(stream: &[u8], cuts: &[u8], digests: Digests) -> Seen {
    let mut decoder = Decoder::new(MOST_BYTES);
    decoder.configure(digests, MOST_BYTES);
    let (mut seen, mut at) = (Vec::new(), 0);
    for cut in cuts.iter().cycle() {
        let end = stream.len().min(at + usize::from(*cut) + 1);
        decoder.feed(Bytes::copy_from_slice(&stream[at..end]));
        at = end;
        loop {
            match decoder.poll() {
                Ok(Some(frame)) => {
                    assert!(frame.data_bytes() <= MOST_BYTES as usize);
                    assert!(frame.ahs.len() <= MAX_AHS_BYTES);
                    let data = frame.contiguous_data().to_vec();
                    seen.push((frame.bhs.0, frame.ahs.to_vec(), data, frame.data_digest_ok));
                }
                Ok(None) => break,
                Err(error) => return (seen, Some(error)),
            }
        }
        assert!(decoder.buffered_bytes() <= MAX_AHS_BYTES + 48 + 4 + 256, "taken but not used");
        if at == stream.len() {
            break;
        }
    }
    (seen, None)
}

fn framing(dice: &mut Dice<'_>) {
    let digests = Digests { header: dice.once_in(2), data: dice.once_in(2) };
    let cuts = [dice.byte(), dice.byte() % 16, dice.byte() % 64];
    let mut stream = Vec::new();
    let mut encoder = Encoder::new();
    encoder.configure(digests);
    while !dice.is_spent() && stream.len() < 8000 {
        if dice.once_in(6) {
            stream.extend_from_slice(dice.raw(60));
            continue;
        }
        let mut bhs = Bhs([0; 48]);
        bhs.put(0, dice.raw(48));
        bhs.set_ahs_bytes(0);
        bhs.set_data_bytes(0);
        let data = Bytes::from(dice.blob(1100));
        let mut pdu = Outgoing::with_bytes(bhs, data);
        if dice.once_in(4) {
            pdu.ahs = Bytes::from(vec![dice.byte(); dice.below(12) * 4]);
            pdu.bhs.set_ahs_bytes(pdu.ahs.len());
        }
        let (at, mut pieces) = (stream.len(), Vec::new());
        assert!(encoder.encode(pdu, &mut pieces).is_ok());
        for piece in pieces {
            let Payload::Bytes(bytes) = piece else { unreachable!("memory went in") };
            stream.extend_from_slice(&bytes);
        }
        if dice.once_in(8) {
            let hit = at + dice.below(stream.len() - at);
            stream[hit] ^= dice.byte();
        }
    }
    let whole = decode(&stream, &[255], digests);
    assert_eq!(decode(&stream, &cuts, digests), whole);
    assert_eq!(decode(&stream, &[0], digests), whole);
}

/// Parses, encodes and parses again: both results must be equal.
fn twice<T: PartialEq + std::fmt::Debug>(
    first: T,
    encode: impl Fn(&T) -> Bhs,
    parse: impl Fn(&Bhs) -> T,
) {
    let again = parse(&encode(&first));
    assert_eq!(again, first);
}

fn headers(dice: &mut Dice<'_>) {
    let mut bhs = Bhs([0; 48]);
    bhs.put(0, dice.raw(48));
    let none = Bytes::new;
    twice(DataOut::parse(&bhs), |p| p.encode(none()).bhs, DataOut::parse);
    twice(DataIn::parse(&bhs), |p| p.encode(Vec::new()).bhs, DataIn::parse);
    twice(R2t::parse(&bhs), |p| p.encode().bhs, R2t::parse);
    twice(NopOut::parse(&bhs), |p| p.encode(none()).bhs, NopOut::parse);
    twice(NopIn::parse(&bhs), |p| p.encode(none()).bhs, NopIn::parse);
    twice(TextRequest::parse(&bhs), |p| p.encode(none()).bhs, TextRequest::parse);
    twice(TextResponse::parse(&bhs), |p| p.encode(none()).bhs, TextResponse::parse);
    twice(LogoutRequest::parse(&bhs), |p| p.encode().bhs, LogoutRequest::parse);
    twice(LogoutResponse::parse(&bhs), |p| p.encode().bhs, LogoutResponse::parse);
    twice(TaskRequest::parse(&bhs), |p| p.encode().bhs, TaskRequest::parse);
    twice(TaskResponse::parse(&bhs), |p| p.encode().bhs, TaskResponse::parse);
    twice(AsyncMessage::parse(&bhs), |p| p.encode(none()).bhs, AsyncMessage::parse);
    if let Ok(first) = Snack::parse(&bhs) {
        assert_eq!(Snack::parse(&first.encode().bhs), Ok(first));
    }
    if let Ok(first) = LoginRequest::parse(&bhs) {
        assert_eq!(LoginRequest::parse(&first.encode(none()).bhs), Ok(first));
    }
    if let Ok(first) = LoginResponse::parse(&bhs) {
        assert_eq!(LoginResponse::parse(&first.encode(none()).bhs), Ok(first));
    }
    let ahs = dice.blob(80);
    let padded =
        Bytes::from([&ahs[..], &vec![0; ahs.len().next_multiple_of(4) - ahs.len()]].concat());
    let _ = parse_ahs(&padded);
    let frame = Frame::new(bhs, padded, vec![Bytes::from(dice.blob(40))]);
    if let Ok(first) = ScsiCommand::parse(&frame) {
        assert!(first.cdb.len() <= MAX_CDB_BYTES);
        let out = first.encode(Bytes::new());
        let again = Frame::new(out.bhs, out.ahs, Vec::new());
        assert_eq!(ScsiCommand::parse(&again), Ok(first));
    }
    let sense = dice.blob(60);
    assert!(ScsiResponse::sense(&Bytes::from(sense.clone())).len() <= sense.len());
}
