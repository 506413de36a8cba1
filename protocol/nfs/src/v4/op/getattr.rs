//! GETATTR (RFC 8881 §18.7).

use super::Rule;
use crate::v4::attrs::encode::encode_known;
use crate::v4::attrs::table::only_readable;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::op::Getattr;
use zgate_nfs_wire::v4::{Bitmap, Fattr, Status};

impl Rule for Getattr {
    async fn run(cx: &mut Cx<'_>, want: Bitmap) -> Result<Fattr, Failure> {
        let current = cx.current()?;
        if !only_readable(&want, cx.minor) {
            return Err(Status::Inval.into());
        }
        Ok(encode_known(cx, current, cx.looked_up, &want).await?)
    }
}
