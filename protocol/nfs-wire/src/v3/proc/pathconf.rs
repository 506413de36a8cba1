//! PATHCONF (RFC 1813 §3.3.20).

use crate::v3::Attributes;

zgate_xdr::xdr_struct! {
    /// PATHCONF3resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Attributes of the object.
        pub attributes: Option<Attributes>,
        /// Most hard links.
        pub max_links: u32,
        /// Longest name in bytes.
        pub max_name_bytes: u32,
        /// A longer name is refused, not truncated.
        pub no_trunc: bool,
        /// Only root may change the owner of a file.
        pub chown_restricted: bool,
        /// Names that differ only in case are the same.
        pub case_insensitive: bool,
        /// Case is preserved.
        pub case_preserving: bool,
    }
}
