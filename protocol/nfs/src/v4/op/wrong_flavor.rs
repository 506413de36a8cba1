//! A file handle that is set with a flavour that its export does not admit: the operation
//! behind decides which of the two says so (RFC 8881 §2.6.3.1.1).

use crate::v4::request::Cx;
use zgate_nfs_wire::v4::OpNum;
use zgate_nfs_wire::v4::op::open;
use zgate_xdr::{Decode, Decoder};

/// Use of the handle by the operation behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// None, or it asks for the right flavours.
    Nothing,
    /// It looks at the flavour itself: it may lead elsewhere.
    Leaves,
    /// Any other one, which may not answer that the flavour is wrong.
    Enters,
}

/// Returns whether `op`, which has found that the flavour is wrong, succeeds all the same, and
/// leaves it to the next one. There is no current file handle then: nothing can be done with
/// it. `d` is at the next operation.
pub(super) fn is_left_to_next(cx: &Cx<'_>, op: OpNum, d: &Decoder<'_>) -> bool {
    let sets_handle =
        matches!(op, OpNum::Putfh | OpNum::Putrootfh | OpNum::Putpubfh | OpNum::Restorefh);
    if !sets_handle || cx.unentered.is_none() {
        return false;
    }
    let used = next_use(cx, d.clone());
    if used == Use::Nothing {
        cx.call.refused.take();
    }
    used != Use::Enters
}

fn next_use(cx: &Cx<'_>, mut d: Decoder<'_>) -> Use {
    for _ in cx.op_index + 1..cx.op_count {
        match OpNum::decode(&mut d) {
            Ok(OpNum::Secinfo | OpNum::SecinfoNoName) => return Use::Nothing,
            // In it, PUTFH and the like always say so themselves (RFC 7530 §16.31.5).
            _ if cx.minor == 0 => return Use::Enters,
            // As if it were not there.
            Ok(OpNum::Savefh) => {}
            Ok(OpNum::Putfh | OpNum::Putrootfh | OpNum::Putpubfh | OpNum::Restorefh) => {
                return Use::Nothing;
            }
            Ok(OpNum::Lookup | OpNum::Lookupp) => return Use::Leaves,
            Ok(OpNum::Open) => {
                let by_name = open::Args::decode(&mut d).is_ok_and(|args| !args.claim.by_handle());
                return if by_name { Use::Leaves } else { Use::Enters };
            }
            _ => return Use::Enters,
        }
    }
    if cx.minor == 0 { Use::Enters } else { Use::Nothing }
}
