//! DESTROY_CLIENTID (RFC 8881 §18.50).

use crate::v4::ClientId;
use zgate_xdr::xdr_struct;

xdr_struct! {
    /// DESTROY_CLIENTID4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// dca_clientid.
        pub clientid: ClientId,
    }
}
