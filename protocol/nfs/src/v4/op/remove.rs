//! REMOVE (RFC 8881 §18.25).

use super::{Rule, names};
use crate::changes::ChangeGuard;
use crate::namespace::{FileKey, Object};
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::op::Remove;
use zgate_nfs_wire::v4::{ChangeInfo, Component, Status};
use zgate_store::FileKind;

impl Rule for Remove {
    async fn run(cx: &mut Cx<'_>, name: Component) -> Result<ChangeInfo, Failure> {
        let dir = cx.writable_object()?;
        names::check(&name.0)?;
        check_grace(cx)?;
        let change = recall_named(cx, &dir, &name.0).await?;
        let store = &dir.export.store;
        match change.in_store(store.remove(dir.who(), &dir.node, &name.0, None)).await {
            Ok(change) => Ok(change.into()),
            Err(error) => Err(as_directory(&dir, error).await.into()),
        }
    }
}

/// Changes of names wait for the end of grace: a client may still reclaim an
/// open of the removed object (RFC 8881 §18.25.3 lists NFS4ERR_GRACE for this).
///
/// # Errors
/// [`Status::Grace`].
pub(super) fn check_grace(cx: &Cx<'_>) -> Result<(), Status> {
    let delays = cx.server.state.grace.delays(cx.now.seconds());
    if delays { Err(Status::Grace) } else { Ok(()) }
}

/// Recalls the delegations of a name's object before the name changes; the
/// change lasts until the returned value is dropped. If no other client could
/// get a delegation, the name is not looked up.
///
/// # Errors
/// [`Status::Delay`] during a recall.
pub(super) async fn recall_named(
    cx: &Cx<'_>,
    dir: &Object,
    name: &[u8],
) -> Result<ChangeGuard, Status> {
    let state = &cx.server.state;
    if let Some(alone) = state.begin_change_of_name(&dir.export, cx.session_client()) {
        return Ok(alone);
    }
    let Ok(node) = dir.export.store.lookup(dir.who(), &dir.node, name).await else {
        return Ok(ChangeGuard::uncounted());
    };
    if node.attr.kind != FileKind::Regular {
        return Ok(ChangeGuard::uncounted());
    }
    cx.recall_for_change(&FileKey::of(&dir.export, &node.handle))
}

/// The status of a name operation on an object that is not a directory.
pub(super) async fn as_directory(dir: &Object, error: zgate_store::StoreError) -> Status {
    use zgate_store::StoreError::{IsSymlink, NotDirectory};
    if matches!(error, NotDirectory | IsSymlink)
        && let Ok(attr) = dir.export.store.getattr(&dir.node).await
        && attr.kind == FileKind::Symlink
    {
        return Status::Notdir;
    }
    error.into()
}
