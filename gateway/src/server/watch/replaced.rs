//! Tells clients of content that was replaced by hand: by `zfs rollback`, or by `zfs receive`
//! into what is served.
//!
//! ZFS reports it while the file system is suspended, and requests that came before are answered
//! once it is there again. So the stores are told on the thread that reads the events, by the
//! mount table as it was read last: reading it waits for suspended file systems. The thread that
//! follows datasets has it read afterwards, and tells what it shows besides. While it cannot be
//! read in time, any export may show the dataset.

use crate::exports::replaced::ReplacedDatasets;
use crate::observe::throttle::warn_seldom;
use crate::server::limits::MAX_WAITING_REPLACEMENTS;
use crate::server::mount_table::MountTable;
use crate::server::run::Gateway;
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zgate_control::replaced::Replacement;
use zgate_io::mountinfo::MountLine;
use zgate_nfs::namespace::ExportId;

/// A replacement, and the exports whose clients were told of it.
pub(super) struct Told {
    replacement: Replacement,
    exports: BTreeSet<ExportId>,
}

/// Extent of what was told at once.
pub(super) struct Announced {
    /// Number of exports whose clients were told.
    pub(super) exports: usize,
    /// Number of LUNs in which it was noted.
    pub(super) luns: usize,
    /// Set if the thread that follows datasets has to hear of it. Otherwise it does with what
    /// waits for it already.
    pub(super) is_queued: bool,
}

/// Tells clients of replaced content.
pub(super) struct Announcer {
    gateway: Arc<Gateway>,
    table: Arc<MountTable>,
    /// The mount table as it was read last.
    mounts: Mutex<Arc<Vec<MountLine>>>,
    /// Set from a look at it that was not in time until it is read again: nobody knows the
    /// mounts.
    has_missed: AtomicBool,
    /// Replacements that were told at once, in the order of their events, until the thread that
    /// follows datasets hears of them.
    told: Mutex<VecDeque<Told>>,
}

impl Announcer {
    /// Knows no mounts until it has looked at them.
    pub(super) fn new(gateway: &Arc<Gateway>) -> Self {
        Self::reading(gateway, Arc::clone(&gateway.mount_table))
    }

    /// The same with another mount table than the gateway's.
    pub(super) fn reading(gateway: &Arc<Gateway>, table: Arc<MountTable>) -> Self {
        Self {
            gateway: Arc::clone(gateway),
            table,
            mounts: Mutex::default(),
            has_missed: AtomicBool::new(false),
            told: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Vec<MountLine>>> {
        self.mounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_told(&self) -> MutexGuard<'_, VecDeque<Told>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the mount table as it was read last.
    pub(super) fn mounts(&self) -> Arc<Vec<MountLine>> {
        Arc::clone(&self.lock())
    }

    /// Returns whether a look at the mount table was not in time, and none has been since.
    pub(super) fn has_missed_mounts(&self) -> bool {
        self.has_missed.load(Ordering::Acquire)
    }

    /// Returns whether the mount table is to be looked at again: a look was not in time, and no
    /// reader waits any more.
    pub(super) fn is_look_due(&self) -> bool {
        self.has_missed_mounts() && !self.table.is_waiting()
    }

    /// Reads the mount table, which waits for suspended file systems up to a limit; returns
    /// whether other datasets may be mounted than before, or elsewhere.
    pub(super) fn look_at_mounts(&self) -> bool {
        let now = match self.table.read() {
            Some(Ok(now)) => Arc::new(now),
            // One file system that is broken is enough for it. The others are where they were.
            Some(Err(error)) => {
                tracing::debug!(%error, "the mount table cannot be read");
                return true;
            }
            None => {
                self.has_missed.store(true, Ordering::Release);
                return true;
            }
        };
        let before = std::mem::replace(&mut *self.lock(), Arc::clone(&now));
        self.has_missed.store(false, Ordering::Release);
        of_datasets(&before).ne(of_datasets(&now))
    }

    /// Tells clients of what may have been replaced, by what is known of mounts and names. Waits
    /// for no storage.
    pub(super) fn tell(&self, replacement: &Replacement) -> Announced {
        let mut told = Told { replacement: replacement.clone(), exports: BTreeSet::new() };
        let (exports, luns) = self.note(&mut told);
        log(replacement, exports, luns);
        Announced { exports, luns, is_queued: queue(&mut self.lock_told(), told) }
    }

    /// Returns the replacement that was told first, once.
    pub(super) fn take_told(&self) -> Option<Told> {
        self.lock_told().pop_front()
    }

    /// Tells the clients of exports that were not known to show the dataset when it was told.
    /// Waits for no storage.
    pub(super) fn tell_others(&self, told: &mut Told) {
        let (exports, _) = self.note(told);
        log(&told.replacement, exports, 0);
    }

    /// Returns the numbers of exports and LUNs in which it was noted.
    fn note(&self, told: &mut Told) -> (usize, usize) {
        let replaced = match &told.replacement {
            Replacement::Of(dataset) => ReplacedDatasets::named(std::slice::from_ref(dataset)),
            Replacement::Any => ReplacedDatasets::Any,
        };
        let mounts = self.mounts();
        let known = if self.has_missed_mounts() { None } else { Some(mounts.as_slice()) };
        let (exports, luns) = self.gateway.note_replaced(&replaced, known, &told.exports);
        let count = exports.len();
        told.exports.extend(exports);
        (count, luns)
    }
}

/// Adds what was told to a bounded queue: the thread that follows datasets may hang in a search.
/// False: the queue is full, and its last entry, of any dataset, stands for this one, too.
pub(super) fn queue(waiting: &mut VecDeque<Told>, told: Told) -> bool {
    if waiting.len() < MAX_WAITING_REPLACEMENTS {
        waiting.push_back(told);
        return true;
    }
    let any = Told { replacement: Replacement::Any, exports: BTreeSet::new() };
    match waiting.back_mut().filter(|last| last.replacement == Replacement::Any) {
        Some(last) => {
            *last = any;
            false
        }
        None => {
            waiting.push_back(any);
            true
        }
    }
}

fn log(replacement: &Replacement, exports: usize, luns: usize) {
    if exports + luns == 0 {
        return;
    }
    match replacement {
        Replacement::Of(dataset) => tracing::info!(
            %dataset,
            exports,
            luns,
            "a dataset has other content, by a rollback or a received stream: its NFS clients \
             write again what they have not committed, and return delegations"
        ),
        Replacement::Any => warn_seldom!(
            exports,
            luns,
            "events of ZFS were lost, or too many datasets got other content at once: any dataset \
             may have other content, and NFS clients write again what they have not committed, \
             and return delegations; if it happens again, raise the module parameter \
             zfs_zevent_len_max"
        ),
    }
}

/// Returns the mounts of ZFS file systems, without those of snapshots.
fn of_datasets(mounts: &[MountLine]) -> impl Iterator<Item = &MountLine> {
    mounts.iter().filter(|mount| mount.kind == b"zfs" && !mount.source.contains(&b'@'))
}
