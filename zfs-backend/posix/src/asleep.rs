//! Released snapshots. ZFS unmounts them after a while, and they are mounted again when clients
//! return to them.

use ahash::HashMap;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zgate_store::{StoreError, StoreResult};

/// Most released snapshots that are remembered: those that were released last. Most of them no
/// longer exist after some time, and nobody tells the store of that.
const MAX_ASLEEP: usize = 4096;

/// Released snapshots of a store; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Asleep(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Mount points, by the keys of the file systems; `None` while the snapshot is being mounted again.
    points: HashMap<u64, Option<Vec<u8>>>,
    /// Keys in the order of their release.
    order: VecDeque<u64>,
}

/// A snapshot that is being mounted again. Unless that ends, it stays asleep.
pub(crate) struct Waking<'a> {
    of: &'a Asleep,
    key: u64,
    point: Vec<u8>,
    has_ended: bool,
}

impl Asleep {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a snapshot, in place of the one that was released first if there are too many.
    pub(crate) fn remember(&self, key: u64, point: Vec<u8>) {
        let mut state = self.state();
        if state.points.insert(key, Some(point)).is_none() {
            state.order.push_back(key);
        }
        if state.order.len() > MAX_ASLEEP
            && let Some(first) = state.order.pop_front()
        {
            state.points.remove(&first);
        }
    }

    /// Begins to mount a snapshot again; `None` if none with this key is asleep.
    ///
    /// # Errors
    /// [`StoreError::OutOfResources`] while another thread does so: try again later.
    pub(crate) fn begin(&self, key: u64) -> StoreResult<Option<Waking<'_>>> {
        let mut state = self.state();
        let Some(point) = state.points.get_mut(&key) else { return Ok(None) };
        let point = point.take().ok_or(StoreError::OutOfResources)?;
        Ok(Some(Waking { of: self, key, point, has_ended: false }))
    }
}

impl Waking<'_> {
    /// Returns the mount point.
    pub(crate) fn point(&self) -> &[u8] {
        &self.point
    }

    /// Records that the snapshot is mounted, or no longer exists.
    pub(crate) fn end(mut self) {
        self.has_ended = true;
    }
}

impl Drop for Waking<'_> {
    fn drop(&mut self) {
        let mut state = self.of.state();
        if self.has_ended {
            state.points.remove(&self.key);
            state.order.retain(|other| *other != self.key);
        } else if let Some(point) = state.points.get_mut(&self.key) {
            *point = Some(std::mem::take(&mut self.point));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the mount point of a snapshot that is asleep.
    fn point_of(asleep: &Asleep, key: u64) -> Option<Vec<u8>> {
        asleep.begin(key).unwrap().map(|waking| waking.point().to_vec())
    }

    #[test]
    fn the_snapshots_that_were_released_last_are_remembered() {
        let asleep = Asleep::default();
        let most = MAX_ASLEEP as u64;
        for key in 0..=most {
            asleep.remember(key, vec![1]);
        }
        asleep.remember(most, vec![2]);
        assert_eq!(point_of(&asleep, 0), None);
        assert_eq!(point_of(&asleep, 1), Some(vec![1]));
        assert_eq!(point_of(&asleep, most), Some(vec![2]));
    }

    #[test]
    fn one_thread_mounts_a_snapshot_and_the_others_come_again() {
        let asleep = Asleep::default();
        asleep.remember(7, vec![1]);
        let first = asleep.begin(7).unwrap();
        assert_eq!(asleep.begin(7).err(), Some(StoreError::OutOfResources));
        drop(first);
        let again = asleep.begin(7).unwrap().unwrap();
        assert_eq!(again.point(), [1]);
        again.end();
        assert!(asleep.begin(7).unwrap().is_none());
        assert!(asleep.state().order.is_empty());
    }
}
