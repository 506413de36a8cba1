//! DELEGRETURN (RFC 8881 §18.6).

use crate::v4::Stateid;
use zgate_xdr::xdr_struct;

xdr_struct! {
    /// DELEGRETURN4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// The delegation.
        pub stateid: Stateid,
    }
}
