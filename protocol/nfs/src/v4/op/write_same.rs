//! WRITE_SAME (RFC 7862 §15.12): optional, not supported.

use super::Rule;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::WriteSame;
use zgate_nfs_wire::v4::op::write_same::Args;

impl Rule for WriteSame {
    async fn run(cx: &mut Cx<'_>, _: Args) -> Result<(), Failure> {
        cx.current()?;
        Err(Status::Notsupp.into())
    }
}
