//! SAVEFH (RFC 8881 §18.28).

use super::{Failure, Operation};
use crate::v4::cx::Cx;
use crate::v4::wire::OpNum;

/// The operation.
pub struct Savefh;

impl Operation for Savefh {
    const NUM: OpNum = OpNum::Savefh;
    type Args = ();
    type Res = ();

    async fn run(cx: &mut Cx<'_>, (): ()) -> Result<(), Failure> {
        cx.saved = Some(cx.current()?.clone());
        cx.saved_stateid = cx.current_stateid;
        Ok(())
    }
}
