//! LOOKUP (RFC 8881 §18.13).

use super::{Rule, names};
use crate::namespace::pseudo::Child;
use crate::namespace::{Object, PseudoId};
use crate::v4::failure::Failure;
use crate::v4::request::{Current, Cx};
use std::sync::Arc;
use zgate_nfs_wire::v4::op::Lookup;
use zgate_nfs_wire::v4::{Component, Status};
use zgate_store::{FileKind, StoreError};

impl Rule for Lookup {
    async fn run(cx: &mut Cx<'_>, name: Component) -> Result<(), Failure> {
        match cx.current()? {
            Current::Pseudo(id) => {
                names::check(&name.0)?;
                let id = *id;
                cx.current = Some(lookup_pseudo(cx, id, &name.0)?);
                cx.current_stateid = None;
            }
            Current::Node { .. } => {
                let dir = cx.object(Status::Serverfault)?;
                if let Err(status) = names::check(&name.0) {
                    return Err(check_directory(&dir).await.err().unwrap_or(status).into());
                }
                let found = dir.export.store.lookup(dir.who(), &dir.node, &name.0).await;
                let node = match found {
                    Ok(node) => node,
                    Err(StoreError::NotDirectory) => {
                        let why = check_directory(&dir).await.err().unwrap_or(Status::Notdir);
                        return Err(why.into());
                    }
                    Err(error) => return Err(error.into()),
                };
                cx.set_current_node(&dir, node.handle);
                cx.looked_up = Some(node.attr);
            }
        }
        Ok(())
    }
}

/// A child of a pseudo directory. An export closed to the caller is hidden.
///
/// # Errors
/// [`Status::Noent`], [`Status::Wrongsec`].
pub fn lookup_pseudo(cx: &Cx<'_>, id: PseudoId, name: &[u8]) -> Result<Current, Status> {
    let name = std::str::from_utf8(name).map_err(|_| Status::Inval)?;
    match cx.namespace.child(id, name).ok_or(Status::Noent)? {
        Child::Directory(id) if cx.namespace.leads_somewhere(id, &cx.call.peer) => {
            Ok(Current::Pseudo(id))
        }
        Child::Directory(_) => Err(Status::Noent),
        Child::Export(id) => {
            let export = cx.namespace.export(id).ok_or(Status::Noent)?;
            cx.enter_export(Arc::clone(export), export.store.root())
        }
    }
}

/// Checks that an object is a directory; returns the error of a directory
/// operation otherwise.
///
/// # Errors
/// [`Status::Symlink`], [`Status::Notdir`] or those of the store.
pub async fn check_directory(object: &Object) -> Result<(), Status> {
    match object.export.store.getattr(&object.node).await?.kind {
        FileKind::Directory => Ok(()),
        FileKind::Symlink => Err(Status::Symlink),
        _ => Err(Status::Notdir),
    }
}

/// Like [`check_directory`], for operations that may not return
/// [`Status::Symlink`].
///
/// # Errors
/// [`Status::Notdir`] or those of the store.
pub async fn require_directory(object: &Object) -> Result<(), Status> {
    match check_directory(object).await {
        Err(Status::Symlink) => Err(Status::Notdir),
        other => other,
    }
}
