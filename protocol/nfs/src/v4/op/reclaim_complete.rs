//! RECLAIM_COMPLETE (RFC 8881 §18.51).

use super::Rule;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::ReclaimComplete;
use zgate_nfs_wire::v4::op::reclaim_complete::Args;

impl Rule for ReclaimComplete {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<(), Failure> {
        let id = cx.session_client().ok_or(Status::OpNotInSession)?;
        if args.one_fs {
            // Only for a file system that was migrated to this server; there is
            // none.
            cx.current()?;
            return Ok(());
        }
        let state = &cx.server.state;
        state.record_again(id).await?;
        state.complete_reclaims(id, cx.now.seconds())?;
        Ok(())
    }
}
