//! NVERIFY (RFC 8881 §18.15).

use super::{Failure, Operation};
use crate::v4::cx::Cx;
use crate::v4::wire::{Fattr, OpNum, Status};

/// The operation.
pub struct Nverify;

impl Operation for Nverify {
    const NUM: OpNum = OpNum::Nverify;
    type Args = Fattr;
    type Res = ();

    async fn run(cx: &mut Cx<'_>, args: Fattr) -> Result<(), Failure> {
        if super::verify::agrees(cx, &args).await? { Err(Status::Same.into()) } else { Ok(()) }
    }
}
