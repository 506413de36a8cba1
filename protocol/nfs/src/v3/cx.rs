//! What a procedure works with: the call, and objects the caller may touch.

use super::guard::Change;
use super::server::Server;
use super::wire::{Attributes, Fh3, Name3, Status, WccAttr, WccData};
use crate::changes::Changing;
use crate::namespace::policy::Refusal;
use crate::namespace::{Export, Namespace, Place};
use crate::runtime::Call;
use std::sync::Arc;
use zgate_store::attr::{Attr, FileKind};
use zgate_store::file_store::{DirChange, OpenAccess, OpenFile};
use zgate_store::{Caller, FileStore, NodeHandle, StoreError};

/// One call.
pub struct Cx<'a> {
    /// The server.
    pub server: &'a Server,
    /// The exports as they were when the call began.
    pub namespace: Arc<Namespace>,
    /// The RPC call.
    pub call: &'a Call,
}

/// An object of an export the caller may enter.
#[derive(Clone, Debug)]
pub struct Object {
    /// The export.
    pub export: Arc<Export>,
    /// The object.
    pub node: NodeHandle,
    /// The identity to act under.
    pub who: Caller,
    /// Whether the caller may modify anything in the export.
    pub writable: bool,
}

impl Cx<'_> {
    /// Looks into a file handle.
    ///
    /// # Errors
    /// [`Status::BadHandle`] for what was never a handle of ours,
    /// [`Status::Stale`] for an export that is gone, closed to the caller or
    /// not offered over NFSv3, [`Status::Acces`] for a refused flavour.
    pub fn enter(&self, fh: &Fh3) -> Result<Object, Status> {
        let Some(Place::Node(export, node)) = Place::parse(&fh.0) else {
            return Err(Status::BadHandle);
        };
        let export = self.namespace.export(export).ok_or(Status::Stale)?;
        if !export.versions.v3 {
            return Err(Status::Stale);
        }
        match export.enter(&self.call.peer, &self.call.credential) {
            Ok(entry) => Ok(Object {
                export: Arc::clone(export),
                node,
                who: entry.who,
                writable: entry.writable,
            }),
            Err(Refusal::NotListed) => Err(Status::Stale),
            Err(Refusal::WrongFlavor | Refusal::UnprivilegedPort) => Err(Status::Acces),
        }
    }

    /// Looks into a file handle of an object that is to be modified.
    ///
    /// # Errors
    /// As [`Self::enter`], and [`Status::Rofs`].
    pub fn enter_writable(&self, fh: &Fh3) -> Result<Object, Status> {
        let object = self.enter(fh)?;
        if object.writable { Ok(object) } else { Err(Status::Rofs) }
    }

    /// Asks the guard before an object changes. The change lasts as long as
    /// what is returned.
    ///
    /// # Errors
    /// [`Status::Jukebox`].
    pub async fn before_change(
        &self,
        object: &Object,
        node: NodeHandle,
        what: Change,
    ) -> Result<Changing, Status> {
        let (guard, export) = (&self.server.guard, object.export.id);
        let changing = match what {
            Change::Entries => Changing::of_nothing(),
            _ => guard.begin_change(export, node),
        };
        if guard.idle() || guard.before_change(self.call, export, node, what).await {
            Ok(changing)
        } else {
            Err(Status::Jukebox)
        }
    }

    /// Asks the guard before what a name stands for is changed, replaced or
    /// removed. A name that is not there stands in nobody's way.
    ///
    /// # Errors
    /// [`Status::Jukebox`].
    pub async fn before_change_of_child(
        &self,
        dir: &Object,
        name: &[u8],
        what: Change,
    ) -> Result<Changing, Status> {
        let guard = &self.server.guard;
        if guard.idle()
            && let Some(alone) = guard.begin_change_of_name(&dir.export)
        {
            return Ok(alone);
        }
        match dir.store().lookup(&dir.who, &dir.node, name).await {
            Ok(child) if child.attr.kind == FileKind::Regular => {
                self.before_change(dir, child.handle, what).await
            }
            Ok(_) => Ok(Changing::of_nothing()),
            // The operation itself will meet the same error and report it.
            Err(_) => Ok(Changing::of_nothing()),
        }
    }

    /// Asks the guard before data is read.
    ///
    /// # Errors
    /// [`Status::Jukebox`].
    pub async fn before_read(&self, object: &Object) -> Result<(), Status> {
        let guard = &self.server.guard;
        if guard.idle() || guard.before_read(self.call, object.export.id, object.node).await {
            Ok(())
        } else {
            Err(Status::Jukebox)
        }
    }
}

impl Object {
    /// The tree it lies in.
    #[must_use]
    pub fn store(&self) -> &dyn FileStore {
        &*self.export.store
    }

    /// The handle for clients of an object in the same export.
    #[must_use]
    pub fn fh_of(&self, node: NodeHandle) -> Fh3 {
        Fh3(Place::Node(self.export.id, node).to_fh().0)
    }

    /// Attributes for the wire.
    #[must_use]
    pub fn attributes_of(&self, attr: &Attr) -> Attributes {
        Attributes::new(self.export.id, attr)
    }

