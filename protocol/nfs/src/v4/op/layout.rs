//! The pNFS operations (RFC 8881 §18.40-§18.44, RFC 7862 §15.6-§15.7): no
//! file system here offers a layout type, so they answer as the RFCs want of
//! such a server. Arguments are decoded only as far as that needs; nothing in
//! a COMPOUND runs after a refusal.

use super::{Failure, Operation};
use crate::v4::cx::Cx;
use crate::v4::wire::{OpNum, Stateid, Status};
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError};

/// The bytes that follow the operation's number, unread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unread;

impl Encode for Unread {
    fn encode(&self, _: &mut Encoder) {}
}

impl Decode for Unread {
    fn decode(_: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Self)
    }
}

/// LAYOUTGET4args.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetArgs {
    /// loga_layout_type.
    pub layout_type: u32,
    /// loga_stateid.
    pub stateid: Stateid,
}

impl Encode for GetArgs {
    fn encode(&self, e: &mut Encoder) {
        e.u32(0);
        e.u32(self.layout_type);
        e.u32(1);
        for _ in 0..3 {
            e.u64(0);
        }
        self.stateid.encode(e);
        e.u32(0);
    }
}

impl Decode for GetArgs {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        bool::decode(d)?;
        let layout_type = d.u32()?;
        d.u32()?;
        d.take(24)?;
        let stateid = Decode::decode(d)?;
        d.u32()?;
        Ok(Self { layout_type, stateid })
    }
}

macro_rules! refused {
    ($($name:ident: $args:ty => $status:ident, $doc:literal;)*) => {$(
        #[doc = $doc]
        pub struct $name;
        impl Operation for $name {
            const NUM: OpNum = OpNum::$name;
            type Args = $args;
            type Res = ();
            async fn run(_: &mut Cx<'_>, _: $args) -> Result<(), Failure> {
                Err(Status::$status.into())
            }
        }
    )*};
}

refused! {
    Getdeviceinfo: Unread => Notsupp, "GETDEVICEINFO.";
    Getdevicelist: Unread => Notsupp, "GETDEVICELIST (withdrawn by RFC 8881).";
    Layoutcommit: Unread => Notsupp, "LAYOUTCOMMIT.";
    Layoutreturn: Unread => Notsupp, "LAYOUTRETURN.";
    Layouterror: Unread => Notsupp, "LAYOUTERROR.";
    Layoutstats: Unread => Notsupp, "LAYOUTSTATS.";
}

/// LAYOUTGET.
pub struct Layoutget;

impl Operation for Layoutget {
    const NUM: OpNum = OpNum::Layoutget;
    type Args = GetArgs;
    type Res = ();

    async fn run(cx: &mut Cx<'_>, _: GetArgs) -> Result<(), Failure> {
        cx.current()?;
        Err(Status::Layoutunavailable.into())
    }
}
