//! READDIR (RFC 1813 §3.3.16).

use crate::v3::{Attributes, Fh3, Name3};
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError};

zgate_xdr::xdr_struct! {
    /// READDIR3args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// The directory.
        pub dir: Fh3,
        /// Position to continue at; 0: the start.
        pub cookie: u64,
        /// Verifier received with the cookie.
        pub verifier: [u8; 8],
        /// Most bytes of the result.
        pub count: u32,
    }
}

zgate_xdr::xdr_struct! {
    /// entry3.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Entry {
        /// Number of the object.
        pub fileid: u64,
        /// Its name.
        pub name: Name3,
        /// Position after it.
        pub cookie: u64,
    }
}

/// dirlist3 and dirlistplus3: a linked list, and eof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirList<T> {
    /// The entries.
    pub entries: Vec<T>,
    /// True if they reach the end.
    pub eof: bool,
}

impl<T: Encode> Encode for DirList<T> {
    fn encode(&self, e: &mut Encoder) {
        for entry in &self.entries {
            true.encode(e);
            entry.encode(e);
        }
        false.encode(e);
        self.eof.encode(e);
    }
}

impl<T: Decode> Decode for DirList<T> {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let mut entries = Vec::new();
        while bool::decode(d)? {
            entries.push(T::decode(d)?);
        }
        Ok(Self { entries, eof: bool::decode(d)? })
    }
}

zgate_xdr::xdr_struct! {
    /// READDIR3resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Page {
        /// Attributes of the directory.
        pub attributes: Option<Attributes>,
        /// Always zero: cookies stay valid as long as the directory exists.
        pub verifier: [u8; 8],
        /// The entries.
        pub list: DirList<Entry>,
    }
}
