//! Cache of entries by handle: bounded, sharded, second chance before eviction.
//!
//! An entry that is evicted while in use stays findable until its last use
//! ends, so that there is never more than one entry, and one change number, per
//! object. A file with unstable writes is in use until they are synced
//! (`unsynced`).

use crate::descriptors::Reclaim;
use crate::entry::Entry;
use crate::mounts::Mount;
use ahash::HashMap;
use ahash::RandomState;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use zgate_store::NodeHandle;

const SHARDS: usize = 16;
/// Slots examined per insertion, so that a cache full of files in use costs
/// little.
const EVICTION_STEPS: usize = 64;

/// Slots examined when descriptors are short: one search frees many.
const IDLE_STEPS: usize = 64;

struct Slot {
    /// Reference that keeps the entry; gone after eviction or removal of the
    /// object.
    kept: Option<Arc<Entry>>,
    entry: Weak<Entry>,
    used: bool,
    /// Set if the object's last name is gone: do not keep the entry any more.
    orphan: bool,
}

/// A part of the cache, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Shard {
    slots: HashMap<NodeHandle, Slot>,
    /// Order in which slots are examined for eviction.
    clock: VecDeque<NodeHandle>,
    kept: usize,
}

/// Cache of entries.
pub(crate) struct EntryCache {
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
    shard_capacity: usize,
}

impl EntryCache {
    /// Number of parts of the cache.
    pub(crate) const PARTS: usize = SHARDS;

    /// Creates a cache that keeps about `capacity` entries.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            hasher: RandomState::new(),
            shards: Default::default(),
            shard_capacity: (capacity / SHARDS).max(4),
        }
    }

    fn shard(&self, handle: &NodeHandle) -> MutexGuard<'_, Shard> {
        let index = self.hasher.hash_one(handle) as usize % SHARDS;
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the entry, if it is cached.
    pub(crate) fn get(&self, handle: &NodeHandle) -> Option<Arc<Entry>> {
        let mut shard = self.shard(handle);
        let slot = shard.slots.get_mut(handle)?;
        slot.used = true;
        if let Some(entry) = &slot.kept {
            return Some(Arc::clone(entry));
        }
        let entry = slot.entry.upgrade()?;
        if !slot.orphan {
            slot.kept = Some(Arc::clone(&entry));
            shard.kept += 1;
        }
        Some(entry)
    }

    /// Caches an entry, or returns the existing one. Also returns whether it
    /// was added, and the evicted entries, which the caller must drop.
    pub(crate) fn insert(&self, entry: Entry) -> (Arc<Entry>, bool, Vec<Arc<Entry>>) {
        let handle = entry.handle;
        if let Some(present) = self.get(&handle) {
            return (present, false, Vec::new());
        }
        let entry = Arc::new(entry);
        let mut shard = self.shard(&handle);
        if let Some(present) = shard.slots.get(&handle).and_then(|slot| slot.entry.upgrade()) {
            return (present, false, Vec::new());
        }
        let slot = Slot {
            kept: Some(Arc::clone(&entry)),
            entry: Arc::downgrade(&entry),
            used: false,
            orphan: false,
        };
        // A dead slot of the same handle has its place in the clock already.
        if shard.slots.insert(handle, slot).is_none() {
            shard.clock.push_back(handle);
        }
        shard.kept += 1;
        let evicted = shard.evict(self.shard_capacity);
        drop(shard);
        (entry, true, evicted)
    }

    /// Stops keeping an entry whose object has lost its last name; it stays
    /// findable while in use. Returns it if it was kept.
    pub(crate) fn orphan(&self, handle: &NodeHandle) -> Option<Arc<Entry>> {
        let mut shard = self.shard(handle);
        let slot = shard.slots.get_mut(handle)?;
        slot.orphan = true;
        let kept = slot.kept.take()?;
        shard.kept -= 1;
        Some(kept)
    }

    /// Stops finding an entry, also while it is in use: its object is gone, or has another inode.
    /// Returns it if it was kept.
    pub(crate) fn give_up(&self, entry: &Entry) -> Option<Arc<Entry>> {
        let mut shard = self.shard(&entry.handle);
        let slot = shard.slots.get_mut(&entry.handle)?;
        // Another one may have its handle by now.
        if !std::ptr::eq(slot.entry.as_ptr(), entry) {
            return None;
        }
        slot.entry = Weak::new();
        let kept = slot.kept.take()?;
        shard.kept -= 1;
        Some(kept)
    }

    /// Shows the kept entries of a part, one of [`Self::PARTS`], that nobody uses.
    pub(crate) fn look_at_idle(&self, part: usize, look: impl FnMut(&Arc<Entry>)) {
        let shard = self.shards[part % SHARDS].lock().unwrap_or_else(PoisonError::into_inner);
        let kept = shard.slots.values().filter_map(|slot| slot.kept.as_ref());
        kept.filter(|entry| Arc::strong_count(entry) == 1).for_each(look);
    }

    /// Stops keeping the entries of one file system.
    pub(crate) fn let_go_of(&self, mount: &Arc<Mount>) {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let of_it = |slot: &&mut Slot| {
                slot.kept.as_ref().is_some_and(|entry| Arc::ptr_eq(&entry.mount, mount))
            };
            let slots = shard.slots.values_mut().filter(of_it);
            let kept: Vec<_> = slots.filter_map(|slot| slot.kept.take()).collect();
            shard.kept -= kept.len();
            drop(shard);
            drop(kept);
        }
    }

    /// Stops keeping all entries.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let kept: Vec<_> =
                shard.slots.values_mut().filter_map(|slot| slot.kept.take()).collect();
            shard.kept = 0;
            drop(shard);
            drop(kept);
        }
    }
}

impl Reclaim for EntryCache {
    /// Evicts up to `most` unused entries; returns their number.
    fn let_go_of_idle(&self, most: usize) -> usize {
        let mut count = 0;
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let idle = shard.take_idle(most - count);
            drop(shard);
            count += idle.len();
            drop(idle);
            if count == most {
                break;
            }
        }
        count
    }
}

impl Shard {
    /// Removes unused entries, examining only a few slots.
    fn take_idle(&mut self, most: usize) -> Vec<Arc<Entry>> {
        let mut idle = Vec::new();
        for _ in 0..self.clock.len().min(IDLE_STEPS) {
            if idle.len() == most {
                break;
            }
            let Some(handle) = self.clock.pop_front() else { break };
            let Some(slot) = self.slots.get_mut(&handle) else { continue };
            if let Some(entry) = slot.kept.take_if(|entry| Arc::strong_count(entry) == 1) {
                self.kept -= 1;
                idle.push(entry);
            }
            self.clock.push_back(handle);
        }
        idle
    }

    /// Evicts down to `capacity`, examining only a few slots. Returns the
    /// evicted entries, to be dropped without the lock.
    fn evict(&mut self, capacity: usize) -> Vec<Arc<Entry>> {
        let mut evicted = Vec::new();
        for _ in 0..EVICTION_STEPS {
            if self.kept <= capacity && self.clock.len() <= 2 * capacity {
                break;
            }
            let Some(handle) = self.clock.pop_front() else {
                break;
            };
            let Some(slot) = self.slots.get_mut(&handle) else {
                continue;
            };
            if slot.used {
                slot.used = false;
            } else if let Some(entry) = slot.kept.take() {
                self.kept -= 1;
                evicted.push(entry);
            } else if slot.entry.strong_count() == 0 {
                self.slots.remove(&handle);
                continue;
            }
            self.clock.push_back(handle);
        }
        evicted
    }
}
