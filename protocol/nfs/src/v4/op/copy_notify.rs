//! COPY_NOTIFY (RFC 7862 §15.3): copies between servers are not supported.

use super::Rule;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::CopyNotify;
use zgate_nfs_wire::v4::op::copy_notify::Args;

impl Rule for CopyNotify {
    async fn run(cx: &mut Cx<'_>, _: Args) -> Result<(), Failure> {
        cx.current()?;
        Err(Status::Notsupp.into())
    }
}
