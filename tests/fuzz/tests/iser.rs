//! iSER (RFC 7145): messages of any bytes, headers that survive the trip, and a
//! target's steps: they never leave the memory that an initiator has advertised
//! for a task, nor use that of a task that has ended.
#![allow(clippy::unwrap_used, reason = "tests")]

use bytes::Bytes;
use std::collections::BTreeMap;
use zgate_fuzz::{Dice, target};
use zgate_iscsi::iser::{Header, Hello, HelloReply, Message, Piece, RemoteBuffer, Step, Target};
use zgate_iscsi::pdu::{
    Bhs, DataIn, Itt, Lun, Opcode, Outgoing, R2t, Residual, ScsiResponse, ServiceResponse, Ttt,
};
use zgate_iscsi::serial::Sn;
use zgate_store::Payload;

target!(iser_any_bytes, 300, any_bytes);
target!(iser_headers_survive_the_trip, 64, headers);
target!(iser_steps_stay_in_advertised_memory, 200, steps);

fn any_bytes(dice: &mut Dice<'_>) {
    let mut bytes = dice.rest().to_vec();
    if let Some(first) = bytes.first_mut() {
        // Mostly a control message or a Hello.
        *first = (*first & 0x0f) | (0x10 + (*first & 0x30));
    }
    if let Ok(message) = Message::decode(&bytes) {
        assert!(message.ahs.len() + message.data.len() <= bytes.len());
    }
}

fn buffer(dice: &mut Dice<'_>) -> RemoteBuffer {
    let base = if dice.once_in(8) { u64::MAX - dice.below(100) as u64 } else { dice.u64() >> 8 };
    RemoteBuffer { stag: dice.u32(), base }
}

fn headers(dice: &mut Dice<'_>) {
    let header = match dice.below(3) {
        0 => Header::Hello(Hello {
            max_version: dice.byte() & 15,
            min_version: dice.byte() & 15,
            inbound_reads: dice.u32() as u16,
        }),
        1 => Header::HelloReply(HelloReply {
            rejected: dice.once_in(2),
            max_version: dice.byte() & 15,
            version: dice.byte() & 15,
            outbound_reads: dice.u32() as u16,
        }),
        _ => Header::Control {
            write: dice.once_in(2).then(|| buffer(dice)),
            read: dice.once_in(2).then(|| buffer(dice)),
        },
    };
    assert_eq!(Header::decode(&header.encode()).unwrap(), header);
}

/// A task of the model: what it advertised, for writing and for reading.
type Advertised = (Option<RemoteBuffer>, Option<RemoteBuffer>);

fn inside(piece: &Piece, buffer: RemoteBuffer, reach: u64) {
    assert_eq!(piece.stag, buffer.stag, "the key of another task");
    let end = piece.address.checked_add(piece.len.into()).expect("no wrap");
    assert!(piece.address >= buffer.base && end <= buffer.base.saturating_add(reach), "{piece:?}");
}

fn response(itt: Itt) -> Outgoing {
    ScsiResponse {
        response: ServiceResponse::COMPLETED,
        status: 0,
        itt,
        snack_tag: 0,
        stat_sn: Sn(1),
        exp_data_sn: 0,
        bidirectional: Residual::None,
        residual: Residual::None,
    }
    .encode(&[])
}

fn data_in(itt: Itt, offset: u32, len: usize) -> Outgoing {
    let pdu = DataIn {
        is_final: true,
        acknowledge: false,
        lun: Lun(0),
        itt,
        ttt: Ttt::NONE,
        data_sn: 0,
        offset,
        status: None,
    };
    pdu.encode(vec![Payload::Bytes(Bytes::from(vec![0; len]))])
}

fn r2t(itt: Itt, offset: u32, desired_bytes: u32) -> Outgoing {
    R2t { lun: Lun(0), itt, ttt: Ttt(3), stat_sn: Sn(1), r2t_sn: 0, offset, desired_bytes }.encode()
}

fn steps(dice: &mut Dice<'_>) {
    let (invalidate, solicited_only) = (dice.once_in(2), dice.once_in(2));
    let mut target = Target::new(invalidate, solicited_only);
    let mut tasks: BTreeMap<u32, Advertised> = BTreeMap::new();
    for _ in 0..dice.below(24) {
        let itt = Itt(dice.below(4) as u32);
        let known = tasks.get(&itt.0).copied();
        let (offset, len) = (dice.below(5000) as u32, 1 + dice.below(300));
        let reach = u64::from(offset) + len as u64;
        let pdu = match dice.below(5) {
            0 => {
                let mut bhs = Bhs::new(Opcode::SCSI_COMMAND);
                bhs.put_u32(16, itt.0);
                let write = dice.once_in(2).then(|| buffer(dice));
                let read = dice.once_in(2).then(|| buffer(dice));
                let alive = |itt: Itt| tasks.contains_key(&itt.0);
                let header = Header::Control { write, read };
                target.command(&bhs, &header, Bytes::new(), alive);
                if known.is_none() && (write.is_some() || read.is_some()) {
                    tasks.insert(itt.0, (write, read));
                }
                continue;
            }
            1 | 2 => data_in(itt, offset, len),
            3 => r2t(itt, offset, len as u32),
            _ => response(itt),
        };
        let ends = pdu.bhs.opcode() == Opcode::SCSI_RESPONSE;
        match target.transmit(pdu) {
            Ok(Step::Read(read)) => inside(&read.from, known.unwrap().0.unwrap(), reach),
            Ok(Step::Send { rdma_writes, invalidate: key, .. }) => {
                for write in &rdma_writes {
                    inside(&write.to, known.unwrap().1.unwrap(), u64::MAX);
                    assert_eq!(write.to.len as usize, write.data.iter().map(Bytes::len).sum());
                }
                let own = known.and_then(|(write, read)| read.or(write)).map(|one| one.stag);
                assert_eq!(key, own.filter(|_| invalidate && ends), "a key of the task alone");
            }
            Ok(Step::Later) => assert!(known.unwrap().1.is_some()),
            // The connection ends.
            Err(_) => return,
        }
        if ends {
            tasks.remove(&itt.0);
        }
    }
}
