//! OFFLOAD_STATUS (RFC 7862 §15.9).

use super::Rule;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::OffloadStatus;
use zgate_nfs_wire::v4::op::offload_status::{Args, Res};

impl Rule for OffloadStatus {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        cx.current()?;
        let client = cx.session_client().ok_or(Status::OpNotInSession)?;
        let (count, complete) = cx.server.state.copies.status(client, args.stateid)?;
        Ok(Res { count, complete })
    }
}
