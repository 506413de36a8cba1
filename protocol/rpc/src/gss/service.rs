//! Services of RPCSEC_GSS (RFC 2203 §5.3.2).

use zgate_xdr::{Decode, Decoder, XdrError};

/// Protection of arguments and results, the weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Service {
    /// Only the header is signed.
    None = 1,
    /// Arguments and results are signed.
    Integrity = 2,
    /// They are encrypted.
    Privacy = 3,
}

impl Service {
    /// All of them, the weakest first.
    pub const ALL: [Self; 3] = [Self::None, Self::Integrity, Self::Privacy];
}

impl Decode for Service {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        match d.u32()? {
            1 => Ok(Self::None),
            2 => Ok(Self::Integrity),
            3 => Ok(Self::Privacy),
            _ => Err(XdrError::BadValue),
        }
    }
}
