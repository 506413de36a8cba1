//! BACKCHANNEL_CTL (RFC 8881 §18.33).

use super::Rule;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use crate::v4::tables::session::CallbackHeader;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::BackchannelCtl;
use zgate_nfs_wire::v4::op::backchannel_ctl::Args;
use zgate_nfs_wire::v4::op::create_session::CallbackSecurity;

impl Rule for BackchannelCtl {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<(), Failure> {
        let slot = cx.slot.as_ref().ok_or(Status::OpNotInSession)?;
        let session = &slot.session;
        let credential = match CallbackSecurity::choose(&args.security) {
            Some(credential) => credential,
            // No security parameters given: they stay unchanged.
            None if args.security.is_empty() => match session.callback() {
                Some(header) => header.credential,
                None => return Ok(()),
            },
            // Only GSS handles, which do not exist in this server (RFC 8881
            // §18.33.3).
            None => return Err(Status::Noent.into()),
        };
        let header = CallbackHeader { minor: cx.minor, program: args.program, credential };
        session.set_callback(header);
        Ok(())
    }
}
