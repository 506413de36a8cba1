//! Release of mounted snapshots. ZFS mounts a snapshot on demand when a client
//! accesses it, and it cannot be destroyed while an object of it is open.
//! Nothing informs the gateway before a snapshot is pruned, so snapshots that
//! clients have not accessed for a while are released.

use crate::tree::Tree;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// Interval of the check; a snapshot without an access between two checks is
/// released.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

type Trees = Mutex<Vec<Weak<Tree>>>;

/// Checks the snapshots of a tree until the tree is dropped. One thread does so
/// for all trees.
pub(crate) fn look_after(tree: &Arc<Tree>) {
    static TREES: OnceLock<Trees> = OnceLock::new();
    let trees = TREES.get_or_init(|| {
        let started = std::thread::Builder::new().name("zgate-snapshots".into()).spawn(look);
        if let Err(error) = started {
            tracing::warn!(%error, "snapshots that clients have accessed stay busy and cannot be \
                destroyed");
        }
        Trees::default()
    });
    trees.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(tree));

    fn look() {
        loop {
            std::thread::sleep(LOOK_INTERVAL);
            let Some(trees) = TREES.get() else { continue };
            let alive: Vec<_> = {
                let mut trees = trees.lock().unwrap_or_else(PoisonError::into_inner);
                trees.retain(|tree| tree.strong_count() > 0);
                trees.iter().filter_map(Weak::upgrade).collect()
            };
            for tree in alive {
                // A mount that hangs must not delay others.
                let engine = tree.root.mount.engine.clone();
                engine.detach(move || tree.let_go_of_idle_snapshots());
            }
        }
    }
}

impl Tree {
    /// Releases the snapshots that were not accessed since the last call.
    fn let_go_of_idle_snapshots(&self) {
        for mount in self.mounts.snapshots() {
            if !mount.asked_for_again() {
                self.cache.let_go_of(&mount);
                self.mounts.let_go_of(mount);
            }
        }
    }
}
