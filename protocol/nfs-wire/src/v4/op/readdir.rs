//! READDIR (RFC 8881 §18.23).

use crate::v4::{Bitmap, Component, Fattr, Verifier};
use bytes::Bytes;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError, xdr_struct};

xdr_struct! {
    /// READDIR4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// Position to continue at; 0: the beginning.
        pub cookie: u64,
        /// Verifier received with the cookie.
        pub verifier: Verifier,
        /// Most bytes of names and cookies; a hint.
        pub dircount: u32,
        /// Most bytes of the result.
        pub maxcount: u32,
        /// Requested attributes of each entry.
        pub want: Bitmap,
    }
}

/// entry4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Position after it.
    pub cookie: u64,
    /// Its name.
    pub name: Component,
    /// Its attributes.
    pub attrs: Fattr,
}

/// READDIR4resok.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Res {
    /// cookieverf.
    pub verifier: Verifier,
    /// Entries.
    pub entries: Vec<Entry>,
    /// Further entries in wire format, as a server answers them. Empty after
    /// decoding.
    pub encoded: Bytes,
    /// True if these are the last entries.
    pub eof: bool,
}

impl Encode for Entry {
    fn encode(&self, e: &mut Encoder) {
        e.u32(1);
        e.u64(self.cookie);
        self.name.encode(e);
        self.attrs.encode(e);
    }
}

impl Encode for Res {
    fn encode(&self, e: &mut Encoder) {
        self.verifier.encode(e);
        for entry in &self.entries {
            entry.encode(e);
        }
        e.shared(&self.encoded);
        e.u32(0);
        self.eof.encode(e);
    }
}

impl Decode for Res {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let verifier = Decode::decode(d)?;
        let mut entries = Vec::new();
        while bool::decode(d)? {
            let cookie = d.u64()?;
            entries.push(Entry { cookie, name: Decode::decode(d)?, attrs: Decode::decode(d)? });
        }
        Ok(Self { verifier, entries, encoded: Bytes::new(), eof: Decode::decode(d)? })
    }
}
