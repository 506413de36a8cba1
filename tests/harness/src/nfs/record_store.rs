//! Client records that survive the server; the store can be slow or
//! broken.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use zgate_nfs::v4::state::recovery::{ClientRecord, Completion, KeptRecords, RecoveryStore};
use zgate_store::StoreError;

/// A requested change.
enum Change {
    Put(ClientRecord),
    Remove(Vec<u8>),
}

#[derive(Default)]
struct Inside {
    records: BTreeMap<Vec<u8>, ClientRecord>,
    damaged: bool,
    broken: bool,
    /// Delayed changes, if changes are delayed.
    held: Option<Vec<(Change, Completion)>>,
    puts: usize,
}

/// The records.
#[derive(Default)]
pub struct RecordStore(Mutex<Inside>);

impl RecordStore {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap()
    }

    pub fn names(&self) -> Vec<Vec<u8>> {
        self.inside().records.keys().cloned().collect()
    }

    /// Sets whether changes fail from now on.
    pub fn set_broken(&self, broken: bool) {
        self.inside().broken = broken;
    }

    /// Makes one more record unreadable at the next start.
    pub fn damage(&self) {
        self.inside().damaged = true;
    }

    /// Delays all changes from now on.
    pub fn hold(&self) {
        self.inside().held = Some(Vec::new());
    }

    /// Number of delayed changes.
    pub fn waiting(&self) -> usize {
        self.inside().held.as_ref().map_or(0, Vec::len)
    }

    /// Number of requested writes so far.
    pub fn puts(&self) -> usize {
        self.inside().puts
    }

    /// Executes the delayed changes; later ones are not delayed.
    pub fn release(&self) {
        let held = self.inside().held.take().unwrap_or_default();
        for (change, done) in held {
            self.apply(change, done);
        }
    }

    /// Drops the delayed changes, as in a crash of the server.
    pub fn lose_what_waits(&self) {
        let held = self.inside().held.take();
        drop(held);
    }

    fn ask(&self, change: Change, done: Completion) {
        let mut inside = self.inside();
        match &mut inside.held {
            Some(held) => held.push((change, done)),
            None => {
                drop(inside);
                self.apply(change, done);
            }
        }
    }

    fn apply(&self, change: Change, done: Completion) {
        let outcome = {
            let mut inside = self.inside();
            match change {
                _ if inside.broken => Err(StoreError::NoSpace),
                Change::Put(record) => {
                    inside.records.insert(record.name.clone(), record);
                    Ok(())
                }
                Change::Remove(name) => {
                    inside.records.remove(&name);
                    Ok(())
                }
            }
        };
        done.report(outcome);
    }
}

impl RecoveryStore for RecordStore {
    fn load(&self) -> KeptRecords {
        let inside = self.inside();
        KeptRecords { records: inside.records.values().cloned().collect(), damaged: inside.damaged }
    }

    fn put(&self, record: ClientRecord, done: Completion) {
        self.inside().puts += 1;
        self.ask(Change::Put(record), done);
    }

    fn remove(&self, name: Vec<u8>, done: Completion) {
        self.ask(Change::Remove(name), done);
    }
}
