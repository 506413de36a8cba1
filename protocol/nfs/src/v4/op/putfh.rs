//! PUTFH (RFC 8881 §18.19).

use super::{Failure, Operation};
use crate::namespace::{Fh, Place};
use crate::v4::cx::Cx;
use crate::v4::wire::{OpNum, Status};

/// The operation.
pub struct Putfh;

impl Operation for Putfh {
    const NUM: OpNum = OpNum::Putfh;
    type Args = Fh;
    type Res = ();

    async fn run(cx: &mut Cx<'_>, fh: Fh) -> Result<(), Failure> {
        // Whether the object still exists is found by the operation that uses
        // it: looking here as well would double the work of every READ.
        let place = Place::parse(&fh.0).ok_or(Status::Badhandle)?;
        cx.current = Some(cx.enter(place)?);
        cx.current_stateid = None;
        Ok(())
    }
}
