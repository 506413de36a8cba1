//! LOOKUPP (RFC 8881 §18.14).

use super::Rule;
use super::lookup::check_directory;
use crate::namespace::Object;
use crate::v4::failure::Failure;
use crate::v4::request::{Current, Cx};
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::Lookupp;

impl Rule for Lookupp {
    async fn run(cx: &mut Cx<'_>, (): ()) -> Result<(), Failure> {
        let parent = parent_of(cx).await?;
        cx.current = Some(parent);
        cx.current_stateid = None;
        Ok(())
    }
}

/// The parent directory; for an export's root it is the pseudo directory that
/// contains the export.
///
/// # Errors
/// [`Status::Noent`] at the root of the tree, [`Status::Notdir`], those of the
/// store.
pub async fn parent_of(cx: &Cx<'_>) -> Result<Current, Status> {
    let dir: Object = match cx.current()? {
        Current::Pseudo(id) => {
            return cx.namespace.parent(*id).map(Current::Pseudo).ok_or(Status::Noent);
        }
        Current::Node { .. } => cx.object(Status::Serverfault)?,
    };
    let store = &dir.export.store;
    if dir.node == store.root() {
        let pseudo = cx.namespace.parent_of_export(dir.export.id);
        return pseudo.map(Current::Pseudo).ok_or(Status::Noent);
    }
    match check_directory(&dir).await {
        Err(Status::Symlink) if cx.minor == 0 => return Err(Status::Notdir),
        other => other?,
    }
    let parent = store.lookup_parent(dir.who(), &dir.node).await?;
    Ok(Current::Node { export: dir.export.clone(), node: parent.handle, entry: dir.entry })
}
