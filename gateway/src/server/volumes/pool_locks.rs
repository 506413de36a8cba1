//! Changes of volumes at the same time: of different volumes a few in each pool, of one
//! volume one. Each waits for ZFS to write a transaction, which has room for all of
//! them. The making of a clone is a change of its origin, too: neither is deleted or promoted
//! meanwhile. A change of datasets that are only found on the way (promotions), or of many
//! (groups), has its pool alone. A pool that hangs delays its own changes, for a bounded time
//! each, and no other's.

use crate::server::limits::{MAX_VOLUME_CHANGES, POOL_PATIENCE};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use zgate_api::{ApiError, ErrorCode};
use zgate_control::{DatasetName, PoolName};

/// Changes under way in a pool.
#[derive(Default)]
struct Changes {
    volumes: BTreeSet<DatasetName>,
    /// Number of changes of these volumes.
    count: usize,
    has_pool_alone: bool,
    /// Changes that wait for the pool alone: no others begin before them.
    waiting: usize,
}

/// Pools that are being changed.
#[derive(Default)]
pub(super) struct PoolLocks {
    changing: Mutex<BTreeMap<PoolName, Changes>>,
    ended: Condvar,
}

/// Right to change a pool, or volumes of it; returned on drop.
pub(super) struct PoolLock<'a> {
    all: &'a PoolLocks,
    pool: PoolName,
    /// None: the pool.
    volumes: Vec<DatasetName>,
}

impl PoolLocks {
    /// Waits for the right to change anything in a pool.
    ///
    /// # Errors
    /// [`ErrorCode::Busy`] if other changes take too long.
    pub(super) fn lock(&self, pool: &PoolName) -> Result<PoolLock<'_>, ApiError> {
        self.lock_within(pool, POOL_PATIENCE)
    }

    /// Waits for the right to change one volume and its snapshots.
    ///
    /// # Errors
    /// [`ErrorCode::Busy`] if other changes take too long.
    pub(super) fn lock_volume(&self, volume: &DatasetName) -> Result<PoolLock<'_>, ApiError> {
        self.lock_volumes_within(volume, None, POOL_PATIENCE)
    }

    /// Waits for the right to make a volume as a clone, and to take a snapshot of its origin.
    ///
    /// # Errors
    /// [`ErrorCode::Busy`] if other changes take too long.
    pub(super) fn lock_clone(
        &self,
        clone: &DatasetName,
        origin: Option<&DatasetName>,
    ) -> Result<PoolLock<'_>, ApiError> {
        self.lock_volumes_within(clone, origin, POOL_PATIENCE)
    }

    fn lock_within(&self, pool: &PoolName, limit: Duration) -> Result<PoolLock<'_>, ApiError> {
        let mut changing = self.all();
        changing.entry(pool.clone()).or_default().waiting += 1;
        let is_free = |changes: &Changes| !changes.has_pool_alone && changes.volumes.is_empty();
        let (mut changing, is_free) = self.wait(changing, pool, limit, is_free);
        let changes = changing.entry(pool.clone()).or_default();
        changes.waiting -= 1;
        changes.has_pool_alone |= is_free;
        if !is_free {
            // Those that waited for this one go on.
            self.ended.notify_all();
            return Err(busy(pool));
        }
        Ok(PoolLock { all: self, pool: pool.clone(), volumes: Vec::new() })
    }

    /// Takes both at once, so that no two wait for each other. An origin of another pool is
    /// refused later, and not waited for.
    fn lock_volumes_within(
        &self,
        volume: &DatasetName,
        origin: Option<&DatasetName>,
        limit: Duration,
    ) -> Result<PoolLock<'_>, ApiError> {
        let pool = volume.pool();
        let origin = origin.filter(|origin| origin.pool() == pool);
        let volumes: Vec<_> = [Some(volume), origin].into_iter().flatten().cloned().collect();
        let is_free = |changes: &Changes| {
            !changes.has_pool_alone
                && changes.waiting == 0
                && changes.count < MAX_VOLUME_CHANGES
                && !volumes.iter().any(|one| changes.volumes.contains(one))
        };
        let (mut changing, is_free) = self.wait(self.all(), &pool, limit, is_free);
        if !is_free {
            return Err(busy(&pool));
        }
        let changes = changing.entry(pool.clone()).or_default();
        changes.count += 1;
        changes.volumes.extend(volumes.iter().cloned());
        drop(changing);
        Ok(PoolLock { all: self, pool, volumes })
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<PoolName, Changes>> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a pool is free. False: it was not in time.
    fn wait<'a>(
        &'a self,
        mut changing: MutexGuard<'a, BTreeMap<PoolName, Changes>>,
        pool: &PoolName,
        limit: Duration,
        is_free: impl Fn(&Changes) -> bool,
    ) -> (MutexGuard<'a, BTreeMap<PoolName, Changes>>, bool) {
        let deadline = Instant::now() + limit;
        while !changing.get(pool).is_none_or(&is_free) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return (changing, false);
            }
            let waited = self.ended.wait_timeout(changing, left);
            changing = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        (changing, true)
    }
}

fn busy(pool: &PoolName) -> ApiError {
    ApiError::new(
        ErrorCode::Busy,
        format!("another change of pool {pool} takes long"),
        "send the same request again; if it stays so, see `zpool status`",
    )
}

