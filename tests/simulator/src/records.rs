//! Client records on a simulated disk: a change is durable after a delay, and
//! one that is not yet durable may be lost with the server.

use crate::dice::Dice;
use crate::disk::Disk;
use crate::executor::{Domain, Executor, MILLISECOND, lock};
use crate::mutant::Mutant;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use zgate_nfs::v4::state::recovery::{ClientRecord, Completion, KeptRecords, RecoveryStore};
use zgate_store::StoreError;

type Kept = Arc<Mutex<BTreeMap<Vec<u8>, ClientRecord>>>;

/// Records that outlive servers.
pub struct Records {
    executor: Arc<Executor>,
    disk: Arc<Disk>,
    kept: Kept,
    dice: Mutex<Dice>,
    mutant: Option<Mutant>,
}

impl Records {
    /// No records.
    #[must_use]
    pub fn new(disk: &Arc<Disk>, seed: u64, mutant: Option<Mutant>) -> Arc<Self> {
        Arc::new(Self {
            executor: Arc::clone(disk.executor()),
            disk: Arc::clone(disk),
            kept: Kept::default(),
            dice: Mutex::new(Dice::new(seed, "records")),
            mutant,
        })
    }

    fn change(
        &self,
        domain: Domain,
        done: Completion,
        effect: impl FnOnce(&mut BTreeMap<Vec<u8>, ClientRecord>) + Send + 'static,
    ) {
        let (before, after) = {
            let mut dice = lock(&self.dice);
            (dice.spread(1000, 100 * MILLISECOND), dice.spread(1000, MILLISECOND))
        };
        if self.mutant == Some(Mutant::RecordsNotSynced) {
            // Long enough for a power loss to come first.
            let (executor, kept) = (Arc::clone(&self.executor), Arc::clone(&self.kept));
            self.executor.spawn(domain, async move {
                executor.sleep(before * 1000).await;
                effect(&mut lock(&kept));
            });
            return done.report(Ok(()));
        }
        let (executor, kept) = (Arc::clone(&self.executor), Arc::clone(&self.kept));
        let disk = Arc::clone(&self.disk);
        let unfenced = self.mutant == Some(Mutant::RecordsUnfenced);
        self.executor.spawn(domain, async move {
            executor.sleep(before).await;
            // They lie on the disk, too.
            disk.way_is_open().await;
            if disk.refuses_current() && !unfenced {
                return done.report(Err(StoreError::Io));
            }
            effect(&mut lock(&kept));
            executor.sleep(after).await;
            done.report(Ok(()));
        });
    }
}

/// The records as one server uses them: its changes end with it.
pub struct ServerRecords {
    /// The records.
    pub records: Arc<Records>,
    /// The server.
    pub domain: Domain,
}

impl RecoveryStore for ServerRecords {
    fn load(&self) -> KeptRecords {
        if self.records.mutant == Some(Mutant::NoGrace) {
            return KeptRecords::default();
        }
        let forgets = self.records.mutant == Some(Mutant::RecordsForgotten);
        let read = |number: &usize| !forgets || number.is_multiple_of(2);
        let kept = lock(&self.records.kept);
        let records = (0..).zip(kept.values()).filter(|(number, _)| read(number));
        let records = records.map(|(_, record)| record.clone()).collect();
        KeptRecords { records, damaged: false }
    }

    fn put(&self, record: ClientRecord, done: Completion) {
        self.records.change(self.domain, done, move |kept| {
            kept.insert(record.name.clone(), record);
        });
    }

    fn remove(&self, name: Vec<u8>, done: Completion) {
        self.records.change(self.domain, done, move |kept| {
            kept.remove(&name);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::History;
    use crate::trace::Trace;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_record_is_durable_when_it_is_reported_and_may_be_lost_before() {
        let executor = Executor::new(1);
        let trace = Arc::new(Trace::new(Arc::clone(&executor)));
        let history = Arc::new(History::new(Arc::clone(&executor), Arc::clone(&trace)));
        let disk = Disk::new(&executor, &history, &trace, 1, None);
        let records = Records::new(&disk, 1, None);
        let of = |number| ServerRecords {
            records: Arc::clone(&records),
            domain: Domain::Server(number),
        };
        let record = ClientRecord {
            name: b"c".to_vec(),
            minor_zero: false,
            principal: None,
            shown: None,
            revoked: false,
        };
        let reported = Arc::new(AtomicBool::new(false));
        let tell = Arc::clone(&reported);
        of(1).put(record.clone(), Completion::new(|outcome| assert!(outcome.is_err())));
        executor.end(Domain::Server(1));
        assert!(of(2).load().records.is_empty());
        of(2).put(record.clone(), Completion::new(move |_| tell.store(true, Ordering::Release)));
        executor.run(|| reported.load(Ordering::Acquire));
        assert_eq!(of(3).load().records, [record]);
    }
}
