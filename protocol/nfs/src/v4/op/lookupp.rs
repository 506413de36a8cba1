//! LOOKUPP (RFC 8881 §18.14).

use super::Rule;
use super::lookup::check_directory;
use crate::namespace::{Export, Object};
use crate::v4::failure::Failure;
use crate::v4::request::{Current, Cx};
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::Lookupp;

impl Rule for Lookupp {
    async fn run(cx: &mut Cx<'_>, (): ()) -> Result<(), Failure> {
        let parent = parent_of(cx).await?;
        if cx.unentered.take().is_some() {
            // The flavour is not wrong for the parent.
            cx.call.refused.take();
        }
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
/// store. [`Status::Wrongsec`] within an export.
pub async fn parent_of(cx: &Cx<'_>) -> Result<Current, Status> {
    if let Some(root) = cx.unentered.as_deref().filter(|unentered| unentered.is_root()) {
        return parent_of_root(cx, &root.export);
    }
    let dir: Object = match cx.current()? {
        Current::Pseudo(id) => {
            return cx.namespace.parent(*id).map(Current::Pseudo).ok_or(Status::Noent);
        }
        Current::Node { .. } => cx.object(Status::Serverfault)?,
    };
    let store = &dir.export.store;
    if dir.node == store.root() {
        return parent_of_root(cx, &dir.export);
    }
    match check_directory(&dir).await {
        Err(Status::Symlink) if cx.minor == 0 => return Err(Status::Notdir),
        other => other?,
    }
    let parent = store.lookup_parent(dir.who(), &dir.node).await?;
    Ok(Current::Node { export: dir.export.clone(), node: parent.handle, entry: dir.entry })
}

fn parent_of_root(cx: &Cx<'_>, export: &Export) -> Result<Current, Status> {
    cx.namespace.parent_of_export(export.id).map(Current::Pseudo).ok_or(Status::Noent)
}
