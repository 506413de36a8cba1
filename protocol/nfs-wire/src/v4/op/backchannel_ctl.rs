//! BACKCHANNEL_CTL (RFC 8881 §18.33).

use super::create_session::CallbackSecurity;
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