    /// Attributes now, when they can be had.
    pub async fn post_op_attr(&self) -> Option<Attributes> {
        let attr = self.store().getattr(&self.node).await.ok()?;
        Some(self.attributes_of(&attr))
    }

    /// Opens the object, a regular file, as a protocol without OPEN does.
    ///
    /// # Errors
    /// [`Status::Inval`] for what is no regular file (RFC 1813 §3.3.6), else
    /// the store's verdict.
    pub async fn open(&self, read: bool, write: bool) -> Result<OpenFile, Status> {
        let access = OpenAccess { read, write, stateless: true };
        self.store().open(&self.who, &self.node, access).await.map_err(|error| match error {
            StoreError::IsDirectory | StoreError::IsSymlink | StoreError::WrongType => {
                Status::Inval
            }
            other => other.into(),
        })
    }

    /// Remembers a directory's attributes before it is modified.
    pub async fn before(&self) -> Before<'_> {
        Before { object: self, attr: self.store().getattr(&self.node).await.ok() }
    }

    /// Weak cache consistency data without attributes from before.
    pub async fn wcc_after(&self) -> WccData {
        WccData { before: None, after: self.post_op_attr().await }
    }
}

/// A directory as it was before a modification.
#[derive(Debug)]
pub struct Before<'a> {
    object: &'a Object,
    attr: Option<Attr>,
}

impl Before<'_> {
    /// Weak cache consistency data after the modification. A client takes
    /// equality of the earlier attributes with its own as a sign that it saw
    /// all changes but its own (RFC 1813 §2.6), so they are given only when
    /// `change` proves that nothing came between.
    pub async fn after(self, change: Option<DirChange>) -> WccData {
        let after = self.object.store().getattr(&self.object.node).await.ok();
        let proven = |before: &Attr| {
            let (Some(change), Some(after)) = (change, &after) else {
                return false;
            };
            change.atomic && change.before == before.change && change.after == after.change
        };
        WccData {
            before: self.attr.filter(proven).map(|attr| WccAttr::new(&attr)),
            after: after.map(|attr| self.object.attributes_of(&attr)),
        }
    }
}

/// What a name in an argument means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind<'a> {
    /// `.`: the directory itself.
    This,
    /// `..`: its parent.
    Parent,
    /// An ordinary name.
    Plain(&'a [u8]),
}

impl Name3 {
    /// Looks at a name. Its length is the store's business.
    ///
    /// # Errors
    /// [`Status::Inval`] when it is empty or holds `/` or NUL.
    pub fn kind(&self) -> Result<NameKind<'_>, Status> {
        match self.0.as_slice() {
            b"." => Ok(NameKind::This),
            b".." => Ok(NameKind::Parent),
            name if name.is_empty() || name.iter().any(|&b| b == b'/' || b == 0) => {
                Err(Status::Inval)
            }
            name => Ok(NameKind::Plain(name)),
        }
    }

    /// A name to be created: `.` and `..` always exist.
    ///
    /// # Errors
    /// [`Status::Exist`] or [`Status::Inval`].
    pub fn to_create(&self) -> Result<&[u8], Status> {
        match self.kind()? {
            NameKind::Plain(name) => Ok(name),
            NameKind::This | NameKind::Parent => Err(Status::Exist),
        }
    }

    /// A name to be removed or renamed: never `.` or `..` (RFC 1813 §3.3.14).
    ///
    /// # Errors
    /// [`Status::Inval`].
    pub fn to_remove(&self) -> Result<&[u8], Status> {
        match self.kind()? {
            NameKind::Plain(name) => Ok(name),
            NameKind::This | NameKind::Parent => Err(Status::Inval),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v3::proc::rig::{Rig, a_call, block_on};
    use zgate_store::attr::SetAttr;
    use zgate_store::file_store::NewNode;

    fn mkdir(dir: &Object, name: &[u8]) -> DirChange {
        let attrs = SetAttr::default();
        let what = NewNode::Directory;
        block_on(dir.store().create_node(&dir.who, &dir.node, name, &what, &attrs)).unwrap().1
    }

    #[test]
    fn earlier_attributes_are_given_only_when_nothing_came_between() {
        let rig = Rig::new();
        let call = a_call();
        let cx = Cx { server: &rig.server, namespace: (rig.server.namespace)(), call: &call };
        let dir = cx.enter(&rig.root()).unwrap();

        let before = block_on(dir.before());
        let change = DirChange { atomic: true, ..mkdir(&dir, b"a") };
        let wcc = block_on(before.after(Some(change)));
        assert!(wcc.before.is_some() && wcc.after.is_some());

        let before = block_on(dir.before());
        let change = DirChange { atomic: false, ..mkdir(&dir, b"b") };
        assert_eq!(block_on(before.after(Some(change))).before, None);

        let before = block_on(dir.before());
        mkdir(&dir, b"stranger");
        let change = DirChange { atomic: true, ..mkdir(&dir, b"c") };
        assert_eq!(block_on(before.after(Some(change))).before, None);

        let before = block_on(dir.before());
        let change = DirChange { atomic: true, ..mkdir(&dir, b"d") };
        mkdir(&dir, b"another stranger");
        assert_eq!(block_on(before.after(Some(change))).before, None);
        assert_eq!(block_on(block_on(dir.before()).after(None)).before, None);
    }
}
