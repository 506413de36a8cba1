//! Objects that others have removed. A cached object is kept open, and nobody tells the store when
//! a program on the server, or a client of another export, removes its last name: its space would
//! stay in use until it makes room for others in the cache. So the cache is searched for such
//! objects, a part of it at a time.

use crate::entry::Entry;
use crate::entry_cache::EntryCache;
use crate::open_file::is_gone;
use crate::rounds::Rounds;
use crate::tree::Freeing;
use ahash::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use zgate_io::IoEngine;

/// Interval between the searches of two parts of a cache. Unit tests begin theirs themselves.
const INTERVAL: Duration = Duration::from_secs(if cfg!(test) { 3600 } else { 5 });

/// Objects on one disk, with the engine for calls that may wait for it.
type OnDisk = (IoEngine, Vec<Weak<Entry>>);

/// A cache that is searched.
struct Searched {
    cache: Weak<EntryCache>,
    /// See [`PosixOptions::freeing`](crate::PosixOptions::freeing).
    freeing: Arc<AtomicUsize>,
    /// Part that is searched next.
    part: usize,
    /// Shared with the searches that run.
    running: Arc<()>,
}

static CACHES: Rounds<Searched> = Rounds {
    thread: "zgate-removed",
    interval: INTERVAL,
    without: "the space of files that programs on this machine remove may stay in use",
    work: Searched::begin,
    all: OnceLock::new(),
};

/// Searches a cache until it is dropped.
pub(crate) fn search(cache: &Arc<EntryCache>, freeing: &Arc<AtomicUsize>) {
    CACHES.add(Searched::new(cache, freeing));
}

impl Searched {
    fn new(cache: &Arc<EntryCache>, freeing: &Arc<AtomicUsize>) -> Self {
        let (cache, freeing) = (Arc::downgrade(cache), Arc::clone(freeing));
        Self { cache, freeing, part: 0, running: Arc::default() }
    }

    /// Begins to search the next part; returns whether the cache is still there. Waits for no
    /// storage: one that hangs holds up the searches of this cache alone.
    fn begin(&mut self) -> bool {
        if self.cache.strong_count() == 0 {
            return false;
        }
        if Arc::strong_count(&self.running) > 1 {
            return true;
        }
        // Until then its file systems are in use.
        let _freeing = Freeing::new(&self.freeing);
        let Some(cache) = self.cache.upgrade() else { return false };
        let mut disks: HashMap<usize, OnDisk> = HashMap::default();
        cache.look_at_idle(self.part, |entry| {
            let mount = &entry.mount;
            // Of what other hosts have, the space is theirs to free.
            if !mount.is_remote() {
                let disk = disks.entry(mount.engine.workers());
                let (_, idle) = disk.or_insert_with(|| (mount.engine.clone(), Vec::new()));
                idle.push(Arc::downgrade(entry));
            }
        });
        self.part = (self.part + 1) % EntryCache::PARTS;
        for (engine, idle) in disks.into_values() {
            let (cache, running) = (Weak::clone(&self.cache), Arc::clone(&self.running));
            let freeing = Arc::clone(&self.freeing);
            engine.detach_long(move || {
                let freeing = Freeing::new(&freeing);
                close_removed(&cache, &idle);
                drop((freeing, running));
            });
        }
        true
    }
}

/// Closes those of the objects that have lost their last name.
fn close_removed(cache: &Weak<EntryCache>, idle: &[Weak<Entry>]) {
    let Some(cache) = cache.upgrade() else { return };
    for entry in idle.iter().filter_map(Weak::upgrade) {
        if is_gone(&entry)
            && let Some(kept) = cache.orphan(&entry.handle)
        {
            kept.drop_descriptors();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::PosixOptions;
    use crate::store::PosixStore;
    use std::sync::atomic::Ordering;
    use std::time::Instant;
    use zgate_io::{EngineChoice, credentials};
    use zgate_store::file_store::{CreateMode, OpenFile};
    use zgate_store::{BufferPool, SetAttr};

    /// Longer than a machine with other work keeps a test waiting.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Makes a file that a client has open.
    fn make(store: &PosixStore, name: &[u8]) -> (Weak<Entry>, OpenFile) {
        let (tree, me) = (&store.tree, credentials::process_identity());
        let (top, attrs) = (tree.root.handle, SetAttr::default());
        let made = tree.create_file(me, &top, name, CreateMode::Guarded, &attrs);
        let made = made.unwrap().unwrap();
        let entry = tree.cached(&made.node.handle).unwrap();
        (Arc::downgrade(&entry), made.open.unwrap())
    }

    #[test]
    fn what_a_local_program_removes_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let engine = IoEngine::new(EngineChoice::Threads, 1).unwrap();
        let options = PosixOptions::new(engine, BufferPool::new(1 << 20));
        let store = PosixStore::open(dir.path(), options).unwrap();
        let [(removed, idle), (left, also_idle), (open, in_use)] =
            [&b"removed"[..], b"left", b"open"].map(|name| make(&store, name));
        drop((idle, also_idle));
        for name in ["removed", "open"] {
            std::fs::remove_file(dir.path().join(name)).unwrap();
        }
        let mut searched = Searched::new(&store.tree.cache, &store.tree.freeing);
        let began = Instant::now();
        for _ in 0..EntryCache::PARTS {
            searched.begin();
            while Arc::strong_count(&searched.running) > 1 {
                assert!(began.elapsed() < PATIENCE, "it goes on for ever");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let found = [&removed, &left, &open].map(|entry| entry.strong_count() > 0);
        assert_eq!(found, [false, true, true]);
        assert_eq!(store.tree.freeing.load(Ordering::Acquire), 0);
        drop(in_use);
    }
}
