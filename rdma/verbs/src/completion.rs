//! Meaning of completions.

use zgate_fabric::WorkStatus;
use zgate_rdma_sys as sys;

/// Bit set in the work ids of receives and clear in those of sends. A failed
/// completion carries nothing else that distinguishes them.
pub(crate) const RECEIVE: u64 = 1 << 63;

/// Number of completions taken at once.
pub(crate) const AT_ONCE: usize = 32;

/// Returns the failure for a status that is not success.
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
