//! Snapshots that clients look into are mounted by ZFS on demand, and cannot be
//! destroyed while something of them is open. Nobody tells the gateway before a
//! snapshot is pruned: what clients have not asked for in a while is let go.

use crate::tree::Tree;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// A snapshot that nobody asked for between two looks is let go.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

type Trees = Mutex<Vec<Weak<Tree>>>;

/// Looks after the snapshots of a tree until that is gone. One thread does so
/// for all trees.
pub(crate) fn look_after(tree: &Arc<Tree>) {
    static TREES: OnceLock<Trees> = OnceLock::new();
    let trees = TREES.get_or_init(|| {
        let started = std::thread::Builder::new().name("zgate-snapshots".into()).spawn(look);
        if let Err(error) = started {
            tracing::warn!(%error, "snapshots that were looked into stay busy");
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
                // One that does not answer keeps no other waiting.
                let engine = tree.root.mount.engine.clone();
                engine.detach(move || tree.let_go_of_idle_snapshots());
            }
        }
    }
}

impl Tree {
    /// Lets go of the snapshots that were not asked for since the last call.
    fn let_go_of_idle_snapshots(&self) {
        for mount in self.mounts.snapshots() {
            if !mount.asked_for_again() {
                self.cache.let_go_of(&mount);
                self.mounts.let_go_of(mount);
            }
        }
    }
}
