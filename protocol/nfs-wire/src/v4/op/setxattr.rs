//! SETXATTR (RFC 8276 §8.4.2).

use crate::limits::MAX_XATTR_BYTES;
use crate::v4::Component;
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

/// SETXATTR4args. Of a value above the limit only the length is kept, so that
/// it gets NFS4ERR_XATTR2BIG instead of a decoding error.
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
