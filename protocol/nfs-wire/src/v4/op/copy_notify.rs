//! COPY_NOTIFY (RFC 7862 §15.3): copies between servers are not supported.

use super::copy::NetLocation;
use crate::v4::Stateid;
use zgate_xdr::xdr_struct;

xdr_struct! {
    /// COPY_NOTIFY4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// Stateid for reading the current file.
        pub stateid: Stateid,
        /// Destination server.
        pub destination: NetLocation,
    }
}
