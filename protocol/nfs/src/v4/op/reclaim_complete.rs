//! RECLAIM_COMPLETE (RFC 8881 §18.51).

use super::{Failure, Operation};
use crate::v4::cx::Cx;
use crate::v4::wire::{OpNum, Status};
use zgate_xdr::xdr_struct;

xdr_struct! {
    /// RECLAIM_COMPLETE4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// rca_one_fs: only the current file handle's file system is done.
        pub one_fs: bool,
    }
}

/// The operation.
pub struct ReclaimComplete;

impl Operation for ReclaimComplete {
    const NUM: OpNum = OpNum::ReclaimComplete;
    type Args = Args;
    type Res = ();

    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<(), Failure> {
        let id = cx.session_client().ok_or(Status::OpNotInSession)?;
        if args.one_fs {
            // Only for a file system that moved here, which none does.
            cx.current()?;
            return Ok(());
        }
        let state = &cx.server.state;
        let mut tables = state.lock();
        let client = tables.clients.get_mut(&id).ok_or(Status::StaleClientid)?;
        if std::mem::replace(&mut client.reclaim_complete, true) {
            return Err(Status::CompleteAlready.into());
        }
        state.grace.completed(&client.name, cx.now.seconds());
        Ok(())
    }
}
