//! PUTPUBFH (RFC 8881 §18.20): the public file handle is the root.

use super::Immediate;
use super::putrootfh::put_root;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::op::Putpubfh;

impl Immediate for Putpubfh {
    fn run(cx: &mut Cx<'_>, (): ()) -> Result<(), Failure> {
        put_root(cx)
    }
}
