//! COPY (RFC 7862 §15.2) within the server.

use crate::v4::{StableHow, Stateid, Verifier};
use zgate_xdr::{Decode, Decoder, Encode, Encoder, Opaque, XdrError, xdr_struct};

/// netloc4, of which only the presence matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetLocation {
    /// NL4_NAME or NL4_URL.
    Text(Opaque<1024>),
    /// NL4_NETADDR.
    Address(Opaque<128>, Opaque<128>),
}

impl Encode for NetLocation {
    fn encode(&self, e: &mut Encoder) {
        match self {
            Self::Text(text) => {
                e.u32(1);
                text.encode(e);
            }
            Self::Address(netid, address) => {
                e.u32(3);
                netid.encode(e);
                address.encode(e);
            }
        }
    }
}

impl Decode for NetLocation {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        match d.u32()? {
            1 | 2 => Decode::decode(d).map(Self::Text),
            3 => Ok(Self::Address(Decode::decode(d)?, Decode::decode(d)?)),
            _ => Err(XdrError::BadValue),
        }
    }
}

/// COPY4args.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args {
    /// Stateid for reading the saved file.
    pub from: Stateid,
    /// Stateid for writing the current file.
    pub to: Stateid,
    /// First byte to copy.
    pub from_offset: u64,
    /// Target offset.
    pub to_offset: u64,
    /// Bytes; 0: to the source's end.
    pub count: u64,
    /// The data must be copied in order.
    pub consecutive: bool,
    /// The copy must be complete before the reply.
    pub synchronous: bool,
    /// Other servers; empty means this one.
    pub servers: Vec<NetLocation>,
}

impl Encode for Args {
    fn encode(&self, e: &mut Encoder) {
        self.from.encode(e);
        self.to.encode(e);
        e.u64(self.from_offset);
        e.u64(self.to_offset);
        e.u64(self.count);
        self.consecutive.encode(e);
        self.synchronous.encode(e);
        e.array(&self.servers);
    }
}

impl Decode for Args {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Self {
            from: Decode::decode(d)?,
            to: Decode::decode(d)?,
            from_offset: d.u64()?,
            to_offset: d.u64()?,
            count: d.u64()?,
            consecutive: Decode::decode(d)?,
            synchronous: Decode::decode(d)?,
            servers: d.array(16)?,
        })
    }
}

xdr_struct! {
    /// COPY4resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Res {
        /// Stateid of a copy that continues; an XDR array of at most one.
        pub callback: Option<Stateid>,
        /// Bytes copied so far.
        pub count: u64,
        /// Stability of the data.
        pub committed: StableHow,
        /// Write verifier.
        pub verifier: Verifier,
        /// The data is copied in order.
        pub consecutive: bool,
        /// The copy is complete.
        pub synchronous: bool,
    }
}
