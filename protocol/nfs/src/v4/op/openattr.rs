//! OPENATTR (RFC 8881 §18.17): named attributes are not offered; extended
//! attributes (RFC 8276) are.

use super::{Failure, Operation};
use crate::v4::cx::Cx;
use crate::v4::wire::{OpNum, Status};

/// The operation; its argument says whether to create the directory.
pub struct Openattr;

impl Operation for Openattr {
    const NUM: OpNum = OpNum::Openattr;
    type Args = bool;
    type Res = ();

    async fn run(cx: &mut Cx<'_>, _: bool) -> Result<(), Failure> {
        cx.current()?;
        Err(Status::Notsupp.into())
    }
}
