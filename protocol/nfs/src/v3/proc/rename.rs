//! RENAME (RFC 1813 §3.3.14).

use super::Rule;
use crate::changes::ChangeGuard;
use crate::v3::cx::{Cx, Object};
use crate::v3::guard::Change;
use zgate_nfs_wire::v3::Status;
use zgate_nfs_wire::v3::proc::Rename;
use zgate_nfs_wire::v3::proc::rename::{Args, Both};

impl Rule for Rename {
    async fn run(cx: &Cx<'_>, args: Args, fail: &mut Both) -> Result<Both, Status> {
        let from = cx.enter_writable(&args.from.dir)?;
        let to = cx.enter_writable(&args.to.dir)?;
        let from_name = args.from.name.to_remove()?;
        let to_name = args.to.name.to_remove()?;
        if from.export.id != to.export.id {
            return Err(Status::Xdev);
        }
        let moved = ask(cx, (&from, from_name)).await?;
        let replaced = ask(cx, (&to, to_name)).await?;
        let (from_before, to_before) = (from.before().await, to.before().await);
        let store = from.store();
        let rename = store.rename(&from.who, &from.node, from_name, &to.node, to_name);
        let renamed = moved.in_store(replaced.in_store(rename)).await;
        let changes = renamed.as_ref().ok();
        *fail = Both {
            from_wcc: from_before.after(changes.map(|(from, _)| *from)).await,
            to_wcc: to_before.after(changes.map(|(_, to)| *to)).await,
        };
        renamed.map_err(Status::of_name_change)?;
        Ok(std::mem::take(fail))
    }
}

/// Asks the guard about the changes of a rename on one side: the directory, and
/// the object that is moved or replaced.
async fn ask(cx: &Cx<'_>, (dir, name): (&Object, &[u8])) -> Result<ChangeGuard, Status> {
    let _entries = cx.before_change(dir, dir.node, Change::Entries).await?;
    cx.before_change_of_child(dir, name, Change::Name).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v3::proc::rig::Rig;
    use std::sync::Arc;
    use zgate_memory::{FileOp, MemoryStore};
    use zgate_nfs_wire::v3::DirOpArgs;
    use zgate_nfs_wire::v3::{Fh3, Name3};
    use zgate_store::StoreError;

    #[test]
    fn a_mount_point_keeps_its_name() {
        let memory = MemoryStore::new();
        let rig = Rig::with(|export| export.store = Arc::new(memory.clone()));
        rig.dir("d");
        memory.faults().fail_next(FileOp::Rename, StoreError::Busy);
        let at = |name: &[u8]| DirOpArgs { dir: rig.root(), name: Name3::from(name) };
        let args = Args { from: at(b"d"), to: at(b"e") };
        let renamed = rig.call::<Rename>(&args).map(|_| ()).map_err(|failed| failed.0);
        assert_eq!(renamed, Err(Status::Acces));
    }

    #[test]
    fn a_name_moves_and_replaces() {
        let rig = Rig::new();
        let dir = rig.dir("d");
        let file = rig.file("a", b"A");
        rig.file("b", b"B");
        let rename = |from: &str, to_dir: &Fh3, to: &str| {
            let at = |dir: &Fh3, name: &str| DirOpArgs {
                dir: dir.clone(),
                name: Name3::from(name.as_bytes()),
            };
            let args = Args { from: at(&rig.root(), from), to: at(to_dir, to) };
            rig.call::<Rename>(&args).map(|_| ()).map_err(|failed| failed.0)
        };
        let root = rig.root();
        assert_eq!(rename("a", &root, "b"), Ok(()));
        assert_eq!(rig.content(&file), b"A");
        assert_eq!(rename("b", &dir, "c"), Ok(()));
        assert_eq!(rig.lookup(&dir, "c"), Ok(file));
        assert_eq!(rename("none", &root, "x"), Err(Status::NoEnt));
        assert_eq!(rename(".", &root, "x"), Err(Status::Inval));
        assert_eq!(rename("d", &root, ".."), Err(Status::Inval));
        assert_eq!(rename("d", &dir, "inside"), Err(Status::Inval));
    }
}
