//! RENEW (RFC 7530 §16.28), minor version 0 only.

use super::Rule;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use std::sync::atomic::Ordering;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::Renew;
use zgate_nfs_wire::v4::op::renew::Args;

impl Rule for Renew {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<(), Failure> {
        let state = &cx.server.state;
        let mut tables = state.lock();
        let client = state.minor_zero_client(&mut tables, args.clientid, cx.now.seconds())?;
        let path_down =
            client.callback.as_ref().is_none_or(|callback| !callback.up.load(Ordering::Acquire));
        if path_down && !client.delegations.is_empty() {
            return Err(Status::CbPathDown.into());
        }
        Ok(())
    }
}
