//! ACCESS (RFC 8881 §18.1, RFC 8276 §8.4.1).

use super::{Failure, Operation};
use crate::v4::cx::{Current, Cx};
use crate::v4::wire::{OpNum, Status};
use zgate_store::FileKind;
use zgate_xdr::xdr_struct;

/// ACCESS4_READ.
pub const READ: u32 = 0x01;
/// ACCESS4_LOOKUP.
pub const LOOKUP: u32 = 0x02;
/// ACCESS4_MODIFY.
pub const MODIFY: u32 = 0x04;
/// ACCESS4_EXTEND.
pub const EXTEND: u32 = 0x08;
/// ACCESS4_DELETE.
pub const DELETE: u32 = 0x10;
/// ACCESS4_EXECUTE.
pub const EXECUTE: u32 = 0x20;
/// ACCESS4_XAREAD.
pub const XAREAD: u32 = 0x40;
/// ACCESS4_XAWRITE.
pub const XAWRITE: u32 = 0x80;
/// ACCESS4_XALIST.
pub const XALIST: u32 = 0x100;

xdr_struct! {
    /// ACCESS4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// Rights asked about.
        pub access: u32,
    }
}

xdr_struct! {
    /// ACCESS4resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Res {
        /// Rights the server can tell about.
        pub supported: u32,
        /// Rights the caller has.
        pub access: u32,
    }
}

/// The operation.
pub struct Access;

impl Operation for Access {
    const NUM: OpNum = OpNum::Access;
    type Args = Args;
    type Res = Res;

    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        let xattrs = XAREAD | XAWRITE | XALIST;
        let known = 0x3f | if cx.minor > 1 { xattrs } else { 0 };
        if args.access & !known != 0 {
            return Err(Status::Inval.into());
        }
        let object = match cx.current()? {
            Current::Pseudo(_) => {
                let supported = args.access & (READ | LOOKUP | MODIFY | EXTEND | DELETE);
                return Ok(Res { supported, access: args.access & (READ | LOOKUP) });
            }
            Current::Node { .. } => cx.object(Status::Serverfault)?,
        };
        let store = &object.export.store;
        let attr = store.getattr(&object.node).await?;
        let rights = store.access(object.who(), &object.node).await?;
        let is_dir = attr.kind == FileKind::Directory;
        let write = rights.write && object.entry.writable;
        let mut allowed = 0;
        if rights.read {
            allowed |= READ | XAREAD | XALIST;
        }
        if write {
            allowed |= MODIFY | EXTEND | XAWRITE;
            if is_dir {
                allowed |= DELETE;
            }
        }
        if rights.execute {
            allowed |= if is_dir { LOOKUP } else { EXECUTE };
        }
        // What makes no sense for the kind of object is not supported
        // (RFC 8881 §18.1.3).
        let sensible = known & if is_dir { !EXECUTE } else { !(LOOKUP | DELETE) };
        Ok(Res { supported: args.access & sensible, access: args.access & sensible & allowed })
    }
}
