//! FSINFO (RFC 1813 §3.3.19).

use crate::v3::{Attributes, NfsTime};

/// FSF3_LINK | FSF3_SYMLINK | FSF3_HOMOGENEOUS | FSF3_CANSETTIME.
pub const PROPERTIES: u32 = 0x01 | 0x02 | 0x08 | 0x10;

zgate_xdr::xdr_struct! {
    /// FSINFO3resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Info {
        /// Attributes of the object.
        pub attributes: Option<Attributes>,
        /// Largest READ in bytes.
        pub read_max: u32,
        /// Preferred READ size in bytes.
        pub read_preferred: u32,
        /// Multiple for READ in bytes.
        pub read_multiple: u32,
        /// Largest WRITE in bytes.
        pub write_max: u32,
        /// Preferred WRITE size in bytes.
        pub write_preferred: u32,
        /// Multiple for WRITE in bytes.
        pub write_multiple: u32,
        /// Preferred READDIR size in bytes.
        pub readdir_preferred: u32,
        /// Largest file in bytes.
        pub max_file_bytes: u64,
        /// Precision of times.
        pub time_delta: NfsTime,
        /// FSF3_* properties of the file system.
        pub properties: u32,
    }
}
