//! GETFH (RFC 8881 §18.8).

use super::{Failure, Operation};
use crate::namespace::Fh;
use crate::v4::cx::Cx;
use crate::v4::wire::OpNum;

/// The operation.
pub struct Getfh;

impl Operation for Getfh {
    const NUM: OpNum = OpNum::Getfh;
    type Args = ();
    type Res = Fh;

    async fn run(cx: &mut Cx<'_>, (): ()) -> Result<Fh, Failure> {
        Ok(cx.current()?.place().to_fh())
    }
}
