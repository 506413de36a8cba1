//! State of the server: clients, sessions, opens, locks, delegations.
//!
//! The records are in [`crate::v4::tables`]. READ and WRITE take no global lock:
//! they find their session and their open file in sharded tables. Nor does GETATTR,
//! unless the file may have a write delegation. All other operations (OPEN, CLOSE,
//! LOCK, EXCHANGE_ID, recalls, expiry) use [`Tables`] behind one mutex that is held
//! for microseconds and never across an await. Files that they take from clients are
//! closed after it ([`HeldTables`]).

pub mod client;
pub mod copies;
pub mod delegated_attributes;
pub mod delegation;
pub mod expiry;
pub mod grace;
mod grace_waiters;
pub mod notify;
pub mod open;
pub mod recall;
pub mod records;
pub mod recovery;
pub mod removal;
pub mod revocation;
mod room;
pub mod settled;
pub mod shares;
pub mod stateids;
pub mod view;

use crate::changes::Changes;
use crate::runtime::Runtime;
use crate::v4::callback::BackChannels;
use crate::v4::tables::Tables;
use crate::v4::tables::held::HeldTables;
use crate::v4::tables::ids::IdSource;
use crate::v4::tables::index::IoIndex;
use crate::v4::tables::quota::Hosts;
use crate::v4::tables::session::SessionTable;
use crate::v4::tables::write_delegations::WriteDelegations;
use copies::CopyJobs;
use grace::{Grace, GracePeriod};
use grace_waiters::GraceWaiters;
use records::ClientRecords;
use recovery::RecoveryStore;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

/// All state of one server.
pub struct State {
    pub(crate) runtime: Arc<dyn Runtime>,
    tables: Mutex<Tables>,
    /// Set while any file has state; see [`HeldTables`].
    pub(crate) has_files: Arc<AtomicBool>,
    pub(crate) write_delegations: WriteDelegations,
    pub(crate) index: IoIndex,
    pub(crate) sessions: SessionTable,
    pub(crate) records: ClientRecords,
    pub(crate) grace: Grace,
    /// NFSv3 changes that wait for its end.
    grace_waiters: GraceWaiters,
    pub(crate) ids: IdSource,
    pub(crate) lease_seconds: u32,
    pub(crate) hosts: Hosts,
    pub(crate) back: BackChannels,
    pub(crate) changes: Changes,
    /// Asynchronous copies in progress and finished.
    pub copies: CopyJobs,
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
        let secret = runtime.random();
        Self {
            tables: Mutex::new(Tables::default()),
            has_files: Arc::default(),
            write_delegations: WriteDelegations::new(secret),
            index: IoIndex::default(),
            sessions: SessionTable::default(),
            records,
            grace,
            grace_waiters: GraceWaiters::default(),
            ids: IdSource::new(boot_epoch, Arc::clone(&runtime)),
            lease_seconds,
            hosts: Default::default(),
            back: BackChannels::new(Arc::clone(&runtime)),
            changes: Changes::new(secret),
            copies: Default::default(),
            runtime,
        }
    }

    /// Sets the number of files for which descriptors are available.
    #[must_use]
    pub fn with_open_files(self, files: usize) -> Self {
        Self { hosts: Hosts::with_open_files(files), ..self }
    }

    /// Sets it, and the memory that the state of all clients may take, in bytes.
    #[must_use]
    pub fn with_limits(self, files: usize, state_bytes: usize) -> Self {
        Self { hosts: Hosts::with_limits(files, state_bytes), ..self }
    }

    pub(crate) fn lock(&self) -> HeldTables<'_> {
        let tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        HeldTables::new(tables, &self.has_files)
    }

    /// Returns whether somebody holds the tables at this moment, for tests of what must not
    /// be done then.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        matches!(self.tables.try_lock(), Err(TryLockError::WouldBlock))
    }
}
