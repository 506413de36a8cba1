//! VERIFY (RFC 8881 §18.31).

use super::{Failure, Operation};
use crate::v4::attrs::encode_attrs;
use crate::v4::attrs::number::RDATTR_ERROR;
use crate::v4::attrs::table::{Use, usage};
use crate::v4::cx::Cx;
use crate::v4::wire::{Fattr, OpNum, Status};

/// The operation.
pub struct Verify;

impl Operation for Verify {
    const NUM: OpNum = OpNum::Verify;
    type Args = Fattr;
    type Res = ();

    async fn run(cx: &mut Cx<'_>, args: Fattr) -> Result<(), Failure> {
        if agrees(cx, &args).await? { Ok(()) } else { Err(Status::NotSame.into()) }
    }
}

/// Whether the object's attributes are the given ones.
///
/// # Errors
/// [`Status::Inval`] for attributes that can only be set and for
/// rdattr_error, [`Status::Attrnotsupp`], the store's.
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
