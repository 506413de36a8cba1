//! LISTXATTRS (RFC 8276 §8.4.3).

use super::{Failure, Operation};
use crate::v4::cx::Cx;
use crate::v4::wire::{Component, OpNum, Status};
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError, xdr_struct};

xdr_struct! {
    /// LISTXATTRS4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// Where to go on; 0: the beginning.
        pub cookie: u64,
        /// Most bytes of the result.
        pub maxcount: u32,
    }
}

/// LISTXATTRS4resok.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Res {
    /// Go on from here.
    pub cookie: u64,
    /// Names without namespace.
    pub names: Vec<Component>,
    /// These are the last.
    pub eof: bool,
}

impl Encode for Res {
    fn encode(&self, e: &mut Encoder) {
        e.u64(self.cookie);
        e.array(&self.names);
        self.eof.encode(e);
    }
}

impl Decode for Res {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Self { cookie: d.u64()?, names: d.array(65_536)?, eof: Decode::decode(d)? })
    }
}

/// The operation. A cookie is the number of names already told.
pub struct Listxattrs;

impl Operation for Listxattrs {
    const NUM: OpNum = OpNum::Listxattrs;
    type Args = Args;
    type Res = Res;

    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        let object = cx.object(Status::Notsupp)?;
        let all = object.export.store.list_xattrs(object.who(), &object.node).await?;
        let start = usize::try_from(args.cookie).map_err(|_| Status::BadCookie)?;
        if start > all.len() {
            return Err(Status::BadCookie.into());
        }
        // cookie, count of names, eof.
        let mut room = (args.maxcount as usize)
            .min(cx.reply_room.saturating_sub(16))
            .checked_sub(8 + 4 + 4)
            .ok_or(Status::Toosmall)?;
        let mut names = Vec::new();
        for name in &all[start..] {
            let bytes = 4 + name.len().next_multiple_of(4);
            if bytes > room {
                break;
            }
            room -= bytes;
            names.push(Component::from(name.as_slice()));
        }
        let told = start + names.len();
        if names.is_empty() && told < all.len() {
            return Err(Status::Toosmall.into());
        }
        Ok(Res { cookie: told as u64, names, eof: told == all.len() })
    }
}
