//! GETATTR (RFC 8881 §18.7).

use super::{Failure, Operation};
use crate::v4::attrs::{encode_attrs, table::only_readable};
use crate::v4::cx::Cx;
use crate::v4::wire::{Bitmap, Fattr, OpNum, Status};

/// The operation.
pub struct Getattr;

impl Operation for Getattr {
    const NUM: OpNum = OpNum::Getattr;
    type Args = Bitmap;
    type Res = Fattr;

    async fn run(cx: &mut Cx<'_>, want: Bitmap) -> Result<Fattr, Failure> {
        let current = cx.current()?;
        if !only_readable(&want, cx.minor) {
            return Err(Status::Inval.into());
        }
        Ok(encode_attrs(cx, current, &want).await?)
    }
}
