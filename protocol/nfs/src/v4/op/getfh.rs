//! GETFH (RFC 8881 §18.8).

use super::Immediate;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::op::Getfh;

impl Immediate for Getfh {
    fn run(cx: &mut Cx<'_>, (): ()) -> Result<Fh, Failure> {
        Ok(cx.current()?.handle().to_fh())
    }
}
