//! CLOSE (RFC 8881 §18.2, RFC 7530 §16.2).

use crate::v4::Stateid;
use zgate_xdr::xdr_struct;

xdr_struct! {
    /// CLOSE4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// Owner's sequence number (minor version 0).
        pub seqid: u32,
        /// The open.
        pub stateid: Stateid,
    }
}

xdr_struct! {
    /// CLOSE4resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Res {
        /// No longer valid.
        pub stateid: Stateid,
    }
}
