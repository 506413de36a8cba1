//! RENAME (RFC 8881 §18.26).

use super::remove::{as_directory, recall_named};
use super::{Rule, names};
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::Rename;
use zgate_nfs_wire::v4::op::rename::{Args, Res};
use zgate_store::StoreError;

impl Rule for Rename {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        cx.current()?;
        let from = cx.saved_object(Status::Rofs)?;
        let to = cx.writable_object()?;
        names::check(&args.old.0)?;
        names::check(&args.new.0)?;
        if from.export.id != to.export.id {
            return Err(Status::Xdev.into());
        }
        super::remove::check_grace(cx)?;
        let moved = recall_named(cx, &from, &args.old.0).await?;
        let replaced = recall_named(cx, &to, &args.new.0).await?;
        let store = &to.export.store;
        let rename = store.rename(to.who(), &from.node, &args.old.0, &to.node, &args.new.0);
        match moved.in_store(replaced.in_store(rename)).await {
            Ok((source, target)) => Ok(Res { source: source.into(), target: target.into() }),
            // An existing target of another type, or a directory that is not
            // empty, is NFS4ERR_EXIST (RFC 8881 §18.26.3).
            Err(StoreError::NotEmpty | StoreError::IsDirectory) => Err(Status::Exist.into()),
            Err(StoreError::NotDirectory | StoreError::IsSymlink) => {
                for dir in [&from, &to] {
                    super::lookup::require_directory(dir).await?;
                }
                Err(Status::Exist.into())
            }
            Err(error) => Err(as_directory(&to, error).await.into()),
        }
    }
}
