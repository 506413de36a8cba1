//! READDIRPLUS (RFC 1813 §3.3.17).

use super::readdir::DirList;
use crate::v3::{Attributes, Fh3, Name3};

zgate_xdr::xdr_struct! {
    /// READDIRPLUS3args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// The directory.
        pub dir: Fh3,
        /// Position to continue at; 0: the start.
        pub cookie: u64,
        /// Verifier received with the cookie.
        pub verifier: [u8; 8],
        /// Most bytes of numbers, names and cookies.
        pub dir_count: u32,
        /// Most bytes of the result.
        pub max_count: u32,
    }
}

zgate_xdr::xdr_struct! {
    /// entryplus3.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Entry {
        /// Number of the object.
        pub fileid: u64,
        /// Its name.
        pub name: Name3,
        /// Position after it.
        pub cookie: u64,
        /// Its attributes.
        pub attributes: Option<Attributes>,
        /// Its handle.
        pub fh: Option<Fh3>,
    }
}

zgate_xdr::xdr_struct! {
    /// READDIRPLUS3resok.
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
