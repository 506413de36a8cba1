//! GETFH (RFC 8881 §18.8).

use super::{Failure, Rule};
use crate::v4::cx::Cx;
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::op::Getfh;

impl Rule for Getfh {
    async fn run(cx: &mut Cx<'_>, (): ()) -> Result<Fh, Failure> {
        Ok(cx.current()?.place().to_fh())
    }
}
