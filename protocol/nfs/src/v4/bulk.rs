//! Where the data of a WRITE begin, found in the first bytes of an RPC record,
//! so that they can be received where storage will take them from. Only the
//! shapes clients really send are recognized; everything else is received like
//! any record.

use crate::limits::{MAX_FH_BYTES, MAX_OPS, MAX_TAG_BYTES, MAX_TRANSFER_BYTES};
use crate::v4::op::sequence;
use crate::v4::wire::{OpNum, Stateid};
use zgate_rpc::CallHeader;
use zgate_xdr::{Decode, Decoder, XdrError};

const NFS_PROGRAM: u32 = 100_003;
const COMPOUND: u32 = 1;
const WRITE3: u32 = 7;

/// What the first bytes tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkPosition {
    /// Not yet enough of them.
    NeedMore,
    /// No WRITE of a known shape.
    None,
    /// The body.
    At {
        /// Where it begins in the record.
        offset: usize,
        /// Its length in bytes.
        len: usize,
    },
}

/// Looks at the first bytes of a record.
#[must_use]
pub fn bulk_position(prefix: &[u8]) -> BulkPosition {
    let mut d = Decoder::new(prefix);
    let Ok(header) = CallHeader::decode(&mut d) else {
        // Cut short or no call: more bytes tell, up to the caller's bound.
        return BulkPosition::NeedMore;
    };
    let found = match (header.program, header.version, header.procedure) {
        (NFS_PROGRAM, 4, COMPOUND) => walk_compound(&mut d),
        (NFS_PROGRAM, 3, WRITE3) => walk_write3(&mut d),
        _ => return BulkPosition::None,
    };
    match found {
        Ok(Some((offset, len))) if len > 0 => BulkPosition::At { offset, len },
        Ok(_) => BulkPosition::None,
        Err(XdrError::Short) => BulkPosition::NeedMore,
        Err(_) => BulkPosition::None,
    }
}

type Found = Result<Option<(usize, usize)>, XdrError>;

fn walk_write3(d: &mut Decoder<'_>) -> Found {
    d.opaque(MAX_FH_BYTES)?;
    d.take(8 + 4 + 4)?;
    d.bulk_position(MAX_TRANSFER_BYTES).map(Some)
}

fn walk_compound(d: &mut Decoder<'_>) -> Found {
    d.opaque(MAX_TAG_BYTES)?;
    d.u32()?;
    let count = d.length(MAX_OPS)?;
    for _ in 0..count {
        match OpNum::from_u32(d.u32()?) {
            Some(OpNum::Sequence) => {
                sequence::Args::decode(d)?;
            }
            Some(OpNum::Putfh) => {
                d.opaque(MAX_FH_BYTES)?;
            }
            Some(OpNum::Putrootfh | OpNum::Savefh | OpNum::Restorefh) => {}
            Some(OpNum::Write) => {
                Stateid::decode(d)?;
                d.take(8 + 4)?;
                return d.bulk_position(MAX_TRANSFER_BYTES).map(Some);
            }
            _ => return Ok(None),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::Fh;
    use crate::v4::op::write;
    use crate::v4::wire::StableHow;
    use bytes::Bytes;
    use zgate_rpc::auth::OpaqueAuth;
    use zgate_xdr::{Encode, Encoder};

    fn record() -> Vec<u8> {
        let mut e = Encoder::new();
        CallHeader {
            xid: 1,
            program: NFS_PROGRAM,
            version: 4,
            procedure: COMPOUND,
            credential: OpaqueAuth::none(),
            verifier: OpaqueAuth::none(),
        }
        .encode(&mut e);
        e.opaque(b"tag");
        e.u32(0);
        e.u32(2);
        OpNum::Putfh.encode(&mut e);
        Fh(vec![5; 21]).encode(&mut e);
        OpNum::Write.encode(&mut e);
        let args = write::Args {
            stateid: Stateid::ANONYMOUS,
            offset: 9,
            stable: StableHow::Unstable,
            data: Bytes::from(vec![0xab; 1001]),
        };
        args.encode(&mut e);
        e.finish().flatten().unwrap().to_vec()
    }

    #[test]
    fn the_body_of_a_write_is_found_from_every_long_enough_prefix() {
        let record = record();
        let at = record.len() - 1004;
        for len in 0..record.len() {
            let seen = bulk_position(&record[..len]);
            if len < at {
                assert_eq!(seen, BulkPosition::NeedMore, "{len}");
            } else {
                assert_eq!(seen, BulkPosition::At { offset: at, len: 1001 }, "{len}");
            }
        }
        assert_eq!(&record[at..at + 1001], &[0xab; 1001]);
    }
}
