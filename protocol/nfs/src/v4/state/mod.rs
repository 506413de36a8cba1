//! State of the server: clients, sessions, opens, locks, delegations.
//!
//! Two layers, so that READ and WRITE take no global lock. They find their
//! session in [`session::SessionTable`] and their open file in
//! [`index::IoIndex`], both sharded. All other operations (OPEN, CLOSE, LOCK,
//! EXCHANGE_ID, recalls, expiry) use [`tables::Tables`] behind one mutex that
//! is held for microseconds and never across an await.

pub mod buried;
pub mod client;
pub mod delegation;
pub mod departed;
pub mod expiry;
pub mod file;
pub mod grace;
pub mod hosts;
pub mod ids;
pub mod index;
mod interval_tree;
pub mod io;
pub mod lease;
pub mod notify;
pub mod ongoing;
pub mod open;
pub mod owner;
pub mod quota;
pub mod ranges;
pub mod recall;
pub mod records;
pub mod recovery;
pub mod reply_memory;
pub(crate) mod sequenced;
pub mod session;
pub mod shares;
pub mod tables;
pub mod view;

use crate::runtime::Runtime;
use crate::v4::callback::BackChannels;
use grace::{Grace, GracePeriod};
use ids::IdSource;
use index::IoIndex;
use records::ClientRecords;
use recovery::RecoveryStore;
use session::SessionTable;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tables::Tables;

/// All state of one server.
pub struct State {
    pub(crate) tables: Mutex<Tables>,
    pub(crate) index: IoIndex,
    pub(crate) sessions: SessionTable,
    pub(crate) records: ClientRecords,
    pub(crate) grace: Grace,
    pub(crate) ids: IdSource,
    pub(crate) lease_seconds: u32,
    pub(crate) hosts: quota::Hosts,
    pub(crate) back: BackChannels,
    pub(crate) changes: crate::changes::Changes,
    /// Asynchronous copies in progress and finished.
    pub copies: crate::v4::copy_jobs::CopyJobs,
}

impl State {
    /// The state of a starting server: empty except for the records of the
    /// clients that may reclaim.
    #[must_use]
    pub fn new(
        boot_epoch: u32,
        lease_seconds: u32,
        grace: GracePeriod,
        recovery: Arc<dyn RecoveryStore>,
        started_seconds: u64,
        runtime: Arc<dyn Runtime>,
    ) -> Self {
        let records = ClientRecords::new(recovery);
        let grace = Grace::new(records.load(), started_seconds, grace);
        Self {
            tables: Mutex::new(Tables::default()),
            index: IoIndex::default(),
            sessions: SessionTable::default(),
            records,
            grace,
            ids: IdSource::new(boot_epoch, runtime),
            lease_seconds,
            hosts: Default::default(),
            back: BackChannels::default(),
            changes: Default::default(),
            copies: Default::default(),
        }
    }

    /// Sets the number of files for which descriptors are available.
    #[must_use]
    pub fn with_open_files(self, files: usize) -> Self {
        Self { hosts: quota::Hosts::with_open_files(files), ..self }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
