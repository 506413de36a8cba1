//! Finds or creates the file of an OPEN.

use crate::namespace::pseudo::Child;
use crate::namespace::{FileKey, Object};
use crate::v4::attrs::settable::{self, AclOf, Settable, Subject};
use crate::v4::failure::Failure;
use crate::v4::op::names;
use crate::v4::request::{Current, Cx};
use zgate_nfs_wire::v4::attr::{SIZE, TIME_ACCESS, TIME_MODIFY};
use zgate_nfs_wire::v4::op::open::{Args, Claim, How};
use zgate_nfs_wire::v4::{Bitmap, ChangeInfo, ClientId, Fattr, Stateid, Status};
use zgate_store::file_store::{CreateMode, OpenFile};
use zgate_store::{Attr, FileKind, SetAttr};

/// The file of an OPEN.
pub(super) struct Target {
    pub object: Object,
    /// Open for reading and writing, if it was just created.
    pub opened: Option<OpenFile>,
    pub created: bool,
    pub change: ChangeInfo,
    pub attrs_set: Bitmap,
    /// Attributes of a file that was just created. Those of an existing file are read
    /// when the work of others on it has ended.
    pub attr: Option<Attr>,
    /// An existing file must be truncated once the open is granted.
    pub truncate: bool,
}

/// Finds or creates it.
pub(super) async fn find(cx: &Cx<'_>, args: &Args, client: ClientId) -> Result<Target, Failure> {
    match &args.claim {
        Claim::Null(name) => named(cx, args, &name.0).await,
        Claim::DelegateCurrent(stateid, name) => {
            if args.how != How::NoCreate {
                return Err(Status::Inval.into());
            }
            let held = check_held(cx, *stateid, client)?;
            only(held, named(cx, args, &name.0).await?)
        }
        Claim::Fh | Claim::Previous(_) => by_handle(cx, args).await,
        Claim::DelegateCurrentFh(stateid) => {
            let held = check_held(cx, *stateid, client)?;
            only(held, by_handle(cx, args).await?)
        }
        // Delegations do not outlive their client's lease in this server (RFC
        // 8881 §10.2.1 leaves that to the server).
        Claim::DelegatePrevious(_) | Claim::DelegatePreviousFh => Err(Status::Notsupp.into()),
    }
}

/// The file of a delegation of the client. Its stateid is looked up as that of any operation on
/// state: it may be of another type or version (RFC 8881 §8.2.4, RFC 7530 §9.1.4.4).
fn check_held(cx: &Cx<'_>, stateid: Stateid, client: ClientId) -> Result<FileKey, Status> {
    let state = &cx.server.state;
    let tables = state.lock();
    let (key, _) = state.find_state(&tables, cx.requester(), stateid, None)?;
    match tables.delegations.get(&key) {
        Some(delegation) if delegation.client == client => Ok(delegation.file),
        _ => Err(Status::BadStateid),
    }
}

/// A delegation can only be used to open its own file (RFC 8881 §18.16.3).
fn only(held: FileKey, target: Target) -> Result<Target, Failure> {
    if target.object.file_key() == held { Ok(target) } else { Err(Status::BadStateid.into()) }
}

async fn by_handle(cx: &Cx<'_>, args: &Args) -> Result<Target, Failure> {
    // Creation needs a name (RFC 8881 §18.16.3), in every mode.
    if args.how != How::NoCreate {
        return Err(Status::Inval.into());
    }
    let object = cx.object(Status::Isdir)?;
    let attr = object.export.store.getattr(&object.node).await?;
    if let Some(status) = not_a_file(attr.kind, cx.minor) {
        return Err(status.into());
    }
    let change = ChangeInfo { atomic: true, before: attr.change, after: attr.change };
    Ok(existing(object, change))
}

/// Returns the error of OPEN for an object that is no regular file
/// (RFC 8881 §18.16.3; RFC 7530 §16.16.5).
fn not_a_file(kind: FileKind, minor: u8) -> Option<Status> {
    match kind {
        FileKind::Regular => None,
        FileKind::Directory => Some(Status::Isdir),
        FileKind::Symlink => Some(Status::Symlink),
        _ if minor == 0 => Some(Status::Symlink),
        _ => Some(Status::WrongType),
    }
}

fn existing(object: Object, change: ChangeInfo) -> Target {
    Target {
        object,
        opened: None,
        created: false,
        change,
        attrs_set: Bitmap::default(),
        attr: None,
        truncate: false,
    }
}

