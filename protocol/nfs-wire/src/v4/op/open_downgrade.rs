//! OPEN_DOWNGRADE (RFC 8881 §18.18).

use crate::v4::Stateid;
use zgate_xdr::xdr_struct;

xdr_struct! {
    /// OPEN_DOWNGRADE4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// The open.
        pub stateid: Stateid,
        /// Owner's sequence number (minor version 0).
        pub seqid: u32,
        /// Remaining access.
        pub access: u32,
        /// Remaining denial.
        pub deny: u32,
    }
}

xdr_struct! {
    /// OPEN_DOWNGRADE4resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Res {
        /// The open's new version.
        pub stateid: Stateid,
    }
}
