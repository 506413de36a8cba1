//! SETATTR (RFC 1813 §3.3.2).

use super::Rule;
use crate::v3::cx::{Cx, Object};
use crate::v3::guard::Change;
use zgate_nfs_wire::v3::proc::SetAttr;
use zgate_nfs_wire::v3::proc::setattr::Args;
use zgate_nfs_wire::v3::{Attributes, NfsTime, Status, WccData};
use zgate_store::attr;

impl Rule for SetAttr {
    async fn run(cx: &Cx<'_>, args: Args, fail: &mut WccData) -> Result<WccData, Status> {
        let object = cx.enter_writable(&args.object)?;
        match change(cx, &object, &args).await {
            Ok(after) => Ok(WccData { before: None, after: Some(after) }),
            Err(status) => {
                *fail = object.wcc_after().await;
                Err(status)
            }
        }
    }
}

async fn change(cx: &Cx<'_>, object: &Object, args: &Args) -> Result<Attributes, Status> {
    let changes: attr::SetAttr = object.set_attr(&args.attributes)?;
    let what = if changes.size.is_some() { Change::Data } else { Change::Attributes };
    let change = cx.before_change(object, object.node, what).await?;
    let store = object.store();
    if let Some(guard) = args.guard {
        let before = store.getattr(&object.node).await?;
        if NfsTime::from(before.ctime) != guard {
            return Err(Status::NotSync);
        }
    }
    // A truncation counts as a write: the owner may truncate, regardless of the
    // mode (RFC 1813 §4.4).
    let open = match changes.size {
        Some(_) => Some(object.open(false, true).await?),
        None => None,
    };
    let set = store.setattr(&object.who, &object.node, &changes, open.as_ref());
    let after = change.in_store(set).await?;
    Ok(object.attributes_of(&after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v3::proc::rig::Rig;
    use std::sync::Arc;
    use zgate_memory::{FileOp, MemoryStore};
    use zgate_nfs_wire::v3::Fh3;
    use zgate_nfs_wire::v3::SetAttributes;
    use zgate_store::StoreError;

    #[test]
    fn the_guard_decides() {
        let rig = Rig::new();
        let file = rig.file("a", b"hello");
        let set = |guard| {
            let attributes = SetAttributes { size: Some(2), ..Default::default() };
            rig.call::<SetAttr>(&Args { object: file.clone(), attributes, guard })
        };
        let wrong = NfsTime { seconds: 1, nanoseconds: 1 };
        let (status, wcc) = *set(Some(wrong)).unwrap_err();
        assert_eq!(status, Status::NotSync);
        let ctime = wcc.after.unwrap().ctime;
        assert_eq!(set(Some(ctime)).unwrap().after.unwrap().size, 2);
    }

    #[test]
    fn an_owner_truncates_a_read_only_file_but_no_directory() {
        let rig = Rig::new();
        let file = rig.file("a", b"hello");
        let set = |object: &Fh3, attributes| {
            rig.call::<SetAttr>(&Args { object: object.clone(), attributes, guard: None })
        };
        set(&file, SetAttributes { mode: Some(0o444), ..Default::default() }).unwrap();
        let cut = SetAttributes { size: Some(1), ..Default::default() };
        assert_eq!(set(&file, cut.clone()).unwrap().after.unwrap().size, 1);
        assert_eq!(set(&rig.root(), cut).unwrap_err().0, Status::Inval);
    }

    #[test]
    fn the_size_of_a_running_program_is_refused_for_good() {
        let memory = MemoryStore::new();
        let rig = Rig::with(|export| export.store = Arc::new(memory.clone()));
        let object = rig.file("program", b"old");
        memory.faults().fail_every(FileOp::Open, StoreError::TextBusy);
        let set = |attributes| {
            let args = Args { object: object.clone(), attributes, guard: None };
            rig.call::<SetAttr>(&args).map(drop).map_err(|failed| failed.0)
        };
        let cut = SetAttributes { size: Some(0), ..Default::default() };
        assert_eq!(set(cut), Err(Status::Acces));
        assert_eq!(set(SetAttributes { mode: Some(0o700), ..Default::default() }), Ok(()));
    }

    #[test]
    fn a_read_only_export_and_a_held_file_stay_as_they_are() {
        let args = |object| Args { object, attributes: SetAttributes::default(), guard: None };
        let rig = Rig::with(|export| export.read_only = true);
        assert_eq!(rig.call::<SetAttr>(&args(rig.root())).unwrap_err().0, Status::Rofs);
        let held = Rig::new().held();
        assert_eq!(held.call::<SetAttr>(&args(held.root())).unwrap_err().0, Status::Jukebox);
    }
}
