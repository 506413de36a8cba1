//! VERIFY (RFC 8881 §18.31).

use super::Rule;
use crate::v4::attrs::encode_attrs;
use crate::v4::attrs::table::{Use, usage};
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::attr::RDATTR_ERROR;
use zgate_nfs_wire::v4::op::Verify;
use zgate_nfs_wire::v4::{Fattr, Status};

impl Rule for Verify {
    async fn run(cx: &mut Cx<'_>, args: Fattr) -> Result<(), Failure> {
        if agrees(cx, &args).await? { Ok(()) } else { Err(Status::NotSame.into()) }
    }
}

/// True if the object's attributes equal the given ones.
///
/// # Errors
/// [`Status::Inval`] for attributes that can only be set and for rdattr_error,
/// [`Status::Attrnotsupp`], errors of the store.
pub async fn agrees(cx: &Cx<'_>, args: &Fattr) -> Result<bool, Status> {
    let current = cx.current()?;
    for attribute in args.mask.iter() {
        match usage(attribute, cx.minor) {
            None => return Err(Status::Attrnotsupp),
            Some(Use::Write) => return Err(Status::Inval),
            Some(_) if attribute == RDATTR_ERROR => return Err(Status::Inval),
            Some(_) => {}
        }
    }
    let now = encode_attrs(cx, current, &args.mask).await?;
    if now.mask != args.mask {
        return Err(Status::Attrnotsupp);
    }
    Ok(now.values == args.values)
}
