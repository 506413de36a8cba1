//! OFFLOAD_CANCEL (RFC 7862 §15.8).

use super::Rule;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::OffloadCancel;
use zgate_nfs_wire::v4::op::offload_cancel::Args;

impl Rule for OffloadCancel {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<(), Failure> {
        cx.current()?;
        let client = cx.session_client().ok_or(Status::OpNotInSession)?;
        let state = &cx.server.state;
        Ok(state.copies.cancel(&*state.runtime, client, args.stateid).await?)
    }
}
