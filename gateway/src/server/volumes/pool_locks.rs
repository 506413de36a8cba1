//! One change at a time in each pool. A pool that hangs delays its own changes,
//! for a bounded time each, and no other's.

use crate::server::limits::POOL_PATIENCE;
use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use zgate_api::{ApiError, ErrorCode};
use zgate_control::PoolName;

/// Pools that are being changed.
#[derive(Default)]
pub(super) struct PoolLocks {
    changing: Mutex<BTreeSet<PoolName>>,
    ended: Condvar,
}

/// Right to change a pool; returned on drop.
pub(super) struct PoolLock<'a> {
    all: &'a PoolLocks,
    pool: PoolName,
}

impl PoolLocks {
    /// Waits for the right to change a pool.
    ///
    /// # Errors
    /// [`ErrorCode::Busy`] if other changes take too long.
    pub(super) fn lock(&self, pool: &PoolName) -> Result<PoolLock<'_>, ApiError> {
        self.lock_within(pool, POOL_PATIENCE)
    }

    fn lock_within(&self, pool: &PoolName, limit: Duration) -> Result<PoolLock<'_>, ApiError> {
        let deadline = Instant::now() + limit;
        let mut changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        while changing.contains(pool) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ApiError::new(
                    ErrorCode::Busy,
                    format!("another change of pool {pool} takes long"),
                    "send the same request again; if it stays so, see `zpool status`",
                ));
            }
            let waited = self.ended.wait_timeout(changing, left);
            changing = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        changing.insert(pool.clone());
        Ok(PoolLock { all: self, pool: pool.clone() })
    }
}

impl Drop for PoolLock<'_> {
    fn drop(&mut self) {
        let mut changing = self.all.changing.lock().unwrap_or_else(PoisonError::into_inner);
        changing.remove(&self.pool);
        drop(changing);
        self.all.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_that_hangs_delays_no_other() {
        let locks = PoolLocks::default();
        let (tank, fast) = ("tank".parse().unwrap(), "fast".parse().unwrap());
        let held = locks.lock(&tank).unwrap();
        let busy = locks.lock_within(&tank, Duration::from_millis(5)).err().unwrap();
        assert_eq!(busy.code, ErrorCode::Busy);
        drop(locks.lock(&fast).unwrap());
        drop(held);
        drop(locks.lock(&tank).unwrap());
    }
}
