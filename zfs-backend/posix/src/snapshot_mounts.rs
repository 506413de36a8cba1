//! Release of mounted snapshots. ZFS mounts a snapshot on demand when a client
//! accesses it, and it cannot be destroyed while an object of it is open.
//! Nothing informs the gateway before a snapshot is pruned, so snapshots that
//! clients have not accessed for a while are released.

use crate::rounds::Rounds;
use crate::tree::Tree;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// The trees. A snapshot without an access between two checks is released.
static TREES: Rounds<Weak<Tree>> = Rounds {
    thread: "zgate-snapshots",
    interval: Duration::from_secs(5),
    without: "snapshots that clients have accessed stay busy and cannot be destroyed",
    work: look,
    all: OnceLock::new(),
};

/// Checks the snapshots of a tree until the tree is dropped.
pub(crate) fn look_after(tree: &Arc<Tree>) {
    TREES.add(Arc::downgrade(tree));
}

fn look(tree: &mut Weak<Tree>) -> bool {
    let Some(tree) = tree.upgrade() else { return false };
    // A mount that hangs must not delay others.
    let engine = tree.root.mount.engine.clone();
    engine.detach(move || tree.let_go_of_idle_snapshots());
    true
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
