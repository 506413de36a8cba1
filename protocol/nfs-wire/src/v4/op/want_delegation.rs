//! WANT_DELEGATION, GET_DIR_DELEGATION and SET_SSV (RFC 8881 §18.49, §18.39,
//! §18.47): optional operations that are not supported.

use crate::v4::{Bitmap, NfsTime};
use zgate_xdr::{Decode, Decoder, Encode, Encoder, Opaque, XdrError, xdr_struct};

/// WANT_DELEGATION4args.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantArgs {
    /// OPEN4_SHARE_ACCESS_WANT_*.
    pub want: u32,
    /// deleg_claim4's discriminant.
    pub claim: u32,
    /// CLAIM_DELEG_PREV_FH and CLAIM_PREVIOUS carry more.
    pub previous: Option<u32>,
}

impl Encode for WantArgs {
    fn encode(&self, e: &mut Encoder) {
        e.u32(self.want);
        e.u32(self.claim);
        if let Some(kind) = self.previous {
            e.u32(kind);
        }
    }
}

impl Decode for WantArgs {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let (want, claim) = (d.u32()?, d.u32()?);
        let previous = match claim {
            1 => Some(d.u32()?),
            4 | 6 => None,
            _ => return Err(XdrError::BadValue),
        };
        Ok(Self { want, claim, previous })
    }
}

xdr_struct! {
    /// GET_DIR_DELEGATION4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct GetDirArgs {
        /// gdda_signal_deleg_avail.
        pub signal: bool,
        /// gdda_notification_types.
        pub notifications: Bitmap,
        /// gdda_child_attr_delay.
        pub child_delay: NfsTime,
        /// gdda_dir_attr_delay.
        pub dir_delay: NfsTime,
        /// gdda_child_attributes.
        pub child_attributes: Bitmap,
        /// gdda_dir_attributes.
        pub dir_attributes: Bitmap,
    }
}

xdr_struct! {
    /// GET_DIR_DELEGATION4res_non_fatal, unavailable.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct GetDirRes {
        /// GDD4_UNAVAIL is 1.
        pub status: u32,
        /// True if the server will tell the client when it becomes available.
        pub will_signal: bool,
    }
}

xdr_struct! {
    /// SET_SSV4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct SsvArgs {
        /// ssa_ssv.
        pub ssv: Opaque<1024>,
        /// ssa_digest.
        pub digest: Opaque<1024>,
    }
}
