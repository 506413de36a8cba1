//! BACKCHANNEL_CTL (RFC 8881 §18.33).

use super::create_session::CallbackSecurity;
use super::{Failure, Operation};
use crate::v4::cx::Cx;
use crate::v4::state::session::CallbackHeader;
use crate::v4::wire::{OpNum, Status};
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError};

/// BACKCHANNEL_CTL4args.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args {
    /// bca_cb_program.
    pub program: u32,
    /// bca_sec_parms.
    pub security: Vec<CallbackSecurity>,
}

impl Encode for Args {
    fn encode(&self, e: &mut Encoder) {
        e.u32(self.program);
        e.array(&self.security);
    }
}

impl Decode for Args {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Self { program: d.u32()?, security: d.array(16)? })
    }
}

/// The operation.
pub struct BackchannelCtl;

impl Operation for BackchannelCtl {
    const NUM: OpNum = OpNum::BackchannelCtl;
    type Args = Args;
    type Res = ();

    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<(), Failure> {
        let slot = cx.slot.as_ref().ok_or(Status::OpNotInSession)?;
        let credential = match CallbackSecurity::choose(&args.security) {
            Some(credential) => credential,
            // Nothing was said about security: it stays as it is.
            None if args.security.is_empty() => slot.session.callback().credential,
            // Only GSS handles, none of which exists here (RFC 8881 §18.33.3).
            None => return Err(Status::Noent.into()),
        };
        slot.session.set_callback(CallbackHeader {
            minor: cx.minor,
            program: args.program,
            credential,
        });
        Ok(())
    }
}
