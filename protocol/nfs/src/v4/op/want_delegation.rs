//! WANT_DELEGATION, GET_DIR_DELEGATION and SET_SSV (RFC 8881 §18.49, §18.39,
//! §18.47): optional operations that are not supported.

use super::Rule;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::want_delegation::{GetDirArgs, GetDirRes, SsvArgs, WantArgs};
use zgate_nfs_wire::v4::op::{GetDirDelegation, SetSsv, WantDelegation};
use zgate_xdr::Opaque;

impl Rule for WantDelegation {
    async fn run(_: &mut Cx<'_>, _: WantArgs) -> Result<(), Failure> {
        Err(Status::Notsupp.into())
    }
}

impl Rule for GetDirDelegation {
    async fn run(cx: &mut Cx<'_>, _: GetDirArgs) -> Result<GetDirRes, Failure> {
        cx.current()?;
        Ok(GetDirRes { status: 1, will_signal: false })
    }
}

impl Rule for SetSsv {
    async fn run(_: &mut Cx<'_>, _: SsvArgs) -> Result<Opaque<1024>, Failure> {
        // RFC 8881 §18.47.3: not allowed without SP4_SSV protection.
        Err(Status::Inval.into())
    }
}
