//! Collects the values that the requested attributes need.

use super::principals;
use crate::namespace::pseudo::{Child, ROOT};
use crate::namespace::{Export, FileHandle, FileKey, Namespace, PseudoId};
use crate::runtime::{Names, PrincipalId};
use crate::v4::request::{Current, Cx};
use std::sync::Arc;
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::attr::*;
use zgate_nfs_wire::v4::{Bitmap, Status};
use zgate_store::attr::FsId;
use zgate_store::file_store::{FsStat, PosixAcl, PosixAclTag, StoreTraits};
use zgate_store::{Attr, FileKind, NodeHandle, Timestamp};

/// Upper half of the pseudo file system's fsid.
const PSEUDO_FSID: u64 = 0x7a67_6174_6500;

/// Values for all attributes.
pub struct AttributeValues {
    /// Attributes of the object.
    pub attr: Attr,
    /// Its handle.
    pub fh: Fh,
    /// Its export; `None` in the pseudo file system.
    pub export: Option<Arc<Export>>,
    /// Properties of its file system.
    pub traits: StoreTraits,
    /// Space and limits of its file system, if requested.
    pub space: FsStat,
    /// ACL, if requested.
    pub acl: Option<PosixAcl>,
    /// Owner as it is written; `None`: by its number.
    pub owner: Option<Box<str>>,
    /// Group as it is written; `None`: by its number.
    pub owner_group: Option<Box<str>>,
    /// Users and groups of the ACL as they are written, unless by their numbers.
    pub names: Vec<(PrincipalId, Box<str>)>,
}

/// Properties of the pseudo file system.
const PSEUDO_TRAITS: StoreTraits = StoreTraits {
    persistent_handles: true,
    max_file_bytes: 0,
    max_links: 1,
    xattrs: false,
    acls: false,
    clone_block_bytes: None,
    chown_restricted: true,
    tells_files_apart: true,
};

/// The `change` of all pseudo directories, and the verifier of their listings: the start of the
/// server, and the number of reloads since. What is exported may be something else after each
/// (RFC 8881 §5.8.1.4).
#[must_use]
pub fn pseudo_version(cx: &Cx<'_>) -> u64 {
    (u64::from(cx.server.options.boot_epoch) << 32) + cx.namespace.generation
}

/// Attributes of a pseudo directory. Its times differ where its `change` does.
#[must_use]
pub fn pseudo_attr(cx: &Cx<'_>, id: PseudoId) -> Attr {
    let when = Timestamp {
        seconds: cx.server.options.boot_epoch.into(),
        nanoseconds: (cx.namespace.generation % 1_000_000_000) as u32,
    };
    let directories = cx
        .namespace
        .children(id)
        .iter()
        .filter(|(_, child)| matches!(child, Child::Directory(_) | Child::Export(_)))
        .count();
    Attr {
        kind: FileKind::Directory,
        mode: 0o555,
        nlink: 2 + directories as u32,
        uid: 0,
        gid: 0,
        size: 4096,
        used_bytes: 4096,
        rdev: (0, 0),
        fsid: FsId { major: PSEUDO_FSID, minor: 0 },
        fileid: u64::from(id.0),
        mounted_on_fileid: u64::from(id.0),
        atime: when,
        mtime: when,
        ctime: when,
        btime: None,
        change: pseudo_version(cx),
        preferred_io_bytes: 4096,
    }
}

/// Attributes that need statfs; SPACE_USED belongs to the object. The file systems mounted
/// below an export may differ in them (RFC 8881 §5.4).
const SPACE: [u32; 20] = [
    ACL,
    ACLSUPPORT,
    CASE_INSENSITIVE,
    CLONE_BLKSIZE,
    FH_EXPIRE_TYPE,
    FILES_AVAIL,
    FILES_FREE,
    FILES_TOTAL,
    MAXFILESIZE,
    MAXLINK,
    MAXNAME,
    QUOTA_AVAIL_HARD,
    QUOTA_AVAIL_SOFT,
    QUOTA_USED,
    SPACE_AVAIL,
    SPACE_FREE,
    SPACE_TOTAL,
    SUPPATTR_EXCLCREAT,
    SUPPORTED_ATTRS,
    XATTR_SUPPORT,
];

/// True if `want` contains attributes of the file system's space, abilities and limits.
#[must_use]
pub fn asks_space(want: &Bitmap) -> bool {
    SPACE.iter().any(|attribute| want.contains(*attribute))
}

/// True if `want` contains attributes of which the holder of a write delegation
/// may have newer values.
#[must_use]
pub fn asks_data(want: &Bitmap) -> bool {
    want.contains(SIZE) || want.contains(CHANGE) || want.contains(TIME_MODIFY)
}

impl AttributeValues {
    /// True if delegations of the export come with time stamps.
    #[must_use]
    pub fn delegated_times(&self) -> bool {
        self.export.as_ref().is_some_and(|export| export.gives_delegated_times())
    }

