//! The exports in effect, of which each request keeps those that it began with.

use super::pseudo::Namespace;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use zgate_store::{THREAD_SHARDS, thread_shard};

/// The exports that a request keeps. It is counted apart from those of other threads.
#[derive(Clone, Debug)]
pub struct HeldNamespace(Arc<Reference>);

/// Reference of the threads of one shard. Its count is on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Reference(Arc<Namespace>);

impl HeldNamespace {
    /// Exports that nothing replaces.
    #[must_use]
    pub fn new(namespace: Namespace) -> Self {
        Self::of(&Arc::new(namespace))
    }

    fn of(namespace: &Arc<Namespace>) -> Self {
        Self(Arc::new(Reference(Arc::clone(namespace))))
    }
}

impl Deref for HeldNamespace {
    type Target = Namespace;

    fn deref(&self) -> &Namespace {
        &self.0.0
    }
}

/// The exports in effect. Each shard of the threads has a reference and a lock of its own: a
/// request writes no cache line of other cores to get them.
#[derive(Debug)]
pub struct CurrentNamespace {
    shards: Box<[Shard]>,
    /// Earlier ones, which requests keep that began with them.
    former: Mutex<Vec<Weak<Namespace>>>,
}

/// The reference of the threads of one shard, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Shard(RwLock<HeldNamespace>);

impl CurrentNamespace {
    /// The first exports.
    #[must_use]
    pub fn new(namespace: Namespace) -> Self {
        let namespace = Arc::new(namespace);
        let shard = |_| Shard(RwLock::new(HeldNamespace::of(&namespace)));
        Self { shards: (0..THREAD_SHARDS).map(shard).collect(), former: Mutex::default() }
    }

    /// The exports in effect.
    #[must_use]
    pub fn get(&self) -> HeldNamespace {
        let shard = &self.shards[thread_shard()];
        shard.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the exports on all threads at once; returns the earlier and the new ones.
    pub fn replace(&self, namespace: Namespace) -> (HeldNamespace, HeldNamespace) {
        let namespace = Arc::new(namespace);
        // All of them, before the first is replaced: who has seen the new ones does not get the
        // earlier ones again on another thread.
        let shards = self.shards.iter();
        let mut locked: Vec<_> =
            shards.map(|shard| shard.0.write().unwrap_or_else(PoisonError::into_inner)).collect();
        // It keeps the earlier ones: no store is closed under the locks.
        let before = locked[0].clone();
        for current in &mut locked {
            **current = HeldNamespace::of(&namespace);
        }
        drop(locked);
        let mut former = self.former.lock().unwrap_or_else(PoisonError::into_inner);
        former.retain(|earlier| earlier.strong_count() > 0);
        former.push(Arc::downgrade(&before.0.0));
        drop(former);
        (before, HeldNamespace::of(&namespace))
    }

    /// Returns whether a request uses the export at this path as it was before a change: by
    /// rules that do not count any more, it may still write.
    #[must_use]
    pub fn is_used_as_before(&self, pseudo_path: &str) -> bool {
        let now = self.get();
        let at_path = |namespace: &Namespace| namespace.export_at(pseudo_path).map(Arc::as_ptr);
        // Without the lock afterwards: the last reference may go here, and closes stores.
        let former: Vec<_> = {
            let former = self.former.lock().unwrap_or_else(PoisonError::into_inner);
            former.iter().filter_map(Weak::upgrade).collect()
        };
        former.iter().any(|earlier| {
            let Some(export) = earlier.export_at(pseudo_path) else { return false };
            let same = Some(Arc::as_ptr(export));
            // A request that hangs on another export keeps all of them, but does not use it.
            let kept = former.iter().filter(|one| at_path(one) == same);
            at_path(&now) != same && Arc::strong_count(export) > kept.count()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::{Export, ExportId};
    use crate::v3::proc::rig::an_export;

    fn exports(generation: u64) -> Namespace {
        Namespace::new(Vec::new(), generation).unwrap()
    }

    #[test]
    fn all_threads_have_the_exports_in_effect_and_requests_those_they_began_with() {
        let current = CurrentNamespace::new(exports(1));
        let kept = current.get();
        let (before, now) = current.replace(exports(2));
        assert_eq!((kept.generation, before.generation, now.generation), (1, 1, 2));
        std::thread::scope(|scope| {
            for _ in 0..2 * THREAD_SHARDS {
                scope.spawn(|| assert_eq!(current.get().generation, 2));
            }
        });
        let earlier = Arc::downgrade(&kept.0.0);
        drop(before);
        assert!(earlier.upgrade().is_some(), "a request runs");
        drop(kept);
        assert!(earlier.upgrade().is_none());
    }

    #[test]
    fn what_uses_an_export_as_it_was_is_known_until_it_ends() {
        let namespace = |generation, paths: &[&str]| {
            let export = |(id, path): (u32, &&str)| {
                let (id, pseudo_path) = (ExportId(id), (*path).to_owned());
                Arc::new(Export { id, pseudo_path, ..an_export() })
            };
            let exports = (17..).zip(paths).map(export).collect();
            Namespace::new(exports, generation).unwrap()
        };
        let current = CurrentNamespace::new(namespace(1, &["/a", "/b"]));
        let is_used = || ["/a", "/b"].map(|path| current.is_used_as_before(path));
        // One request has not come further, another one uses an export.
        let held = current.get();
        let writes = current.get().export(ExportId(17)).cloned().unwrap();
        assert_eq!(is_used(), [false; 2], "nothing has changed");
        let _ = current.replace(namespace(2, &["/a", "/b"]));
        assert_eq!(is_used(), [true, false]);
        let _ = current.replace(namespace(3, &["/b"]));
        let later = current.get();
        let also_writes = later.export(ExportId(17)).cloned().unwrap();
        assert_eq!(is_used(), [true, false]);
        drop(writes);
        assert_eq!(is_used(), [false; 2], "although a request keeps all of them");
        let _ = current.replace(namespace(4, &[]));
        assert_eq!(is_used(), [false, true]);
        drop(also_writes);
        assert_eq!(is_used(), [false; 2]);
        assert_eq!(current.former.lock().unwrap().len(), 2, "one was forgotten");
        drop((held, later));
        assert_eq!(is_used(), [false; 2]);
    }

    #[test]
    fn the_counts_of_two_shards_are_on_different_cache_lines() {
        let current = CurrentNamespace::new(exports(1));
        for generation in 2..=3 {
            let counts = current.shards.iter().map(|shard| {
                let held = shard.0.read().unwrap();
                Arc::as_ptr(&held.0).addr()
            });
            let mut counts: Vec<usize> = counts.collect();
            counts.sort_unstable();
            assert!(counts.windows(2).all(|two| two[1] - two[0] >= 128), "{counts:x?}");
            let _ = current.replace(exports(generation));
        }
    }
}
