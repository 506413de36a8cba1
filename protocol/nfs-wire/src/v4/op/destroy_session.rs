//! DESTROY_SESSION (RFC 8881 §18.37).

use crate::v4::SessionId;
use zgate_xdr::xdr_struct;

xdr_struct! {
    /// DESTROY_SESSION4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// dsa_sessionid.
        pub session: SessionId,
    }
}
