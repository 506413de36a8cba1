//! SETATTR (RFC 8881 §18.30).

use crate::v4::{Fattr, Stateid};
use zgate_xdr::xdr_struct;

xdr_struct! {
    /// SETATTR4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// Used if the size changes.
        pub stateid: Stateid,
        /// The attributes to set.
        pub attrs: Fattr,
    }
}
