//! SETXATTR (RFC 8276 §8.4.2).

use super::getxattr::check_name;
use super::{Failure, Operation};
use crate::limits::MAX_XATTR_BYTES;
use crate::v4::cx::Cx;
use crate::v4::wire::{ChangeInfo, Component, OpNum, Status};
use zgate_store::file_store::XattrSet;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, Opaque, XdrError, xdr_enum};

xdr_enum! {
    /// setxattr_option4.
    pub enum Option4 {
        /// SETXATTR4_EITHER.
        Either = 0,
        /// SETXATTR4_CREATE.
        Create = 1,
        /// SETXATTR4_REPLACE.
        Replace = 2,
    }
}

/// SETXATTR4args. A value above the limit is kept as its length only, so that
/// it gets NFS4ERR_XATTR2BIG and not a refusal to decode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args {
    /// Create, replace or either.
    pub option: Option4,
    /// Name without namespace.
    pub name: Component,
    /// Value; `None`: too large.
    pub value: Option<Opaque<MAX_XATTR_BYTES>>,
}

impl Encode for Args {
    fn encode(&self, e: &mut Encoder) {
        self.option.encode(e);
        self.name.encode(e);
        e.opaque(self.value.as_ref().map_or(&[], |value| &value.0));
    }
}

impl Decode for Args {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let (option, name) = (Decode::decode(d)?, Decode::decode(d)?);
        let value = d.opaque(crate::limits::MAX_TRANSFER_BYTES)?;
        let fits = value.len() <= MAX_XATTR_BYTES;
        Ok(Self { option, name, value: fits.then(|| Opaque(value.to_vec())) })
    }
}

/// The operation.
pub struct Setxattr;

impl Operation for Setxattr {
    const NUM: OpNum = OpNum::Setxattr;
    type Args = Args;
    type Res = ChangeInfo;

    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<ChangeInfo, Failure> {
        let object = cx.writable_object()?;
        check_name(&args.name.0)?;
        let value = args.value.ok_or(Status::Xattr2big)?;
        let change = cx.server.state.recall_for_change(cx, object.file_key())?;
        let how = match args.option {
            Option4::Either => XattrSet::Either,
            Option4::Create => XattrSet::Create,
            Option4::Replace => XattrSet::Replace,
        };
        let store = &object.export.store;
        let set = store.set_xattr(object.who(), &object.node, &args.name.0, &value.0, how);
        Ok(change.in_store(set).await?.into())
    }
}
