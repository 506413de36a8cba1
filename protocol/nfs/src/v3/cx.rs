//! Context of a procedure: the call, and objects with the caller's access.

use super::guard::Change;
use super::server::Server;
use crate::changes::ChangeGuard;
use crate::namespace::policy::Refusal;
use crate::namespace::{Entry, Export, ExportId, FileHandle, HeldNamespace, IdView};
use crate::runtime::Call;
use std::sync::Arc;
use zgate_nfs_wire::v3::{Attributes, Fh3, SetAttributes, Status, WccAttr, WccData};
use zgate_store::attr::{Attr, FileKind, FsId, SetAttr};
use zgate_store::file_store::{DirChange, OpenAccess, OpenFile};
use zgate_store::{Caller, FileStore, NodeHandle, StoreError};

/// One call.
pub struct Cx<'a> {
    /// The server.
    pub server: &'a Server,
    /// The exports at the start of the call.
    pub namespace: HeldNamespace,
    /// The RPC call.
    pub call: &'a Call,
}

/// An object of an export to which the caller has access.
#[derive(Clone, Debug)]
pub struct Object {
    /// The export.
    pub export: Arc<Export>,
    /// The object.
    pub node: NodeHandle,
    /// The identity of the caller.
    pub who: Caller,
    /// True if the caller may modify objects of the export.
    pub writable: bool,
    /// Ids as the client sees them; `None`: they are those of the server.
    pub ids: Option<Arc<IdView>>,
}

impl Cx<'_> {
    /// Resolves a file handle.
    ///
    /// # Errors
    /// [`Status::BadHandle`] if this server cannot have issued the handle,
    /// [`Status::Stale`] for an export that was removed, is closed to the
    /// caller or not offered over NFSv3, [`Status::Jukebox`] for one whose tree
    /// cannot be opened now, or that may not be known yet, [`Status::Acces`] for a
    /// refused flavour or a connection without the required TLS.
    pub fn enter(&self, fh: &Fh3) -> Result<Object, Status> {
        let Some(FileHandle::Node(export, node)) = FileHandle::parse(&fh.0) else {
            return Err(Status::BadHandle);
        };
        let Some(export) = self.namespace.export(export) else {
            let away = self.namespace.away(export, &self.call.peer);
            let returns =
                away.is_some_and(|export| export.versions.v3) || self.namespace.may_appear(export);
            return Err(if returns { Status::Jukebox } else { Status::Stale });
        };
        if !export.versions.v3 {
            return Err(Status::Stale);
        }
        self.call.entered.set(export.id.0);
        match export.admit(self.call) {
            Ok(Entry { who, writable, ids }) => {
                Ok(Object { export: Arc::clone(export), node, who, writable, ids })
            }
            Err(Refusal::UnknownGroups) => Err(Status::Jukebox),
            Err(Refusal::NotListed) => Err(Status::Stale),
            Err(
                Refusal::WrongFlavor
                | Refusal::Unprotected(_)
                | Refusal::WrongCertificate
                | Refusal::UnknownUser
                | Refusal::UnprivilegedPort,
            ) => Err(Status::Acces),
        }
    }

    /// Resolves a file handle of an object that is to be modified.
    ///
    /// # Errors
    /// As [`Self::enter`], and [`Status::Rofs`].
    pub fn enter_writable(&self, fh: &Fh3) -> Result<Object, Status> {
        let object = self.enter(fh)?;
        if object.writable { Ok(object) } else { Err(Status::Rofs) }
    }

    /// Asks the guard before an object changes. The change lasts until the
    /// returned value is dropped.
    ///
    /// # Errors
    /// [`Status::Jukebox`].
    pub async fn before_change(
        &self,
        object: &Object,
        node: NodeHandle,
        what: Change,
    ) -> Result<ChangeGuard, Status> {
        self.wait_for_grace(what, 0).await;
        self.begin_change(object, node, what).await
    }

    /// Does the same before the data of a file changes; the call holds `bytes` of it.
    ///
    /// # Errors
    /// [`Status::Jukebox`].
    pub async fn before_write(&self, file: &Object, bytes: usize) -> Result<ChangeGuard, Status> {
        self.wait_for_grace(Change::Data, bytes).await;
        self.begin_change(file, file.node, Change::Data).await
    }

    async fn wait_for_grace(&self, what: Change, bytes: usize) {
        if self.server.guard.waits_for_grace(what) {
            self.server.guard.end_of_grace(bytes).await;
        }
    }

    /// Does the same without a wait for the end of grace.
    async fn begin_change(
        &self,
        object: &Object,
        node: NodeHandle,
        what: Change,
    ) -> Result<ChangeGuard, Status> {
        let (guard, export) = (&self.server.guard, &*object.export);
        let changing = match what {
            Change::Entries => ChangeGuard::uncounted(),
            _ => guard.begin_change(export, node),
        };
        if guard.idle() || guard.before_change(self.call, export, node, what).await {
            Ok(changing)
        } else {
            Err(Status::Jukebox)
        }
    }

    /// Asks the guard before the object with a name is changed, replaced or
    /// removed. A name that does not exist causes no conflict.
    ///
    /// # Errors
    /// [`Status::Jukebox`].
    pub async fn before_change_of_child(
        &self,
        dir: &Object,
        name: &[u8],
        what: Change,
    ) -> Result<ChangeGuard, Status> {
        let guard = &self.server.guard;
        if guard.idle()
            && let Some(alone) = guard.begin_change_of_name(&dir.export)
        {
            return Ok(alone);
        }
        let mut has_waited = false;
        loop {
            match dir.store().lookup(&dir.who, &dir.node, name).await {
                Ok(child) if child.attr.kind == FileKind::Regular => {
                    if !has_waited && guard.waits_for_grace(what) {
                        // The name may be another object's by then.
                        guard.end_of_grace(0).await;
                        has_waited = true;
                        continue;
                    }
                    return self.begin_change(dir, child.handle, what).await;
                }
                Ok(_) => return Ok(ChangeGuard::uncounted()),
                // The operation itself gets the same error and reports it.
                Err(_) => return Ok(ChangeGuard::uncounted()),
            }
        }
    }

    /// Asks the guard before data is read.
    ///
    /// # Errors
    /// [`Status::Jukebox`].
    pub async fn before_read(&self, object: &Object) -> Result<(), Status> {
        let guard = &self.server.guard;
        if guard.before_read(self.call, &object.export, object.node).await {
            Ok(())
        } else {
            Err(Status::Jukebox)
        }
    }
}

