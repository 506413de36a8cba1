//! What completions mean.

use zgate_fabric::WorkStatus;
use zgate_rdma_sys as sys;

/// Receives carry this bit in their number, sends do not. A failed completion
/// has nothing else that tells.
pub(crate) const RECEIVE: u64 = 1 << 63;

/// Completions taken at once.
pub(crate) const AT_ONCE: usize = 32;

/// The failure behind a status that is not success.
pub(crate) fn status(status: u32) -> WorkStatus {
    match status {
        sys::WC_WR_FLUSH_ERR => WorkStatus::Flushed,
        sys::WC_LOC_LEN_ERR => WorkStatus::LocalLength,
        sys::WC_REM_INV_REQ_ERR => WorkStatus::RemoteInvalidRequest,
        sys::WC_REM_OP_ERR => WorkStatus::RemoteOperation,
        sys::WC_REM_ACCESS_ERR => WorkStatus::RemoteAccess,
        sys::WC_RETRY_EXC_ERR => WorkStatus::RetryExceeded,
        sys::WC_RNR_RETRY_EXC_ERR => WorkStatus::ReceiverNotReady,
        other => WorkStatus::Device(other),
    }
}
