//! DELEGPURGE (RFC 8881 §18.5): delegations do not outlive their client in this
//! server, so there is nothing to purge.

use super::Rule;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::Delegpurge;
use zgate_nfs_wire::v4::op::delegpurge::Args;

impl Rule for Delegpurge {
    async fn run(_: &mut Cx<'_>, _: Args) -> Result<(), Failure> {
        // RFC 8881 §18.5.3: required of a server without CLAIM_DELEGATE_PREV.
        Err(Status::Notsupp.into())
    }
}
