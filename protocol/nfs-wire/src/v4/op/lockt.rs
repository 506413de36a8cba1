//! LOCKT (RFC 8881 §18.11): tests for a conflicting lock.

use crate::v4::{LockType, StateOwner};
use zgate_xdr::xdr_struct;

xdr_struct! {
    /// LOCKT4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// Shared or exclusive.
        pub kind: LockType,
        /// First byte.
        pub offset: u64,
        /// Bytes; all ones: to the end.
        pub length: u64,
        /// The lock owner.
        pub owner: StateOwner,
    }
}
