//! Which results of a call may be written directly, and where they belong in
//! its reply. Only COMPOUNDs of the shapes that clients read with are looked
//! through; the results of all others come inline or in the reply chunk.

use zgate_nfs::limits::{MAX_FH_BYTES, MAX_LINK_BYTES, MAX_OPS, MAX_TAG_BYTES};
use zgate_nfs::v4::op::sequence;
use zgate_nfs::v4::wire::{OpNum, Stateid};
use zgate_rpc::CallHeader;
use zgate_rpc::message::decode_reply;
use zgate_xdr::{Decode, Decoder, XdrError};

const NFS_PROGRAM: u32 = 100_003;
const COMPOUND: u32 = 1;
const READ3: u32 = 6;
/// Results of SEQUENCE behind its status (RFC 8881 §18.46).
const SEQUENCE_BYTES: usize = 16 + 5 * 4;
/// fattr3 (RFC 1813 §2.5).
const FATTR3_BYTES: usize = 84;
const MAX_ATTRIBUTE_BYTES: usize = 1 << 20;
const MAX_BITMAP_WORDS: usize = 8;

/// The results of a call that may be written directly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reads {
    /// Most bytes of each.
    pub(super) counts: Vec<usize>,
    version: u32,
}

impl Reads {
    /// Those of a call.
    pub(super) fn of_call(call: &[u8]) -> Self {
        let mut d = Decoder::new(call);
        let mut reads = Self::default();
        let Ok(header) = CallHeader::decode(&mut d) else { return reads };
        reads.version = header.version;
        // What cannot be followed ends the walk; what was found counts.
        let _ = match (header.program, header.version, header.procedure) {
            (NFS_PROGRAM, 3, READ3) => reads.walk_read3(&mut d),
            (NFS_PROGRAM, 4, COMPOUND) => reads.walk_compound(&mut d),
            _ => Ok(()),
        };
        reads
    }

    fn walk_read3(&mut self, d: &mut Decoder<'_>) -> Result<(), XdrError> {
        d.opaque(MAX_FH_BYTES)?;
        d.u64()?;
        self.counts.push(d.u32()? as usize);
        Ok(())
    }

    fn walk_compound(&mut self, d: &mut Decoder<'_>) -> Result<(), XdrError> {
        d.opaque(MAX_TAG_BYTES)?;
        d.u32()?;
        for _ in 0..d.length(MAX_OPS)? {
            match OpNum::from_u32(d.u32()?) {
                Some(OpNum::Sequence) => sequence::Args::decode(d).map(|_| ())?,
                Some(OpNum::Putfh) => drop(d.opaque(MAX_FH_BYTES)?),
                Some(OpNum::Lookup) => drop(d.opaque(MAX_FH_BYTES.max(1024))?),
                Some(OpNum::Getattr) => drop(d.array::<u32>(MAX_BITMAP_WORDS)?),
                Some(OpNum::Putrootfh | OpNum::Savefh | OpNum::Restorefh | OpNum::Getfh) => {}
                Some(OpNum::Read) => {
                    Stateid::decode(d)?;
                    d.u64()?;
                    self.counts.push(d.u32()? as usize);
                }
                Some(OpNum::Readlink) => self.counts.push(MAX_LINK_BYTES),
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    /// Where in the reply, whose written results are missing, each belongs.
    pub(super) fn places(&self, reply: &[u8], written: &[usize]) -> Vec<usize> {
        let mut places = Vec::new();
        let mut d = Decoder::new(reply);
        if decode_reply(&mut d).is_ok() {
            let _ = match self.version {
                3 => find_read3(&mut d, &mut places),
                _ => find_in_compound(&mut d, written, &mut places),
            };
        }
        places
    }
}

fn find_read3(d: &mut Decoder<'_>, places: &mut Vec<usize>) -> Result<(), XdrError> {
    if d.u32()? != 0 {
        return Ok(());
    }
    if d.u32()? != 0 {
        d.take(FATTR3_BYTES)?;
    }
    d.take(4 + 4 + 4)?;
    places.push(d.position());
    Ok(())
}

fn find_in_compound(
    d: &mut Decoder<'_>,
    written: &[usize],
    places: &mut Vec<usize>,
) -> Result<(), XdrError> {
    d.u32()?;
    d.opaque(MAX_TAG_BYTES)?;
    for _ in 0..d.length(MAX_OPS)? {
        let op = OpNum::from_u32(d.u32()?);
        if d.u32()? != 0 {
            return Ok(());
        }
        match op {
            Some(OpNum::Sequence) => drop(d.take(SEQUENCE_BYTES)?),
            Some(OpNum::Getfh) => drop(d.opaque(MAX_FH_BYTES)?),
            Some(OpNum::Getattr) => {
                d.array::<u32>(MAX_BITMAP_WORDS)?;
                d.opaque(MAX_ATTRIBUTE_BYTES)?;
            }
            Some(op @ (OpNum::Read | OpNum::Readlink)) => {
                if op == OpNum::Read {
                    d.u32()?;
                }
                let len = d.u32()? as usize;
                // RFC 8267 §6.4.1: one without a chunk of its own is inline.
                if places.len() < written.len() {
                    places.push(d.position());
                } else {
                    d.opaque_fixed(len)?;
                }
            }
            Some(
                OpNum::Putfh | OpNum::Putrootfh | OpNum::Lookup | OpNum::Savefh | OpNum::Restorefh,
            ) => {}
            _ => return Ok(()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use zgate_xdr::{Encode, Encoder};

    #[test]
    fn results_of_read_are_found_on_both_sides() {
        let mut e = Encoder::new();
        for word in [7, 0, 2, NFS_PROGRAM, 4, COMPOUND, 0, 0, 0, 0, 0, 1, 4] {
            e.u32(word);
        }
        OpNum::Putrootfh.encode(&mut e);
        for count in [100, 200] {
            OpNum::Read.encode(&mut e);
            Stateid::ANONYMOUS.encode(&mut e);
            e.u64(0);
            e.u32(count);
        }
        OpNum::Readlink.encode(&mut e);
        let call = e.finish().flatten().unwrap();
        let reads = Reads::of_call(&call);
        assert_eq!(reads.counts, [100, 200, MAX_LINK_BYTES]);
        let mut e = Encoder::new();
        for word in [7, 1, 0, 0, 0, 0, 0, 0, 4, 24, 0, 25, 0, 0, 100, 25, 0, 1, 50, 27, 0, 8] {
            e.u32(word);
        }
        let reply = e.finish().flatten().unwrap();
        assert_eq!(reads.places(&reply, &[100, 50, 8]), [60, 76, 88]);
    }
}
