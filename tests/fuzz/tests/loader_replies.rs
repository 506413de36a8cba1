//! Replies of a server to the loader: any bytes, replies that begin well, and
//! whole replies with changes. No panic, no result that was not sent, and no
//! more data than there is; headers of safetensors files of any content.
#![allow(clippy::unwrap_used, reason = "tests")]

use bytes::Bytes;
use zgate_fuzz::{Dice, target};
use zgate_loader::compound::Results;
use zgate_loader::safetensors::{Header, MAX_HEADER_BYTES, header_bytes};
use zgate_loader::session::decode;
use zgate_nfs_wire::v4::op::{
    CreateSession, ExchangeId, Getattr, Getfh, Open, Operation, Readdir, read, sequence,
};
use zgate_nfs_wire::v4::{OpNum, Status};
use zgate_store::Payload;
use zgate_xdr::{Encode, Encoder};

target!(loader_any_reply, 400, any_reply);
target!(loader_replies_that_begin_well, 400, begins_well);
target!(loader_whole_replies_changed, 400, changed);
target!(loader_safetensors_headers, 400, safetensors);

/// Asks for the results of every operation that the loader sends.
fn take(mut results: Results, dice: &mut Dice<'_>, most_bytes: usize) {
    for _ in 0..1 + dice.below(6) {
        let failed = match dice.below(9) {
            0 => results.next::<sequence::Res>(OpNum::Sequence).is_err(),
            1 => results.skip(OpNum::Putfh).is_err(),
            2 => results.next::<<Getfh as Operation>::Res>(OpNum::Getfh).is_err(),
            3 => results.next::<<Getattr as Operation>::Res>(OpNum::Getattr).is_err(),
            4 => results.next::<<Open as Operation>::Res>(OpNum::Open).is_err(),
            5 => results.next::<<ExchangeId as Operation>::Res>(OpNum::ExchangeId).is_err(),
            6 => results.next::<<CreateSession as Operation>::Res>(OpNum::CreateSession).is_err(),
            7 => results.next::<<Readdir as Operation>::Res>(OpNum::Readdir).is_err(),
            _ => match results.read() {
                Ok((_, data)) => {
                    assert!(data.len() <= most_bytes, "data that nobody sent");
                    false
                }
                Err(_) => true,
            },
        };
        if failed {
            return;
        }
    }
}

fn any_reply(dice: &mut Dice<'_>) {
    let raw = Bytes::copy_from_slice(dice.raw(300));
    let most_bytes = raw.len();
    if let Ok(results) = decode(raw) {
        take(results, dice, most_bytes);
    }
}

/// An accepted reply with the head of a COMPOUND.
fn head(e: &mut Encoder, count: u32) {
    // xid, REPLY, MSG_ACCEPTED, AUTH_NONE, SUCCESS.
    [7, 1, 0, 0, 0, 0].into_iter().for_each(|word| e.u32(word));
    Status::Ok.encode(e);
    e.opaque(b"");
    e.u32(count);
}

fn begins_well(dice: &mut Dice<'_>) {
    let mut e = Encoder::new();
    head(&mut e, dice.below(8) as u32);
    for _ in 0..dice.below(4) {
        e.u32(*dice.pick(&[53, 22, 10, 9, 18, 42, 43, 26, 25]));
        e.u32(if dice.once_in(4) { dice.u32() } else { 0 });
        let words = dice.below(12);
        (0..words).for_each(|_| e.u32(dice.below(70) as u32));
    }
    let raw = e.finish().flatten().unwrap();
    let most_bytes = raw.len();
    if let Ok(results) = decode(raw) {
        take(results, dice, most_bytes);
    }
}

/// A whole reply to SEQUENCE, PUTFH, READ; some bytes are others.
fn changed(dice: &mut Dice<'_>) {
    let data = dice.blob(100);
    let mut e = Encoder::new();
    head(&mut e, 3);
    let sequence = sequence::Res {
        session: zgate_nfs_wire::v4::SessionId([3; 16]),
        sequence: 1,
        slot: 0,
        highest_slot: 3,
        target_highest_slot: 3,
        status_flags: 0,
    };
    OpNum::Sequence.encode(&mut e);
    Status::Ok.encode(&mut e);
    sequence.encode(&mut e);
    OpNum::Putfh.encode(&mut e);
    Status::Ok.encode(&mut e);
    OpNum::Read.encode(&mut e);
    Status::Ok.encode(&mut e);
    let length = data.len();
    read::Res { eof: true, data: Payload::Bytes(data.clone().into()) }.encode(&mut e);
    let mut raw = e.finish().flatten().unwrap().to_vec();
    let changes = dice.below(4);
    for _ in 0..changes {
        let at = dice.below(raw.len());
        raw[at] = dice.byte();
    }
    let most_bytes = raw.len();
    let Ok(mut results) = decode(raw.into()) else {
        assert!(changes > 0, "a good reply is refused");
        return;
    };
    let sequence = results.next::<sequence::Res>(OpNum::Sequence);
    let Ok(()) = sequence.and_then(|_| results.skip(OpNum::Putfh)) else {
        assert!(changes > 0, "a good reply is refused");
        return;
    };
    match results.read() {
        Ok((_, found)) if changes == 0 => {
            assert_eq!((found.len(), &found[..]), (length, &data[..]))
        }
        Ok((_, found)) => assert!(found.len() <= most_bytes),
        Err(_) => assert!(changes > 0, "a good reply is refused"),
    }
}

fn safetensors(dice: &mut Dice<'_>) {
    let number = ["0", "1", "64", "18446744073709551615", "-1", "1.5"];
    let mut json = String::from("{");
    for tensor in 0..dice.below(4) {
        let (first, last) = (dice.pick(&number), dice.pick(&number));
        let (shape, dtype) = (dice.pick(&number), dice.pick(&["F32", "BF16", "X", "F8_E4M3"]));
        json.push_str(&format!(
            "\"t{tensor}\":{{\"dtype\":\"{dtype}\",\"shape\":[{shape}],\"data_offsets\":[{first},{last}]}},"
        ));
    }
    json.pop();
    json.push('}');
    let mut raw = (json.len() as u64).to_le_bytes().to_vec();
    raw.extend(json.as_bytes());
    for _ in 0..dice.below(3) {
        let at = dice.below(raw.len());
        raw[at] = dice.byte();
    }
    if let Ok(bytes) = header_bytes(&raw) {
        assert!(bytes <= MAX_HEADER_BYTES);
    }
    if let Ok((header, at)) = Header::parse(&raw) {
        assert!(at <= raw.len());
        for data_bytes in [0, 64, u64::MAX] {
            if header.check(data_bytes).is_err() {
                continue;
            }
            // Each tensor of a good header lies inside the data, and all together are the data.
            let tensors = header.tensors.values();
            assert!(tensors.clone().all(|tensor| tensor.data_offsets[1] <= data_bytes));
            let described: u128 = tensors.map(|tensor| u128::from(tensor.bytes())).sum();
            assert_eq!(described, u128::from(data_bytes));
        }
    }
}
