//! BIND_CONN_TO_SESSION (RFC 8881 §18.34).

use crate::v4::SessionId;
use zgate_xdr::{xdr_enum, xdr_struct};

xdr_enum! {
    /// channel_dir_from_client4.
    pub enum Direction {
        /// CDFC4_FORE.
        Fore = 1,
        /// CDFC4_BACK.
        Back = 2,
        /// CDFC4_FORE_OR_BOTH.
        ForeOrBoth = 3,
        /// CDFC4_BACK_OR_BOTH.
        BackOrBoth = 7,
    }
}

xdr_struct! {
    /// BIND_CONN_TO_SESSION4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// bctsa_sessid.
        pub session: SessionId,
        /// bctsa_dir.
        pub direction: Direction,
        /// bctsa_use_conn_in_rdma_mode.
        pub rdma_mode: bool,
    }
}

xdr_struct! {
    /// BIND_CONN_TO_SESSION4resok; directions are CDFS4_FORE 1, BACK 2, BOTH 3.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Res {
        /// bctsr_sessid.
        pub session: SessionId,
        /// bctsr_dir.
        pub direction: u32,
        /// bctsr_use_conn_in_rdma_mode.
        pub rdma_mode: bool,
    }
}
