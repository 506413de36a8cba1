//! RENEW (RFC 7530 §16.28), minor version 0 only.

use crate::v4::ClientId;
use zgate_xdr::xdr_struct;

xdr_struct! {
    /// RENEW4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// clientid.
        pub clientid: ClientId,
    }
}
