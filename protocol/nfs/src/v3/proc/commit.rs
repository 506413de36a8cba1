//! COMMIT (RFC 1813 §3.3.21). The whole file is committed, regardless of the
//! range.

use super::Rule;
use crate::v3::cx::{Cx, Object};
use zgate_nfs_wire::v3::proc::Commit;
use zgate_nfs_wire::v3::proc::commit::{Args, Committed};
use zgate_nfs_wire::v3::{Status, WccData};

impl Rule for Commit {
    async fn run(cx: &Cx<'_>, args: Args, fail: &mut WccData) -> Result<Committed, Status> {
        let object = cx.enter_writable(&args.file)?;
        let committed = commit(&object).await;
        // Read after the sync: an error reported to another sync in the
        // meantime counts as well.
        let verifier = cx.server.write_verifier.of(object.store());
        *fail = object.wcc_after().await;
        committed?;
        Ok(Committed { wcc: std::mem::take(fail), verifier })
    }
}

async fn commit(object: &Object) -> Result<(), Status> {
    let open = object.open(false, true).await?;
    Ok(object.store().commit(&open).await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::StableNames;
    use crate::v3::proc::rig::Rig;
    use bytes::Bytes;
    use std::sync::Arc;
    use zgate_memory::{FileOp, MemoryStore};
    use zgate_nfs_wire::v3::proc::create::{self, How};
    use zgate_nfs_wire::v3::proc::{Create, Write, write};
    use zgate_nfs_wire::v3::{DirOpArgs, Fh3, Name3, StableHow};
    use zgate_store::StoreError;

    fn write(rig: &Rig, file: &Fh3, stable: StableHow) -> Result<[u8; 8], Status> {
        let data = Bytes::from_static(b"data");
        let args = write::Args { file: file.clone(), offset: 0, count: 4, stable, data };
        rig.call::<Write>(&args).map(|written| written.verifier).map_err(|failed| failed.0)
    }

    /// The kernel reports a lost write once: to a COMMIT, a stable WRITE, or
    /// the sync of a name. All other writers learn of it by the verifier.
    #[test]
    fn a_lost_write_changes_the_verifier_whoever_was_told() {
        let memory = MemoryStore::builder().root_mode(0o777).build();
        let rig = Rig::with(|export| {
            export.store = Arc::new(StableNames::over(Arc::new(memory.clone())));
        });
        let file = rig.file("f", b"");
        let commit = || rig.call::<Commit>(&Args { file: file.clone(), offset: 0, count: 0 });
        let told: [(FileOp, &dyn Fn() -> Status); 3] = [
            (FileOp::Commit, &|| commit().unwrap_err().0),
            (FileOp::Write, &|| write(&rig, &file, StableHow::FileSync).unwrap_err()),
            (FileOp::SyncObjects, &|| {
                let args = create::Args {
                    dir_op: DirOpArgs { dir: rig.root(), name: Name3::from(&b"g"[..]) },
                    how: How::Guarded(zgate_nfs_wire::v3::SetAttributes::default()),
                };
                rig.call::<Create>(&args).unwrap_err().0
            }),
        ];
        for (op, tell) in told {
            let unstable = write(&rig, &file, StableHow::Unstable).unwrap();
            assert_eq!(commit().unwrap().verifier, unstable);
            memory.faults().fail_next(op, StoreError::Io);
            assert_eq!(tell(), Status::Io);
            assert_ne!(commit().unwrap().verifier, unstable, "{op:?}");
        }
    }

    #[test]
    fn the_verifier_is_that_of_the_writes() {
        let rig = Rig::new();
        let file = rig.file("f", b"x");
        let args = |file| Args { file, offset: 0, count: 0 };
        assert_eq!(rig.call::<Commit>(&args(file)).unwrap().verifier, rig.verifier());
        assert_eq!(rig.call::<Commit>(&args(rig.root())).unwrap_err().0, Status::Inval);
    }
}
