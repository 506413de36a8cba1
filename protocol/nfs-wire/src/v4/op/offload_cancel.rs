//! OFFLOAD_CANCEL (RFC 7862 §15.8).

use crate::v4::Stateid;
use zgate_xdr::xdr_struct;

xdr_struct! {
    /// OFFLOAD_CANCEL4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// The copy.
        pub stateid: Stateid,
    }
}
