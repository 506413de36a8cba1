//! REMOVE (RFC 1813 §3.3.12), and code shared with RMDIR.

use super::Rule;
use crate::v3::cx::Cx;
use crate::v3::guard::Change;
use zgate_nfs_wire::v3::proc::Remove;
use zgate_nfs_wire::v3::{DirOpArgs, Status, WccData};
use zgate_store::attr::FileKind;

impl Rule for Remove {
    async fn run(cx: &Cx<'_>, args: DirOpArgs, fail: &mut WccData) -> Result<WccData, Status> {
        remove(cx, &args, FileKind::Regular, fail).await
    }
}

/// Removes a directory, or an object of any other type.
pub(super) async fn remove(
    cx: &Cx<'_>,
    args: &DirOpArgs,
    kind: FileKind,
    wcc: &mut WccData,
) -> Result<WccData, Status> {
    let dir = cx.enter_writable(&args.dir)?;
    let name = args.name.to_remove()?;
    let _entries = cx.before_change(&dir, dir.node, Change::Entries).await?;
    let change = cx.before_change_of_child(&dir, name, Change::Name).await?;
    let before = dir.before().await;
    let remove = dir.store().remove(&dir.who, &dir.node, name, Some(kind));
    let removed = change.in_store(remove).await;
    *wcc = before.after(removed.as_ref().ok().copied()).await;
    removed.map_err(Status::of_name_change)?;
    Ok(std::mem::take(wcc))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v3::proc::rig::Rig;
    use std::sync::Arc;
    use zgate_memory::{FileOp, MemoryStore};
    use zgate_nfs_wire::v3::Name3;
    use zgate_nfs_wire::v3::proc::RmDir;
    use zgate_store::StoreError;

    #[test]
    fn files_go_once_and_directories_stay() {
        let rig = Rig::new();
        rig.file("f", b"x");
        rig.dir("d");
        let remove = |name: &str| {
            let args = DirOpArgs { dir: rig.root(), name: Name3::from(name.as_bytes()) };
            rig.call::<Remove>(&args).map(|_| ()).map_err(|failed| failed.0)
        };
        assert_eq!(remove("f"), Ok(()));
        assert_eq!(remove("f"), Err(Status::NoEnt));
        assert_eq!(remove("d"), Err(Status::IsDir));
        assert_eq!(remove("."), Err(Status::Inval));
        assert_eq!(remove(".."), Err(Status::Inval));
    }

    #[test]
    fn a_mount_point_is_refused_for_good() {
        let memory = MemoryStore::new();
        let rig = Rig::with(|export| export.store = Arc::new(memory.clone()));
        rig.dir("d");
        let args = DirOpArgs { dir: rig.root(), name: Name3::from(&b"d"[..]) };
        memory.faults().fail_every(FileOp::Remove, StoreError::Busy);
        assert_eq!(rig.call::<RmDir>(&args).unwrap_err().0, Status::Acces);
        assert_eq!(rig.call::<Remove>(&args).unwrap_err().0, Status::Acces);
    }

    #[test]
    fn what_is_held_stays() {
        let rig = Rig::new();
        rig.file("f", b"x");
        let rig = rig.held();
        let args = DirOpArgs { dir: rig.root(), name: Name3::from(&b"f"[..]) };
        assert_eq!(rig.call::<Remove>(&args).unwrap_err().0, Status::Jukebox);
    }
}
