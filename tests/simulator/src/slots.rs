//! A planted fault: repeated requests of a session get a new sequence number
//! on their way to the server, which therefore runs them again.

use crate::executor::lock;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Mutex;
use zgate_nfs_wire::v4::op::{Operation, Sequence, sequence};
use zgate_rpc::CallHeader;
use zgate_xdr::{Decode, Decoder, Encode, Encoder};

/// A session's slot, the latest number of the client, and by how much the
/// server is ahead.
type Slots = BTreeMap<(Vec<u8>, u32), (u32, u32)>;

/// Slots that have seen requests.
#[derive(Default)]
pub struct RepeatedSlots(Mutex<Slots>);

impl RepeatedSlots {
    /// The record with the number that makes it a new request.
    pub fn renumber(&self, record: &Bytes) -> Bytes {
        let Some((at, args)) = first_sequence(record) else { return record.clone() };
        let mut slots = lock(&self.0);
        let (last, ahead) = slots.entry((args.session.0.to_vec(), args.slot)).or_default();
        if *last == args.sequence {
            *ahead += 1;
        }
        *last = args.sequence;
        let mut e = Encoder::new();
        sequence::Args { sequence: args.sequence + *ahead, ..args }.encode(&mut e);
        let Some(changed) = e.finish().flatten() else { return record.clone() };
        let mut bytes = record.to_vec();
        bytes[at..at + changed.len()].copy_from_slice(&changed);
        bytes.into()
    }
}

/// Place and arguments of the SEQUENCE that begins a COMPOUND.
fn first_sequence(record: &Bytes) -> Option<(usize, sequence::Args)> {
    let mut d = Decoder::new(record);
    CallHeader::decode(&mut d).ok()?;
    d.opaque(64).ok()?;
    let (_minor, count) = (d.u32().ok()?, d.u32().ok()?);
    if count == 0 || d.u32().ok()? != Sequence::NUM as u32 {
        return None;
    }
    let at = d.position();
    Some((at, sequence::Args::decode(&mut d).ok()?))
}
