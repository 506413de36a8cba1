//! GETFH (RFC 8881 §18.8).

use super::Rule;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::op::Getfh;

impl Rule for Getfh {
    async fn run(cx: &mut Cx<'_>, (): ()) -> Result<Fh, Failure> {
        Ok(cx.current()?.handle().to_fh())
    }
}
