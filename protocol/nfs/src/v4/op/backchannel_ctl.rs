//! BACKCHANNEL_CTL (RFC 8881 §18.33).

use super::create_session::CallbackSecurity;
use super::{Failure, Operation};
use crate::v4::cx::Cx;
use crate::v4::wire::{OpNum, Status};
use std::sync::atomic::Ordering;
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
        if !args.security.is_empty()
            && args.security.iter().all(|s| matches!(s, CallbackSecurity::Gss))
        {
            return Err(Status::Noent.into());
        }
        slot.session.callback_program.store(args.program, Ordering::Relaxed);
        Ok(())
    }
}