impl Drop for PoolLock<'_> {
    fn drop(&mut self) {
        let mut changing = self.all.all();
        if let Some(changes) = changing.get_mut(&self.pool) {
            if self.volumes.is_empty() {
                changes.has_pool_alone = false;
            } else {
                changes.count -= 1;
                changes.volumes.retain(|one| !self.volumes.contains(one));
            }
            let is_idle =
                changes.volumes.is_empty() && !changes.has_pool_alone && changes.waiting == 0;
            if is_idle {
                changing.remove(&self.pool);
            }
        }
        drop(changing);
        self.all.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    const SHORT: Duration = Duration::from_millis(5);

    fn code<T>(outcome: Result<T, ApiError>) -> Option<ErrorCode> {
        outcome.err().map(|error| error.code)
    }

    #[test]
    fn a_pool_that_hangs_delays_no_other() {
        let locks = PoolLocks::default();
        let (tank, fast) = ("tank".parse().unwrap(), "fast".parse().unwrap());
        let held = locks.lock(&tank).unwrap();
        assert_eq!(code(locks.lock_within(&tank, SHORT)), Some(ErrorCode::Busy));
        drop(locks.lock(&fast).unwrap());
        drop(held);
        drop(locks.lock(&tank).unwrap());
    }

    #[test]
    fn volumes_change_together_and_each_by_one() {
        let locks = PoolLocks::default();
        let [a, b] = ["tank/k/a", "tank/k/b"].map(|name| name.parse().unwrap());
        let pool = "tank".parse().unwrap();
        let held = (locks.lock_volume(&a).unwrap(), locks.lock_volume(&b).unwrap());
        assert_eq!(code(locks.lock_volumes_within(&a, None, SHORT)), Some(ErrorCode::Busy));
        assert_eq!(code(locks.lock_within(&pool, SHORT)), Some(ErrorCode::Busy));
        drop(held.0);
        drop(locks.lock_volume(&a).unwrap());
        drop(held.1);
        let held = locks.lock(&pool).unwrap();
        assert_eq!(code(locks.lock_volumes_within(&b, None, SHORT)), Some(ErrorCode::Busy));
        drop(held);
        assert!(locks.all().is_empty(), "nothing is remembered");
    }

    #[test]
    fn a_bounded_number_of_volumes_changes_at_a_time() {
        let locks = PoolLocks::default();
        let volume = |number: usize| format!("tank/k/{number}").parse().unwrap();
        let mut held: Vec<_> = (0..MAX_VOLUME_CHANGES)
            .map(|number| locks.lock_volume(&volume(number)).unwrap())
            .collect();
        let one_more = volume(MAX_VOLUME_CHANGES);
        let refused = locks.lock_volumes_within(&one_more, None, SHORT);
        assert_eq!(code(refused), Some(ErrorCode::Busy));
        held.pop();
        drop(locks.lock_volume(&one_more).unwrap());
    }

    /// Restores of many claims at once would wait for each other, and for all other changes.
    #[test]
    fn a_new_clone_has_its_origin_and_not_its_pool() {
        let locks = PoolLocks::default();
        let names = ["tank/k/a", "tank/k/b", "tank/k/c", "tank/k/d", "fast/k/a"];
        let [a, b, c, d, elsewhere]: [DatasetName; 5] = names.map(|name| name.parse().unwrap());
        let held = locks.lock_clone(&a, Some(&b)).unwrap();
        let other = locks.lock_clone(&c, Some(&d)).unwrap();
        assert_eq!(locks.all().values().map(|changes| changes.count).sum::<usize>(), 2);
        drop(other);
        for (clone, origin) in [(&a, None), (&b, None), (&c, Some(&a)), (&c, Some(&b))] {
            let waits = locks.lock_volumes_within(clone, origin, SHORT);
            assert_eq!(code(waits), Some(ErrorCode::Busy), "{clone} of {origin:?}");
        }
        // It is refused later.
        drop(locks.lock_clone(&c, Some(&elsewhere)).unwrap());
        assert_eq!(code(locks.lock_within(&a.pool(), SHORT)), Some(ErrorCode::Busy));
        drop(held);
        drop(locks.lock_clone(&b, Some(&a)).unwrap());
        assert!(locks.all().is_empty(), "nothing is remembered");
    }

    #[test]
    fn a_change_of_the_pool_comes_before_later_ones_of_volumes() {
        let locks = PoolLocks::default();
        let [a, b] = ["tank/k/a", "tank/k/b"].map(|name| name.parse().unwrap());
        let pool: PoolName = "tank".parse().unwrap();
        let had_its_turn = AtomicBool::new(false);
        let held = locks.lock_volume(&a).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _alone = locks.lock(&pool).unwrap();
                had_its_turn.store(true, Ordering::Release);
            });
            while locks.all().get(&pool).is_none_or(|changes| changes.waiting == 0) {
                std::thread::yield_now();
            }
            assert_eq!(code(locks.lock_volumes_within(&b, None, SHORT)), Some(ErrorCode::Busy));
            drop(held);
            let _later = locks.lock_volume(&b).unwrap();
            assert!(had_its_turn.load(Ordering::Acquire));
        });
    }
}