impl Object {
    /// The store of the object.
    #[must_use]
    pub fn store(&self) -> &dyn FileStore {
        &*self.export.store
    }

    /// The file handle of an object in the same export.
    #[must_use]
    pub fn fh_of(&self, node: NodeHandle) -> Fh3 {
        Fh3(FileHandle::Node(self.export.id, node).to_fh().0)
    }

    /// Attributes for the wire.
    #[must_use]
    pub fn attributes_of(&self, attr: &Attr) -> Attributes {
        let mut attributes = Attributes::new(fsid_of(self.export.id, attr.fsid), attr);
        if let Some(ids) = &self.ids {
            attributes.uid = ids.shown_user(attributes.uid);
            attributes.gid = ids.shown_group(attributes.gid);
        }
        attributes
    }

    /// Attributes that a client sets, for the store.
    ///
    /// # Errors
    /// [`Status::Inval`] for an invalid time, or an id of the client that stands
    /// for none of the server.
    pub fn set_attr(&self, attributes: &SetAttributes) -> Result<SetAttr, Status> {
        let mut set = attributes.to_set_attr()?;
        if let Some(ids) = &self.ids {
            ids.accept(&mut set).map_err(|_| Status::Inval)?;
        }
        Ok(set)
    }

    /// Attributes that a client sets on an object that it makes, for the store. Unless it is
    /// root, without an owner, and without a group that it is not in: clients of BSD's kind
    /// send those of the user and of the directory along, and do not try again without them.
    ///
    /// # Errors
    /// [`Status::Inval`] as [`Self::set_attr`], but not for what is left out.
    pub fn new_attr(&self, attributes: &SetAttributes) -> Result<SetAttr, Status> {
        if self.who.uid == 0 {
            return self.set_attr(attributes);
        }
        let group = SetAttributes { gid: attributes.gid, ..Default::default() };
        let group = self.set_attr(&group).ok().and_then(|set| set.gid);
        let gid = group.filter(|gid| self.who.in_group(*gid));
        let others = SetAttributes { uid: None, gid: None, ..attributes.clone() };
        Ok(SetAttr { gid, ..self.set_attr(&others)? })
    }

