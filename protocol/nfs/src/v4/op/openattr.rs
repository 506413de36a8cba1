//! OPENATTR (RFC 8881 §18.17): named attributes are not supported; extended
//! attributes (RFC 8276) are.

use super::Rule;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::Openattr;

impl Rule for Openattr {
    async fn run(cx: &mut Cx<'_>, _: bool) -> Result<(), Failure> {
        cx.current()?;
        Err(Status::Notsupp.into())
    }
}
