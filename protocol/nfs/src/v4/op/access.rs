//! ACCESS (RFC 8881 §18.1, RFC 8276 §8.4.1).

use super::Rule;
use crate::v4::failure::Failure;
use crate::v4::request::{Current, Cx};
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::Access;
use zgate_nfs_wire::v4::op::access::{
    Args, DELETE, EXECUTE, EXTEND, LOOKUP, MODIFY, READ, Res, XALIST, XAREAD, XAWRITE,
};
use zgate_store::FileKind;

impl Rule for Access {
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
        let attr = match cx.looked_up {
            Some(attr) => attr,
            None => store.getattr(&object.node).await?,
        };
        cx.looked_up = Some(attr);
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
        // Rights without a meaning for the type of object are not supported
        // (RFC 8881 §18.1.3).
        let sensible = known & if is_dir { !EXECUTE } else { !(LOOKUP | DELETE) };
        Ok(Res { supported: args.access & sensible, access: args.access & sensible & allowed })
    }
}
