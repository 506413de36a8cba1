//! COMPOUNDs of minor version 0 that must not run twice. They have no session;
//! their replies are kept in the duplicate request cache (RFC 7530 §9.1.8).
//! COMPOUNDs that only read are not cached: they may run again, and their
//! replies would displace replies that are needed.

use zgate_nfs_wire::v4::OpNum;
use zgate_nfs_wire::v4::walk::Arguments;
use zgate_xdr::{Decoder, XdrError};

/// True if the COMPOUND whose arguments begin at `d` has minor version 0 and
/// contains an operation that must not run twice. One that cannot be decoded
/// counts as such: the operations before the error are run.
#[must_use]
pub fn must_run_once(d: &Decoder<'_>) -> bool {
    let mut d = d.clone();
    match Arguments::open(&mut d) {
        Ok(operations) => operations.minor == 0 && !only_looks(operations).unwrap_or(false),
        Err(_) => true,
    }
}

/// Returns whether no operation changes anything. WRITE counts as a change: a
/// late repetition would undo a newer write.
fn only_looks(mut operations: Arguments<'_, '_>) -> Result<bool, XdrError> {
    while let Some(op) = operations.next_op()? {
        if op == OpNum::Sequence || !operations.skip(op)? {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zgate_xdr::{Encode, Encoder};

    /// PUTFH followed by one operation with these argument words.
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
