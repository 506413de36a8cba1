//! Which COMPOUNDs of minor version 0 must not run twice. They have no session;
//! their replies belong in the duplicate request cache (RFC 7530 §9.1.8). Those
//! that only look do not: what they answer may be asked again, and keeping it
//! would push out replies that are needed.

use crate::limits::{
    MAX_BITMAP_WORDS, MAX_COMPONENT_BYTES, MAX_FATTR_BYTES, MAX_FH_BYTES, MAX_OPAQUE_BYTES,
    MAX_OPS, MAX_TAG_BYTES,
};
use crate::v4::wire::OpNum;
use zgate_xdr::{Decoder, XdrError};

/// Whether the arguments of a COMPOUND, at which `d` stands, are of minor version
/// 0 and have an operation that must not run twice. One that cannot be read
/// counts as such: what stands before it runs.
#[must_use]
pub fn must_run_once(d: &Decoder<'_>) -> bool {
    let mut d = d.clone();
    let minor = d.opaque(MAX_TAG_BYTES).and_then(|_| d.u32());
    minor == Ok(0) && !only_looks(&mut d).unwrap_or(false)
}

fn only_looks(d: &mut Decoder<'_>) -> Result<bool, XdrError> {
    for _ in 0..d.length(MAX_OPS)? {
        let Some(op) = OpNum::from_u32(d.u32()?) else { return Ok(false) };
        if !skip_look(op, d)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Goes past the arguments of an operation that changes nothing; false for all
/// others. WRITE is among those: repeated late, it would undo a newer write.
fn skip_look(op: OpNum, d: &mut Decoder<'_>) -> Result<bool, XdrError> {
    match op {
        OpNum::Getfh
        | OpNum::Lookupp
        | OpNum::Putpubfh
        | OpNum::Putrootfh
        | OpNum::Readlink
        | OpNum::Restorefh
        | OpNum::Savefh => {}
        OpNum::Access => skip(d, 4)?,
        OpNum::Renew => skip(d, 8)?,
        OpNum::Commit => skip(d, 8 + 4)?,
        // Stateid, offset, count.
        OpNum::Read => skip(d, 16 + 8 + 4)?,
        OpNum::Putfh => skip_opaque(d, MAX_FH_BYTES)?,
        OpNum::Lookup | OpNum::Secinfo => skip_opaque(d, MAX_COMPONENT_BYTES)?,
        OpNum::Getattr => skip_bitmap(d)?,
        OpNum::Verify | OpNum::Nverify => {
            skip_bitmap(d)?;
            skip_opaque(d, MAX_FATTR_BYTES)?;
        }
        // Cookie, verifier, two limits, attributes.
        OpNum::Readdir => {
            skip(d, 8 + 8 + 4 + 4)?;
            skip_bitmap(d)?;
        }
        // Kind, offset, length, client id, owner.
        OpNum::Lockt => {
            skip(d, 4 + 8 + 8 + 8)?;
            skip_opaque(d, MAX_OPAQUE_BYTES)?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn skip(d: &mut Decoder<'_>, bytes: usize) -> Result<(), XdrError> {
    d.take(bytes).map(|_| ())
}

fn skip_opaque(d: &mut Decoder<'_>, max: usize) -> Result<(), XdrError> {
    d.opaque(max).map(|_| ())
}

fn skip_bitmap(d: &mut Decoder<'_>) -> Result<(), XdrError> {
    let words = d.length(MAX_BITMAP_WORDS)?;
    skip(d, 4 * words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zgate_xdr::{Encode, Encoder};

    /// One operation with these argument words behind PUTFH.
    fn compound(minor: u32, op: OpNum, args: &[u32]) -> bool {
        let mut e = Encoder::new();
        e.opaque(b"tag");
        [minor, 2].into_iter().for_each(|word| e.u32(word));
        OpNum::Putfh.encode(&mut e);
        e.opaque(&[7; 21]);
        op.encode(&mut e);
        args.iter().for_each(|word| e.u32(*word));
        let raw = e.finish().flatten().unwrap();
        must_run_once(&Decoder::new(&raw))
    }

    #[test]
    fn what_only_looks_may_run_again() {
        let name = [4, 0x6e61_6d65];
        for (op, args) in [
            (OpNum::Getattr, &[2, 0x10, 0x20][..]),
            (OpNum::Read, &[0; 7]),
            (OpNum::Lookup, &name),
            (OpNum::Readdir, &[0, 0, 0, 0, 100, 1000, 1, 8]),
            (OpNum::Verify, &[1, 8, 8, 0, 5]),
            (OpNum::Lockt, &[1, 0, 0, 0, 9, 0, 1, 4, 7]),
            (OpNum::Renew, &[1, 2]),
            (OpNum::Commit, &[0, 0, 0]),
            (OpNum::Access, &[0x3f]),
            (OpNum::Readlink, &[]),
        ] {
            assert!(!compound(0, op, args), "{}", op.name());
        }
        for op in [OpNum::Remove, OpNum::Write, OpNum::Open, OpNum::Close, OpNum::Setattr] {
            assert!(compound(0, op, &name), "{}", op.name());
            assert!(!compound(1, op, &name), "{} has a session", op.name());
        }
        assert!(compound(0, OpNum::Read, &[0; 6]), "cut short");
        assert!(compound(0, OpNum::Getattr, &[u32::MAX]), "a bitmap without end");
    }
}
