//! Read delegations (RFC 8881 §10.4): while a server delegates a file, it
//! recalls the delegation before any change of the file.

use super::open_state::OpenState;
use super::returns::{HeldState, StateReturns};
use crate::callback::Holder;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::op::open::Delegated;
use zgate_nfs_wire::v4::{Stateid, Status};

/// Most recalls of unknown delegations that are remembered.
const MAX_EARLY: usize = 256;

/// Identity of a delegation: its stateid without the sequence number.
type Name = [u8; 12];

/// Numbers of delegations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DelegationCounts {
    /// Held now.
    pub held: u64,
    /// Granted by the server so far.
    pub granted: u64,
    /// Recalled by the server so far.
    pub recalled: u64,
    /// Lost so far: revoked, or not granted again after a restart.
    pub lost: u64,
}

#[derive(Debug, Default)]
struct Table {
    /// In an order that is the same in every process.
    held: BTreeMap<Name, Weak<OpenState>>,
    /// Number of OPENs in flight that request one.
    asking: usize,
    /// Unknown delegations recalled while OPENs were in flight: the reply to
    /// one of these may still bring them (RFC 8881 §2.10.6.3).
    early: Vec<Name>,
}

/// All delegations of a client.
#[derive(Debug, Default)]
pub(crate) struct Delegations {
    table: Mutex<Table>,
    returns: StateReturns,
    granted: AtomicU64,
    recalled: AtomicU64,
    lost: AtomicU64,
}

/// An OPEN in flight.
#[derive(Debug)]
pub(crate) struct Asking<'a>(&'a Delegations);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut table = self.0.table();
        table.asking -= 1;
        if table.asking == 0 {
            table.early.clear();
        }
    }
}

impl Delegations {
    fn table(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the queue of state to be returned.
    pub(crate) fn returns(&self) -> &StateReturns {
        &self.returns
    }

    /// Counts an OPEN that requests a delegation until the result is dropped.
    pub(crate) fn asking(&self) -> Asking<'_> {
        self.table().asking += 1;
        Asking(self)
    }

    /// Records the delegation that an OPEN returned.
    pub(crate) fn accept(&self, open: &Arc<OpenState>, delegated: &Delegated) {
        let (stateid, wanted) = match *delegated {
            Delegated::Read { stateid, recall, .. } => (stateid, !recall),
            // It was not requested.
            Delegated::Write { stateid, .. } => (stateid, false),
            Delegated::None | Delegated::NoneBecause(_) => return,
        };
        self.granted.fetch_add(1, Ordering::Relaxed);
        open.set_delegation(stateid);
        let mut table = self.table();
        table.held.insert(stateid.other, Arc::downgrade(open));
        let recalled = table.early.contains(&stateid.other);
        drop(table);
        if recalled || !wanted {
            self.give_back(open, stateid);
        }
    }

    /// Removes a delegation.
    pub(crate) fn remove(&self, stateid: Stateid) {
        self.table().held.remove(&stateid.other);
    }

    /// Counts a delegation that was lost without a recall.
    pub(crate) fn count_lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes the file use its open stateid from now on, and schedules the
    /// return of the delegation.
    pub(crate) fn give_back(&self, open: &OpenState, stateid: Stateid) {
        if let Some(stateid) = open.take_delegation(stateid) {
            self.hand_over(open.fh.clone(), stateid);
        }
    }

    fn hand_over(&self, fh: Fh, stateid: Stateid) {
        self.returns.push(HeldState { fh, open: None, delegation: Some(stateid) });
    }

    /// Schedules the return of all but `keep` delegations.
    pub(crate) fn give_back_all_but(&self, keep: usize) {
        let held: Vec<Weak<OpenState>> = self.table().held.values().cloned().collect();
        for open in held.iter().skip(keep).filter_map(Weak::upgrade) {
            if let Some(stateid) = open.delegation() {
                self.give_back(&open, stateid);
            }
        }
    }