    /// Collects the values for `want` of `current`; `known` avoids a getattr if
    /// the attributes are already known.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn gather(
        cx: &Cx<'_>,
        current: &Current,
        known: Option<Attr>,
        want: &Bitmap,
    ) -> Result<Self, Status> {
        let fh = if want.contains(FILEHANDLE) { current.handle().to_fh() } else { Fh(Vec::new()) };
        let (export, node, entry) = match current {
            Current::Pseudo(id) => {
                return Ok(Self {
                    attr: pseudo_attr(cx, *id),
                    fh,
                    export: None,
                    traits: PSEUDO_TRAITS,
                    space: FsStat { max_name_bytes: 255, read_only: true, ..FsStat::default() },
                    acl: None,
                    owner: None,
                    owner_group: None,
                    names: Vec::new(),
                });
            }
            Current::Node { export, node, entry } => (export, node, entry),
        };
        let store = &export.store;
        let own = if known.is_none() { own_attributes(cx, export, node) } else { None };
        let mut attr = match known.or(own) {
            Some(attr) => attr,
            None => store.getattr(node).await?,
        };
        if own.is_none() && asks_data(want) && attr.kind == FileKind::Regular {
            let key = || FileKey::of(export, node);
            let asks = (cx.calling_client(), cx.now.seconds(), &cx.holder_patience);
            if let Some(said) = cx.server.state.delegated_attributes(key, asks).await {
                said.apply(&mut attr, cx.now.wall);
            }
        }
        if *node == store.root() && cx.namespace.parent_of_export(export.id).is_some() {
            attr.mounted_on_fileid = Namespace::mounted_on(export.id);
        }
        let (space, traits) = if asks_space(want) {
            let space = store.statfs(node).await?;
            (space, space.traits)
        } else {
            (FsStat::default(), store.traits())
        };
        let acl =
            if want.contains(ACL) && traits.acls { Some(store.get_acl(node).await?) } else { None };
        let export = Some(Arc::clone(export));
        let (owner, owner_group, names) = (None, None, Vec::new());
        let mut values = Self { attr, fh, export, traits, space, acl, owner, owner_group, names };
        if let Some(ids) = &entry.ids {
            // Clients with ids of their own are told those, not the server's names.
            ids.show(&mut values.attr);
            values.acl.iter_mut().for_each(|acl| ids.show_acl(acl));
        } else if asks_principals(want)
            && let Some(names) = cx.server.runtime.names()
        {
            values.name_principals(cx, names, want).await;
        }
        Ok(values)
    }

    async fn name_principals(&mut self, cx: &Cx<'_>, names: &dyn Names, want: &Bitmap) {
        let wait = (&*cx.server.runtime, &cx.name_patience);
        let (uid, gid) = (PrincipalId::User(self.attr.uid), PrincipalId::Group(self.attr.gid));
        if want.contains(OWNER) {
            self.owner = Some(principals::written(wait, names, uid).await);
        }
        if want.contains(OWNER_GROUP) {
            self.owner_group = Some(principals::written(wait, names, gid).await);
        }
        let Some(acl) = &self.acl else { return };
        for entry in acl.access.iter().chain(&acl.default) {
            let id = match entry.tag {
                PosixAclTag::User(uid) => PrincipalId::User(uid),
                PosixAclTag::Group(gid) => PrincipalId::Group(gid),
                _ => continue,
            };
            if self.names.iter().all(|(known, _)| *known != id) {
                let name = principals::written(wait, names, id).await;
                self.names.push((id, name));
            }
        }
    }
}

/// Attributes, as they were a moment ago, of a file of which the caller holds a write
/// delegation. No other client has changed it since, and the caller takes what it has in its
/// cache for valid, whatever a program on the server does (RFC 8881 §10.4).
fn own_attributes(cx: &Cx<'_>, export: &Export, node: &NodeHandle) -> Option<Attr> {
    let state = &cx.server.state;
    let client = cx.calling_client().filter(|_| state.write_delegations.are_any())?;
    let attr = export.store.recent_attr(node)?;
    // In this order: what is recalled meanwhile is not its own any more.
    state.holds_write_delegation(&FileKey::of(export, node), client).then_some(attr)
}

/// True if `want` contains attributes that name users or groups.
#[must_use]
pub fn asks_principals(want: &Bitmap) -> bool {
    want.contains(OWNER) || want.contains(OWNER_GROUP) || want.contains(ACL)
}

/// The handle that a pseudo directory lists for a child.
#[must_use]
pub fn handle_of_child(namespace: &Namespace, child: Child) -> Option<FileHandle> {
    match child {
        Child::Directory(id) => Some(FileHandle::Pseudo(id)),
        Child::Export(id) => {
            namespace.export(id).map(|export| FileHandle::Node(id, export.store.root()))
        }
    }
}

/// The root of the whole tree.
#[must_use]
pub fn root_handle(namespace: &Namespace) -> FileHandle {
    handle_of_child(namespace, namespace.root()).unwrap_or(FileHandle::Pseudo(ROOT))
}