    /// Current attributes, if available.
    pub async fn post_op_attr(&self) -> Option<Attributes> {
        let attr = self.store().getattr(&self.node).await.ok()?;
        Some(self.attributes_of(&attr))
    }

    /// Opens the object, a regular file, for a protocol without OPEN.
    ///
    /// # Errors
    /// [`Status::Inval`] if it is not a regular file (RFC 1813 §3.3.6),
    /// otherwise the store's error.
    pub async fn open(&self, read: bool, write: bool) -> Result<OpenFile, Status> {
        let access = OpenAccess { read, write, stateless: true, read_by_execute: false };
        self.store().open(&self.who, &self.node, access).await.map_err(|error| match error {
            StoreError::IsDirectory | StoreError::IsSymlink | StoreError::WrongType => {
                Status::Inval
            }
            other => other.into(),
        })
    }

    /// Reads a directory's attributes before it is modified.
    pub async fn before(&self) -> Before<'_> {
        Before { object: self, attr: self.store().getattr(&self.node).await.ok() }
    }

    /// Weak cache consistency data without the attributes before the operation.
    pub async fn wcc_after(&self) -> WccData {
        WccData { before: None, after: self.post_op_attr().await }
    }
}

/// State of a directory before a modification.
#[derive(Debug)]
pub struct Before<'a> {
    object: &'a Object,
    attr: Option<Attr>,
}

impl Before<'_> {
    /// Weak cache consistency data after the modification. A client whose
    /// cached attributes equal the earlier ones assumes that it has seen all
    /// other changes (RFC 1813 §2.6), so they are returned only if `change`
    /// proves that there was no other change in between.
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

/// The single number that NFSv3 has for a file system. It contains the export:
/// two exports may be trees with the same file numbers.
fn fsid_of(export: ExportId, fsid: FsId) -> u64 {
    let mix = |a: u64, b: u64| (a ^ b).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
    mix(mix(mix(u64::from(export.0), fsid.major), fsid.minor), 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::{IdMap, IdRange};
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

    #[test]
    fn who_makes_an_object_gives_it_to_none_but_its_own_groups() {
        let rig = Rig::new();
        let call = a_call();
        let cx = Cx { server: &rig.server, namespace: (rig.server.namespace)(), call: &call };
        let mut dir = cx.enter(&rig.root()).unwrap();
        let owned = |gid| SetAttributes { uid: Some(7), gid: Some(gid), ..Default::default() };
        let given = |dir: &Object, gid| {
            let set = dir.new_attr(&owned(gid)).unwrap();
            (set.uid, set.gid)
        };
        assert_eq!(given(&dir, 21), (Some(7), Some(21)), "root");
        dir.who = Caller { uid: 7, gid: 7, groups: Arc::from([20]) };
        assert_eq!(given(&dir, 20), (None, Some(20)));
        assert_eq!(given(&dir, 21), (None, None));
        let groups = IdMap::new(&[IdRange { client: 5, server: 20, more: 0 }]);
        dir.ids = Some(Arc::new(IdView { groups, ..IdView::default() }));
        assert_eq!(given(&dir, 5), (None, Some(20)));
        assert_eq!(given(&dir, 6), (None, None), "it stands for none");
    }

    #[test]
    fn file_systems_and_exports_are_told_apart() {
        let one = FsId { major: 1, minor: 2 };
        let two = FsId { major: 2, minor: 1 };
        assert_ne!(fsid_of(ExportId(1), one), fsid_of(ExportId(1), two));
        assert_ne!(fsid_of(ExportId(1), one), fsid_of(ExportId(2), one));
    }
}