    pub(crate) fn counts(&self) -> DelegationCounts {
        DelegationCounts {
            held: self.table().held.len() as u64,
            granted: self.granted.load(Ordering::Relaxed),
            recalled: self.recalled.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
        }
    }
}

impl Holder for Delegations {
    fn recall(&self, stateid: Stateid) -> Status {
        let mut table = self.table();
        let Some(open) = table.held.get(&stateid.other).cloned() else {
            if table.asking == 0 {
                return Status::BadStateid;
            }
            if table.early.len() >= MAX_EARLY {
                return Status::Delay;
            }
            table.early.push(stateid.other);
            self.recalled.fetch_add(1, Ordering::Relaxed);
            return Status::Ok;
        };
        drop(table);
        self.recalled.fetch_add(1, Ordering::Relaxed);
        // A file that was dropped meanwhile returns it anyway.
        if let Some(open) = open.upgrade() {
            self.give_back(&open, stateid);
        }
        Status::Ok
    }

    fn recall_any(&self, keep: usize) {
        self.give_back_all_but(keep);
    }
}

#[cfg(test)]
mod tests {
    use super::super::open_state::OpenOwners;
    use super::*;

    fn stateid(name: u8) -> Stateid {
        Stateid { seqid: 1, other: [name; 12] }
    }

    fn read(name: u8) -> Delegated {
        Delegated::Read { stateid: stateid(name), recall: false, attrs: false }
    }

    fn open(all: &Arc<Delegations>) -> Arc<OpenState> {
        let owner = OpenOwners::default().next();
        Arc::new(OpenState::new(Fh(vec![1]), (owner, 1), stateid(100), 5, all))
    }

    #[test]
    fn a_recall_switches_back_to_the_open_and_returns() {
        let all = Arc::new(Delegations::default());
        let open = open(&all);
        all.accept(&open, &read(1));
        assert_eq!(open.delegation(), Some(stateid(1)));
        assert!(!open.has_lost_delegation());
        assert_eq!(all.recall(stateid(2)), Status::BadStateid);
        assert_eq!(all.recall(stateid(1)), Status::Ok);
        assert_eq!((open.delegation(), open.known()), (None, Some(stateid(100))));
        assert!(open.has_lost_delegation());
        let given = all.returns().drain();
        assert_eq!(given.len(), 1);
        assert_eq!((given[0].open, given[0].delegation), (None, Some(stateid(1))));
        let expected = DelegationCounts { held: 0, granted: 1, recalled: 1, lost: 0 };
        assert_eq!(all.counts(), expected);
    }

    #[test]
    fn a_recall_may_come_before_what_it_recalls() {
        let all = Arc::new(Delegations::default());
        let open = open(&all);
        let asking = all.asking();
        assert_eq!(all.recall(stateid(1)), Status::Ok);
        all.accept(&open, &read(1));
        drop(asking);
        assert_eq!(open.delegation(), None);
        assert_eq!(all.returns().drain().len(), 1);
        // It is not remembered forever.
        assert_eq!(all.recall(stateid(1)), Status::BadStateid);
    }

    #[test]
    fn a_file_that_goes_gives_everything_back() {
        let all = Arc::new(Delegations::default());
        let gone = open(&all);
        all.accept(&gone, &read(1));
        drop(gone);
        let given = all.returns().drain();
        assert_eq!(given.len(), 1);
        assert_eq!((given[0].open, given[0].delegation), (Some(stateid(100)), Some(stateid(1))));
        assert_eq!(all.counts().held, 0);

        let opens: Vec<_> = (0..5).map(|_| open(&all)).collect();
        for (name, open) in opens.iter().enumerate() {
            all.accept(open, &read(name as u8));
        }
        all.recall_any(2);
        assert_eq!((all.counts().held, all.returns().drain().len()), (2, 3));
    }
}
