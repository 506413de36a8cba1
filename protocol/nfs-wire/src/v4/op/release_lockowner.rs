//! RELEASE_LOCKOWNER (RFC 7530 §16.37), minor version 0 only.

use crate::v4::StateOwner;
use zgate_xdr::xdr_struct;

xdr_struct! {
    /// RELEASE_LOCKOWNER4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// The owner whose state may be released.
        pub owner: StateOwner,
    }
}
