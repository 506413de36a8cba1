//! OPEN_CONFIRM (RFC 7530 §16.18), minor version 0 only.

use crate::v4::Stateid;
use zgate_xdr::xdr_struct;

xdr_struct! {
    /// OPEN_CONFIRM4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// The open.
        pub stateid: Stateid,
        /// Owner's sequence number.
        pub seqid: u32,
    }
}

xdr_struct! {
    /// OPEN_CONFIRM4resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Res {
        /// The open's new version.
        pub stateid: Stateid,
    }
}
