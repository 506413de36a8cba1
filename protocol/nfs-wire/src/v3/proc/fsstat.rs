//! FSSTAT (RFC 1813 §3.3.18).

use crate::v3::Attributes;

zgate_xdr::xdr_struct! {
    /// FSSTAT3resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Space {
        /// Attributes of the object.
        pub attributes: Option<Attributes>,
        /// Size in bytes.
        pub total_bytes: u64,
        /// Unused bytes.
        pub free_bytes: u64,
        /// Bytes the caller may use.
        pub available_bytes: u64,
        /// Total number of objects.
        pub total_files: u64,
        /// Number of free objects.
        pub free_files: u64,
        /// Number of objects the caller may create.
        pub available_files: u64,
        /// Seconds for which the values are not expected to change.
        pub invariant_seconds: u32,
    }
}
