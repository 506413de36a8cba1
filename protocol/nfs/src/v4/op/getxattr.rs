//! GETXATTR (RFC 8276 §8.4.1).

use super::Rule;
use crate::limits::MAX_XATTR_BYTES;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::op::Getxattr;
use zgate_nfs_wire::v4::{Component, Status};
use zgate_xdr::Opaque;

/// Refuses names that no attribute can have.
///
/// # Errors
/// [`Status::Inval`], [`Status::Nametoolong`].
pub(super) fn check_name(name: &[u8]) -> Result<(), Status> {
    if name.is_empty() || name.contains(&0) || std::str::from_utf8(name).is_err() {
        return Err(Status::Inval);
    }
    if name.len() > crate::limits::MAX_XATTR_NAME_BYTES {
        return Err(Status::Nametoolong);
    }
    Ok(())
}

impl Rule for Getxattr {
    async fn run(cx: &mut Cx<'_>, name: Component) -> Result<Opaque<MAX_XATTR_BYTES>, Failure> {
        let object = cx.object(Status::Noxattr)?;
        check_name(&name.0)?;
        let value = object.export.store.get_xattr(object.who(), &object.node, &name.0).await?;
        if value.len() + 16 > cx.reply_room {
            return Err(cx.reply_limit().1.into());
        }
        Ok(Opaque(value))
    }
}
