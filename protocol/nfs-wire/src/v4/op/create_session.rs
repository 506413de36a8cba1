//! CREATE_SESSION (RFC 8881 §18.36): confirms a client, creates a session.

use crate::v4::{ClientId, SessionId};
use zgate_rpc::Credential;
use zgate_rpc::auth::OpaqueAuth;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError, xdr_struct};

/// CREATE_SESSION4_FLAG_PERSIST.
pub const PERSIST: u32 = 1;
/// CREATE_SESSION4_FLAG_CONN_BACK_CHAN.
pub const BACK_CHANNEL: u32 = 2;
/// CREATE_SESSION4_FLAG_CONN_RDMA.
pub const RDMA: u32 = 4;

/// channel_attrs4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelAttrs {
    /// ca_headerpadsize.
    pub header_pad_bytes: u32,
    /// ca_maxrequestsize.
    pub max_request_bytes: u32,
    /// ca_maxresponsesize.
    pub max_response_bytes: u32,
    /// ca_maxresponsesize_cached.
    pub max_cached_bytes: u32,
    /// ca_maxoperations.
    pub max_ops: u32,
    /// ca_maxrequests.
    pub slots: u32,
}

impl Encode for ChannelAttrs {
    fn encode(&self, e: &mut Encoder) {
        for word in [
            self.header_pad_bytes,
            self.max_request_bytes,
            self.max_response_bytes,
            self.max_cached_bytes,
            self.max_ops,
            self.slots,
            0,
        ] {
            e.u32(word);
        }
    }
}

impl Decode for ChannelAttrs {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let attrs = Self {
            header_pad_bytes: d.u32()?,
            max_request_bytes: d.u32()?,
            max_response_bytes: d.u32()?,
            max_cached_bytes: d.u32()?,
            max_ops: d.u32()?,
            slots: d.u32()?,
        };
        // ca_rdma_ird<1>.
        let _: Vec<u32> = d.array(1)?;
        Ok(attrs)
    }
}

/// callback_sec_parms4; flavours usable without GSS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallbackSecurity {
    /// AUTH_NONE.
    None,
    /// AUTH_SYS with its identity.
    Sys(zgate_rpc::AuthSys),
    /// RPCSEC_GSS: cannot be used.
    Gss,
}

impl CallbackSecurity {
    /// The first usable flavour (RFC 8881 §18.36.3: any of the offered ones may
    /// be chosen).
    #[must_use]
    pub fn choose(offered: &[Self]) -> Option<OpaqueAuth> {
        offered.iter().find_map(|security| match security {
            Self::None => Some(OpaqueAuth::none()),
            Self::Sys(sys) => Some(Credential::Sys(sys.clone()).to_opaque()),
            Self::Gss => None,
        })
    }
}

impl Encode for CallbackSecurity {
    fn encode(&self, e: &mut Encoder) {
        match self {
            Self::None => e.u32(0),
            Self::Gss => {
                // rpc_gss_svc_none, and handles of no bytes.
                e.u32(6);
                e.u32(1);
                e.opaque(&[]);
                e.opaque(&[]);
            }
            Self::Sys(sys) => {
                e.u32(1);
                sys.encode(e);
            }
        }
    }
}

impl Decode for CallbackSecurity {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        match d.u32()? {
            0 => Ok(Self::None),
            1 => Decode::decode(d).map(Self::Sys),
            6 => {
                d.u32()?;
                d.opaque(1024)?;
                d.opaque(1024)?;
                Ok(Self::Gss)
            }
            _ => Err(XdrError::BadValue),
        }
    }
}

/// CREATE_SESSION4args.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args {
    /// csa_clientid.
    pub clientid: ClientId,
    /// csa_sequence.
    pub sequence: u32,
    /// csa_flags.
    pub flags: u32,
    /// csa_fore_chan_attrs.
    pub fore: ChannelAttrs,
    /// csa_back_chan_attrs.
    pub back: ChannelAttrs,
    /// csa_cb_program.
    pub callback_program: u32,
    /// csa_sec_parms.
    pub security: Vec<CallbackSecurity>,
}

impl Encode for Args {
    fn encode(&self, e: &mut Encoder) {
        self.clientid.encode(e);
        e.u32(self.sequence);
        e.u32(self.flags);
        self.fore.encode(e);
        self.back.encode(e);
        e.u32(self.callback_program);
        e.array(&self.security);
    }
}

impl Decode for Args {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Self {
            clientid: Decode::decode(d)?,
            sequence: d.u32()?,
            flags: d.u32()?,
            fore: Decode::decode(d)?,
            back: Decode::decode(d)?,
            callback_program: d.u32()?,
            security: d.array(16)?,
        })
    }
}

xdr_struct! {
    /// CREATE_SESSION4resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Res {
        /// csr_sessionid.
        pub session: SessionId,
        /// csr_sequence.
        pub sequence: u32,
        /// csr_flags.
        pub flags: u32,
        /// csr_fore_chan_attrs.
        pub fore: ChannelAttrs,
        /// csr_back_chan_attrs.
        pub back: ChannelAttrs,
    }
}
