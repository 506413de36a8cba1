//! Syncs of the store, and the report of lost writes.

use super::block_range::BlockRange;
use super::{Disk, State};
use crate::nexus::Nexus;
use crate::sense::Asc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zgate_store::{StoreError, StoreResult};

impl State {
    /// Records a loss for all known nexuses but `told`.
    fn lose(&mut self, error: StoreError, told: Option<&Nexus>) {
        let here = self.nexuses.values().map(|known| Arc::clone(&known.nexus));
        let all: Vec<_> = here.chain(self.losses.gone.drain(..)).collect();
        for nexus in &all {
            if !told.is_some_and(|told| told.is_same_port(nexus)) {
                self.losses.owe(nexus, error);
            }
        }
    }
}

impl Disk {
    /// Brings all written data to stable storage, on behalf of an I_T nexus or,
    /// with `None`, of none.
    ///
    /// # Errors
    /// The store's error, or an earlier one that another nexus received and
    /// this I_T nexus has not.
    pub(crate) async fn sync_store(&self, on_behalf_of: Option<&Nexus>) -> StoreResult<()> {
        // This sync covers their earlier writes, unless one is still running.
        let mut covered = self.state().losses.gone.clone();
        covered.retain(|gone| !self.shared.running.any(|nexus| nexus.is_same_port(gone)));
        let synced = self.store.sync().await;
        let mut state = self.state();
        match synced {
            Ok(()) => {
                let is_covered = |one: &Arc<Nexus>| covered.iter().any(|c| Arc::ptr_eq(c, one));
                state.losses.gone.retain(|one| !is_covered(one));
                drop(state);
                on_behalf_of.map_or(Ok(()), |nexus| self.tell_loss(nexus))
            }
            Err(error) => {
                state.lose(error, on_behalf_of);
                self.shared.owes.store(!state.losses.owed.is_empty(), Ordering::Release);
                Err(error)
            }
        }
    }

    /// Empties a write cache that is to be off, with what the writes that run leave in it, then
    /// turns it off: with WCE=0, GOOD means that data is on the medium (SBC-4 §6.5.6). After a
    /// sync that fails, each host is told of the loss by its next write, which is stable then.
    pub(crate) async fn empty_cache(&self) {
        // Most of it while commands run: it may be gigabytes, and hosts give up after 30 s.
        let _ = self.sync_store(None).await;
        let _alone = self.shared.ranges.exclude(BlockRange::WHOLE).await;
        if !self.state().empties_cache {
            return;
        }
        // The loss is noted for all hosts.
        let _ = self.sync_store(None).await;
        let mut state = self.state();
        if std::mem::take(&mut state.empties_cache) {
            state.mode = state.mode.with_write_cache(false);
            state.raise_for_all(Asc::MODE_PARAMETERS_CHANGED);
        }
    }

    /// Reports writes lost earlier to an I_T nexus, once.
    ///
    /// # Errors
    /// The store's error at the time of the loss.
    pub(crate) fn tell_loss(&self, nexus: &Nexus) -> StoreResult<()> {
        if !self.shared.owes.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut state = self.state();
        let owed = &mut state.losses.owed;
        let found = owed.iter().position(|(one, _)| one.is_same_port(nexus));
        let told = found.map(|at| owed.swap_remove(at));
        self.shared.owes.store(!owed.is_empty(), Ordering::Release);
        told.map_or(Ok(()), |(_, error)| Err(error))
    }
}

#[cfg(test)]
mod tests {
    use crate::nexus::{Nexus, NexusId};
    use crate::sense::{Asc, ScsiStatus, SenseKey};
    use crate::testing::Bench;
    use std::sync::Arc;
    use zgate_store::StoreError;

