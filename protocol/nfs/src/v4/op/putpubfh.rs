//! PUTPUBFH (RFC 8881 §18.20): the public file handle is the root.

use super::{Failure, Operation};
use crate::v4::attrs::facts::root_place;
use crate::v4::cx::Cx;
use crate::v4::wire::OpNum;

/// The operation.
pub struct Putpubfh;

impl Operation for Putpubfh {
    const NUM: OpNum = OpNum::Putpubfh;
    type Args = ();
    type Res = ();

    async fn run(cx: &mut Cx<'_>, (): ()) -> Result<(), Failure> {
        cx.current = Some(cx.enter(root_place(&cx.namespace))?);
        cx.current_stateid = None;
        Ok(())
    }
}
