//! LINK (RFC 8881 §18.9).

use super::remove::as_directory;
use super::{Rule, names};
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::op::Link;
use zgate_nfs_wire::v4::{ChangeInfo, Component, Status};
use zgate_store::FileKind;

impl Rule for Link {
    async fn run(cx: &mut Cx<'_>, name: Component) -> Result<ChangeInfo, Failure> {
        cx.current()?;
        let source = cx.saved_object(Status::Isdir)?;
        let dir = cx.writable_object()?;
        let store = &dir.export.store;
        names::check(&name.0)?;
        super::lookup::require_directory(&dir).await?;
        if source.export.id != dir.export.id {
            return Err(Status::Xdev.into());
        }
        super::remove::check_grace(cx)?;
        if store.getattr(&source.node).await?.kind == FileKind::Directory {
            return Err(Status::Isdir.into());
        }
        let change = cx.recall_for_change(&source.file_key())?;
        match change.in_store(store.link(dir.who(), &source.node, &dir.node, &name.0)).await {
            Ok(change) => Ok(change.into()),
            Err(error) => Err(as_directory(&dir, error).await.into()),
        }
    }
}
