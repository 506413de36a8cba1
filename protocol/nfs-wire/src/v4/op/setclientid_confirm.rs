//! SETCLIENTID_CONFIRM (RFC 7530 §16.34), minor version 0 only.

use crate::v4::{ClientId, Verifier};
use zgate_xdr::xdr_struct;

xdr_struct! {
    /// SETCLIENTID_CONFIRM4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// clientid.
        pub clientid: ClientId,
        /// setclientid_confirm.
        pub confirm: Verifier,
    }
}
