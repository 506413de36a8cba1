//! SEQUENCE (RFC 8881 §18.46): takes a slot, renews the lease.

use crate::v4::SessionId;
use zgate_xdr::xdr_struct;

/// SEQ4_STATUS_CB_PATH_DOWN.
pub const STATUS_CB_PATH_DOWN: u32 = 0x1;
/// SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED.
pub const STATUS_EXPIRED_ALL_STATE_REVOKED: u32 = 0x8;
/// SEQ4_STATUS_EXPIRED_SOME_STATE_REVOKED.
pub const STATUS_EXPIRED_SOME_STATE_REVOKED: u32 = 0x10;
/// SEQ4_STATUS_ADMIN_STATE_REVOKED.
pub const STATUS_ADMIN_STATE_REVOKED: u32 = 0x20;
/// SEQ4_STATUS_RECALLABLE_STATE_REVOKED: a delegation was not returned in time.
pub const STATUS_RECALLABLE_STATE_REVOKED: u32 = 0x40;
/// SEQ4_STATUS_RESTART_RECLAIM_NEEDED.
pub const STATUS_RESTART_RECLAIM_NEEDED: u32 = 0x100;
/// SEQ4_STATUS_CB_PATH_DOWN_SESSION.
pub const STATUS_CB_PATH_DOWN_SESSION: u32 = 0x200;
/// SEQ4_STATUS_BACKCHANNEL_FAULT: the session's back channel is lost
/// permanently.
pub const STATUS_BACKCHANNEL_FAULT: u32 = 0x400;

xdr_struct! {
    /// SEQUENCE4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// sa_sessionid.
        pub session: SessionId,
        /// sa_sequenceid.
        pub sequence: u32,
        /// sa_slotid.
        pub slot: u32,
        /// sa_highest_slotid.
        pub highest_slot: u32,
        /// sa_cachethis.
        pub cache_this: bool,
    }
}

xdr_struct! {
    /// SEQUENCE4resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Res {
        /// sr_sessionid.
        pub session: SessionId,
        /// sr_sequenceid.
        pub sequence: u32,
        /// sr_slotid.
        pub slot: u32,
        /// sr_highest_slotid.
        pub highest_slot: u32,
        /// sr_target_highest_slotid.
        pub target_highest_slot: u32,
        /// sr_status_flags.
        pub status_flags: u32,
    }
}
