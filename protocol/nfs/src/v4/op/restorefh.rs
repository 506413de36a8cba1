//! RESTOREFH (RFC 8881 §18.27).

use super::{Failure, Operation};
use crate::v4::cx::Cx;
use crate::v4::wire::{OpNum, Status};

/// The operation.
pub struct Restorefh;

impl Operation for Restorefh {
    const NUM: OpNum = OpNum::Restorefh;
    type Args = ();
    type Res = ();

    async fn run(cx: &mut Cx<'_>, (): ()) -> Result<(), Failure> {
        let none = if cx.minor == 0 { Status::Restorefh } else { Status::Nofilehandle };
        cx.current = Some(cx.saved.clone().ok_or(none)?);
        cx.current_stateid = cx.saved_stateid;
        Ok(())
    }
}
