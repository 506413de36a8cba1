//! NVERIFY (RFC 8881 §18.15).

use super::Rule;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::op::Nverify;
use zgate_nfs_wire::v4::{Fattr, Status};

impl Rule for Nverify {
    async fn run(cx: &mut Cx<'_>, args: Fattr) -> Result<(), Failure> {
        if super::verify::agrees(cx, &args).await? { Err(Status::Same.into()) } else { Ok(()) }
    }
}
