//! DELEGPURGE (RFC 8881 §18.5): delegations do not outlive their client in this
//! server, so there is nothing to purge.

use crate::v4::ClientId;
use zgate_xdr::xdr_struct;

xdr_struct! {
    /// DELEGPURGE4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// The client.
        pub clientid: ClientId,
    }
}