    const SYNC: [u8; 10] = [0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    const WRITE: [u8; 10] = [0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    const WRITE_FUA: [u8; 10] = [0x2A, 0x08, 0, 0, 0, 0, 0, 0, 1, 0];

    /// Returns whether the command fails as a lost write does.
    fn is_told(bench: &Bench, nexus: &Arc<Nexus>, cdb: &[u8]) -> bool {
        let data: &[u8] = if cdb[0] == 0x2A { &[1; 512] } else { b"" };
        let response = bench.run_as(nexus, cdb, data);
        let lost = response.sense.is_some_and(|sense| {
            (sense.key, sense.asc) == (SenseKey::MediumError, Asc::WRITE_ERROR)
        });
        assert!(lost || response.status == ScsiStatus::Good, "{response:?}");
        lost
    }

    fn lose(bench: &Bench, told: &Arc<Nexus>) {
        bench.store.fail_writes(Some(StoreError::Io));
        assert!(is_told(bench, told, &SYNC));
        bench.store.fail_writes(None);
    }

    #[test]
    fn each_host_is_told_once() {
        let bench = Bench::new();
        let (one, two, three) =
            (bench.nexus.clone(), bench.another_nexus(2), bench.another_nexus(3));
        lose(&bench, &one);
        assert!(!is_told(&bench, &one, &SYNC), "it has been told");
        assert!(!is_told(&bench, &two, &WRITE), "nothing is promised yet");
        assert!(is_told(&bench, &two, &SYNC));
        assert!(!is_told(&bench, &two, &SYNC));
        assert!(is_told(&bench, &three, &WRITE_FUA));
        assert!(!is_told(&bench, &three, &SYNC));
        // A nexus created later has lost nothing.
        assert!(!is_told(&bench, &bench.another_nexus(4), &SYNC));
    }

    #[test]
    fn a_command_that_is_no_flush_of_the_host_does_not_use_the_report_up() {
        // READ (10) with FUA, and MODE SELECT (6) that turns the cache off.
        const READ_FUA: [u8; 10] = [0x28, 0x08, 0, 0, 0, 0, 0, 0, 1, 0];
        let bench = Bench::new();
        let (one, two) = (bench.nexus.clone(), bench.another_nexus(2));
        let mut caching = bench.data(&bench.run(&[0x1A, 0x08, 0x08, 0, 255, 0], b""));
        (caching[0], caching[2]) = (0, 0);
        caching[6] &= !0x04;
        let cache_off = [0x15, 0x10, 0, 0, u8::try_from(caching.len()).unwrap(), 0];
        lose(&bench, &one);
        assert!(!is_told(&bench, &two, &READ_FUA));
        assert!(is_told(&bench, &two, &SYNC), "a lost write is not a failed read");
        // Whose sync finds the loss fails, and the host is told by its next flush.
        bench.store.fail_writes(Some(StoreError::Io));
        assert!(is_told(&bench, &two, &READ_FUA));
        bench.store.fail_writes(None);
        assert!(is_told(&bench, &two, &SYNC));
        lose(&bench, &one);
        assert_eq!(bench.run_as(&two, &cache_off, &caching).status, ScsiStatus::Good);
        assert!(is_told(&bench, &two, &WRITE), "now that each write is stable");
    }

    #[test]
    fn a_host_is_told_where_the_unit_is_opened_again() {
        let bench = Bench::new();
        let (one, two) = (bench.nexus.clone(), bench.another_nexus(2));
        lose(&bench, &one);
        let after = bench.reopened();
        after.settle(&two);
        assert!(is_told(&after, &two, &SYNC));
        assert!(!is_told(&after, &two, &SYNC));
    }

    #[test]
    fn a_host_that_comes_back_is_told() {
        let bench = Bench::new();
        let (one, two) = (bench.nexus.clone(), bench.another_nexus(2));
        is_told(&bench, &two, &WRITE);
        bench.disk.nexus_lost(two.id);
        lose(&bench, &one);
        let back = Arc::new(Nexus { id: NexusId(9), ..Nexus::clone(&two) });
        bench.settle(&back);
        assert!(is_told(&bench, &back, &SYNC));
        // Data synced before the nexus ended is not lost.
        bench.disk.nexus_lost(back.id);
        assert!(!is_told(&bench, &one, &SYNC));
        lose(&bench, &one);
        let again = Arc::new(Nexus { id: NexusId(10), ..Nexus::clone(&two) });
        bench.settle(&again);
        assert!(!is_told(&bench, &again, &SYNC));
    }
}