async fn named(cx: &Cx<'_>, args: &Args, name: &[u8]) -> Result<Target, Failure> {
    names::check(name)?;
    let dir = match cx.current()? {
        Current::Pseudo(id) => return Err(in_pseudo(cx, *id, name, &args.how).into()),
        Current::Node { .. } => cx.object(Status::Rofs)?,
    };
    let create = match &args.how {
        How::NoCreate => None,
        How::Unchecked(attrs) => Some((CreateMode::Unchecked, read_new(cx, &dir, attrs).await?)),
        How::Guarded(attrs) => Some((CreateMode::Guarded, read_new(cx, &dir, attrs).await?)),
        How::Exclusive(verifier) => Some((CreateMode::Exclusive(*verifier), Settable::default())),
        How::ExclusiveWithAttrs(verifier, attrs) => {
            let settable = read_new(cx, &dir, attrs).await?;
            // The verifier is kept in the time stamps, so these cannot be set here: they are not
            // in suppattr_exclcreat (RFC 8881 §5.8.1.14, §18.16.3).
            if settable.set.atime.is_some() || settable.set.mtime.is_some() {
                return Err(Status::Inval.into());
            }
            Some((CreateMode::Exclusive(*verifier), settable))
        }
    };
    match create {
        None => lookup(cx, dir, name).await,
        Some((mode, settable)) => create_file(cx, dir, name, mode, settable).await,
    }
}

async fn read_new(cx: &Cx<'_>, dir: &Object, attrs: &Fattr) -> Result<Settable, Status> {
    settable::read(cx, dir, attrs, Subject::New(AclOf::Other)).await
}

fn in_pseudo(cx: &Cx<'_>, id: crate::namespace::PseudoId, name: &[u8], how: &How) -> Status {
    let child = std::str::from_utf8(name).ok().and_then(|name| cx.namespace.child(id, name));
    match child {
        Some(Child::Directory(_) | Child::Export(_)) => Status::Isdir,
        None if *how == How::NoCreate => Status::Noent,
        None => Status::Rofs,
    }
}

async fn lookup(cx: &Cx<'_>, dir: Object, name: &[u8]) -> Result<Target, Failure> {
    let store = &dir.export.store;
    let node = match store.lookup(dir.who(), &dir.node, name).await {
        Ok(node) => node,
        Err(error) => return Err(dir_error(cx, &dir, error).await),
    };
    if let Some(status) = not_a_file(node.attr.kind, cx.minor) {
        return Err(status.into());
    }
    // Nothing changed; clients only compare before and after with each other.
    let change = store.getattr(&dir.node).await.map_or(0, |attr| attr.change);
    let change = ChangeInfo { atomic: true, before: change, after: change };
    Ok(existing(Object { node: node.handle, ..dir }, change))
}

/// Error for a name looked up in an object that is not a directory.
async fn dir_error(cx: &Cx<'_>, dir: &Object, error: zgate_store::StoreError) -> Failure {
    use zgate_store::StoreError::{IsSymlink, NotDirectory};
    if matches!(error, NotDirectory | IsSymlink)
        && let Ok(attr) = dir.export.store.getattr(&dir.node).await
        && attr.kind == zgate_store::FileKind::Symlink
    {
        return if cx.minor > 0 { Status::Symlink } else { Status::Notdir }.into();
    }
    error.into()
}

async fn create_file(
    cx: &Cx<'_>,
    dir: Object,
    name: &[u8],
    mode: CreateMode,
    settable: Settable,
) -> Result<Target, Failure> {
    let store = dir.export.store.clone();
    if !dir.entry.writable {
        // An existing file may still be opened for reading.
        if mode == CreateMode::Unchecked && settable.set.size.is_none() {
            let found = lookup(cx, dir, name).await;
            return found.map_err(|failure| match failure.status {
                Status::Noent => Status::Rofs.into(),
                _ => failure,
            });
        }
        return Err(Status::Rofs.into());
    }
    // An existing file is truncated only after the share check: size zero is
    // not passed to the store, as a new file is empty anyway.
    let wants_empty = settable.set.size == Some(0);
    let attrs =
        SetAttr { size: settable.set.size.filter(|size| *size != 0), ..settable.set.clone() };
    let created = match store.create_file(dir.who(), &dir.node, name, mode, &attrs).await {
        Ok(created) => created,
        Err(error) => return Err(dir_error(cx, &dir, error).await),
    };
    let change = created.dir.into();
    let object = Object { node: created.node.handle, ..dir };
    if !created.created && !matches!(mode, CreateMode::Exclusive(_)) {
        if let Some(status) = not_a_file(created.node.attr.kind, cx.minor) {
            return Err(status.into());
        }
        let mut target = existing(object, change);
        target.truncate = wants_empty;
        if wants_empty {
            target.attrs_set.set(SIZE);
        }
        return Ok(target);
    }
    let mut attrs_set = settable::apply_new_acl(cx, &object, &settable).await?;
    if matches!(mode, CreateMode::Exclusive(_)) {
        attrs_set.set(TIME_ACCESS);
        attrs_set.set(TIME_MODIFY);
    }
    Ok(Target {
        object,
        opened: created.open,
        created: created.created,
        change,
        attrs_set,
        // An ACL changes the mode.
        attr: settable.acl.is_none().then_some(created.node.attr),
        truncate: false,
    })
}
