//! Client records on a shelf that survives the server, and that can be slow or
//! broken.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use zgate_nfs::v4::state::recovery::{ClientRecord, Completion, KeptRecords, RecoveryStore};
use zgate_store::StoreError;

/// A change that storage was asked for.
enum Change {
    Put(ClientRecord),
    Remove(Vec<u8>),
}

#[derive(Default)]
struct Inside {
    records: BTreeMap<Vec<u8>, ClientRecord>,
    damaged: bool,
    broken: bool,
    /// Changes that wait, when changes wait.
    held: Option<Vec<(Change, Completion)>>,
    puts: usize,
}

/// The shelf.
#[derive(Default)]
pub(crate) struct Shelf(Mutex<Inside>);

impl Shelf {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap()
    }

    pub(crate) fn names(&self) -> Vec<Vec<u8>> {
        self.inside().records.keys().cloned().collect()
    }

    /// Changes fail from now on, or no longer.
    pub(crate) fn set_broken(&self, broken: bool) {
        self.inside().broken = broken;
    }

    /// One record more cannot be read at the next start.
    pub(crate) fn damage(&self) {
        self.inside().damaged = true;
    }

    /// Changes wait from now on.
    pub(crate) fn hold(&self) {
        self.inside().held = Some(Vec::new());
    }

    /// Changes that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.inside().held.as_ref().map_or(0, Vec::len)
    }

    /// Records that were asked to be kept so far.
    pub(crate) fn puts(&self) -> usize {
        self.inside().puts
    }

    /// Lets what waits go on; later changes do not wait.
    pub(crate) fn release(&self) {
        let held = self.inside().held.take().unwrap_or_default();
        for (change, done) in held {
            self.apply(change, done);
        }
    }

    /// The server goes down: what waits never happens.
    pub(crate) fn lose_what_waits(&self) {
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

impl RecoveryStore for Shelf {
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
