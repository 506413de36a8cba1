//! FREE_STATEID (RFC 8881 §18.38).

use crate::v4::Stateid;
use zgate_xdr::xdr_struct;

xdr_struct! {
    /// FREE_STATEID4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// fsa_stateid.
        pub stateid: Stateid,
    }
}
