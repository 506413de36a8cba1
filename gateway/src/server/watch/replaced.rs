//! Tells clients of content that was replaced by hand: by `zfs rollback`, or by `zfs receive`
//! into what is served.
//!
//! ZFS reports it while the file system is suspended, and requests that came before are answered
//! once it is there again. So the stores are told on the thread that reads the events, by the
//! mount table as it was read last: reading it waits for suspended file systems. The thread that
//! follows datasets reads it afterwards, and tells what it shows besides.

use crate::exports::replaced::ReplacedDatasets;
use crate::observe::throttle::warn_seldom;
use crate::server::run::Gateway;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zgate_control::replaced::Replacement;
use zgate_io::mountinfo::{self, MountLine};

/// Tells clients of replaced content.
pub(super) struct Announcer {
    gateway: Arc<Gateway>,
    /// The mount table as it was read last.
    mounts: Mutex<Arc<Vec<MountLine>>>,
}

impl Announcer {
    /// Knows no mounts until it has looked at them.
    pub(super) fn new(gateway: &Arc<Gateway>) -> Self {
        Self { gateway: Arc::clone(gateway), mounts: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Vec<MountLine>>> {
        self.mounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the mount table as it was read last.
    pub(super) fn mounts(&self) -> Arc<Vec<MountLine>> {
        Arc::clone(&self.lock())
    }

    /// Reads the mount table, which waits for suspended file systems; returns whether other
    /// datasets are mounted than before, or elsewhere.
    pub(super) fn look_at_mounts(&self) -> bool {
        // A table that cannot be read is none.
        let now = Arc::new(mountinfo::read().unwrap_or_default());
        let before = std::mem::replace(&mut *self.lock(), Arc::clone(&now));
        !of_datasets(&before).eq(of_datasets(&now))
    }

    /// Tells clients of what may have been replaced. Waits for no storage.
    pub(super) fn tell(&self, replacement: &Replacement) {
        let mounts = self.mounts();
        let note = |replaced: ReplacedDatasets<'_>| self.gateway.note_replaced(&replaced, &mounts);
        match replacement {
            Replacement::Of(dataset) => {
                let (exports, luns) = note(ReplacedDatasets::named(std::slice::from_ref(dataset)));
                if exports + luns > 0 {
                    tracing::info!(
                        %dataset, exports, luns,
                        "a dataset has other content, by a rollback or a received stream: its NFS \
                         clients write again what they have not committed, and return delegations"
                    );
                }
            }
            Replacement::Any => {
                let (exports, luns) = note(ReplacedDatasets::Any);
                warn_seldom!(
                    exports, luns,
                    "events of ZFS were lost: any dataset may have other content, and NFS clients \
                     write again what they have not committed, and return delegations; if it \
                     happens again, raise the module parameter zfs_zevent_len_max"
                );
            }
        }
    }
}

/// Returns the mounts of ZFS file systems, without those of snapshots.
fn of_datasets(mounts: &[MountLine]) -> impl Iterator<Item = &MountLine> {
    mounts.iter().filter(|mount| mount.kind == b"zfs" && !mount.source.contains(&b'@'))
}
