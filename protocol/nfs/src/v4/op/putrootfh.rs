//! PUTROOTFH (RFC 8881 §18.21).

use super::Immediate;
use crate::v4::attrs::values::root_handle;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::Putrootfh;

impl Immediate for Putrootfh {
    fn run(cx: &mut Cx<'_>, (): ()) -> Result<(), Failure> {
        put_root(cx)
    }
}

/// Makes the root of the whole tree the current object.
///
/// # Errors
/// [`Status::Delay`] for an export whose tree cannot be opened now, those of [`Cx::put`].
pub(super) fn put_root(cx: &mut Cx<'_>) -> Result<(), Failure> {
    // The directory that would stand in for it is another object: a client
    // that mounted it would never see the export.
    let away = cx.namespace.root_away(&cx.call.peer);
    if away.is_some_and(|export| export.versions.has_minor(cx.minor)) {
        return Err(Status::Delay.into());
    }
    let root = root_handle(&cx.namespace);
    cx.put(root)?;
    Ok(())
}
