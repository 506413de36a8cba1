//! ACCESS (RFC 1813 §3.3.4).

use super::Rule;
use crate::v3::cx::{Cx, Object};
use zgate_nfs_wire::v3::proc::Access;
use zgate_nfs_wire::v3::proc::access::{
    Args, DELETE, EXECUTE, EXTEND, Granted, LOOKUP, MODIFY, READ,
};
use zgate_nfs_wire::v3::{Attributes, Status};
use zgate_store::attr::{Attr, FileKind};

impl Rule for Access {
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
