//! ACCESS (RFC 1813 §3.3.4).

use super::Procedure;
use crate::v3::cx::{Cx, Object};
use crate::v3::wire::{Attributes, Fh3, Status};
use zgate_store::attr::{Attr, FileKind};

/// The procedure.
#[derive(Debug)]
pub struct Access;

/// ACCESS3_READ.
pub const READ: u32 = 0x01;
/// ACCESS3_LOOKUP.
pub const LOOKUP: u32 = 0x02;
/// ACCESS3_MODIFY.
pub const MODIFY: u32 = 0x04;
/// ACCESS3_EXTEND.
pub const EXTEND: u32 = 0x08;
/// ACCESS3_DELETE.
pub const DELETE: u32 = 0x10;
/// ACCESS3_EXECUTE.
pub const EXECUTE: u32 = 0x20;

zgate_xdr::xdr_struct! {
    /// ACCESS3args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// The object.
        pub object: Fh3,
        /// Rights asked about.
        pub access: u32,
    }
}

zgate_xdr::xdr_struct! {
    /// ACCESS3resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Granted {
        /// Attributes of the object.
        pub attributes: Option<Attributes>,
        /// Rights the caller has among those asked about.
        pub access: u32,
    }
}

impl Procedure for Access {
    const NUMBER: u32 = 4;
    type Args = Args;
    type Ok = Granted;
    type Fail = Option<Attributes>;

    async fn run(
        cx: &Cx<'_>,
        args: Args,
        fail: &mut Option<Attributes>,
    ) -> Result<Granted, Status> {
        let object = cx.enter(&args.object)?;
        let attr = object.store().getattr(&object.node).await?;
        *fail = Some(object.attributes_of(&attr));
        let access = args.access & rights(&object, &attr).await?;
        Ok(Granted { attributes: fail.take(), access })
    }
}

async fn rights(object: &Object, attr: &Attr) -> Result<u32, Status> {
    let mask = object.store().access(&object.who, &object.node).await?;
    let directory = attr.kind == FileKind::Directory;
    let mut rights = 0;
    if mask.read {
        rights |= READ;
    }
    if mask.execute {
        rights |= if directory { LOOKUP } else { EXECUTE };
    }
    if mask.write && object.writable {
        rights |= MODIFY | EXTEND;
        if directory {
            rights |= DELETE;
        }
    }
    Ok(rights)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v3::proc::rig::Rig;

    #[test]
    fn rights_follow_the_mode_the_kind_and_the_export() {
        let all = READ | LOOKUP | MODIFY | EXTEND | DELETE | EXECUTE;
        let ask =
            |rig: &Rig, object| rig.call::<Access>(&Args { object, access: all }).unwrap().access;
        let rig = Rig::new();
        assert_eq!(ask(&rig, rig.root()), all & !EXECUTE);
        assert_eq!(ask(&rig, rig.file("f", b"")), READ | MODIFY | EXTEND);
        let fixed = Rig::with(|export| export.read_only = true);
        assert_eq!(ask(&fixed, fixed.root()), READ | LOOKUP);
    }
}
