//! Copies that continue after the reply to COPY (RFC 7862 §4.2).

use crate::v4::tables::ids::StateKey;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zgate_nfs_wire::v4::{ClientId, Stateid, Status};

/// Most copies of one client, finished ones included.
const MAX_JOBS_PER_CLIENT: usize = 64;

/// Progress of a copy.
#[derive(Debug, Default)]
pub struct Progress {
    copied: AtomicU64,
    cancelled: AtomicBool,
    ended: Mutex<Option<Status>>,
}

impl Progress {
    /// True if the copy must stop.
    #[must_use]
    pub fn cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Bytes copied so far.
    #[must_use]
    pub fn copied(&self) -> u64 {
        self.copied.load(Ordering::Relaxed)
    }

    /// Sets the bytes copied so far.
    pub fn set_copied(&self, bytes: u64) {
        self.copied.store(bytes, Ordering::Relaxed);
    }

    /// Ends the copy.
    pub fn end(&self, status: Status) {
        *self.ended() = Some(status);
    }

    fn ended(&self) -> MutexGuard<'_, Option<Status>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All copies by client and stateid.
#[derive(Debug, Default)]
pub struct CopyJobs {
    jobs: Mutex<HashMap<(ClientId, StateKey), Arc<Progress>>>,
}

impl CopyJobs {
    /// Adds a copy.
    ///
    /// # Errors
    /// [`Status::Delay`] if the client has too many.
    pub(crate) fn add(&self, client: ClientId, key: StateKey) -> Result<Arc<Progress>, Status> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if jobs.keys().filter(|(owner, _)| *owner == client).count() >= MAX_JOBS_PER_CLIENT {
            jobs.retain(|(owner, _), progress| *owner != client || progress.ended().is_none());
        }
        if jobs.keys().filter(|(owner, _)| *owner == client).count() >= MAX_JOBS_PER_CLIENT {
            return Err(Status::Delay);
        }
        let progress = Arc::new(Progress::default());
        jobs.insert((client, key), Arc::clone(&progress));
        Ok(progress)
    }

    fn get(&self, client: ClientId, stateid: Stateid) -> Result<Arc<Progress>, Status> {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.get(&(client, stateid.into())).cloned().ok_or(Status::BadStateid)
    }

    /// Bytes copied and, if it ended, the status.
    ///
    /// # Errors
    /// [`Status::BadStateid`].
    pub fn status(&self, client: ClientId, copy: Stateid) -> Result<(u64, Option<Status>), Status> {
        let progress = self.get(client, copy)?;
        let ended = *progress.ended();
        Ok((progress.copied(), ended))
    }

    /// Stops a copy and removes it.
    ///
    /// # Errors
    /// [`Status::BadStateid`].
    pub fn cancel(&self, client: ClientId, copy: Stateid) -> Result<(), Status> {
        self.get(client, copy)?.cancelled.store(true, Ordering::Release);
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.remove(&(client, copy.into()));
        Ok(())
    }

    /// Stops and removes all copies of an expired client.
    pub fn forget_client(&self, client: ClientId) {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.retain(|(owner, _), progress| {
            if *owner == client {
                progress.cancelled.store(true, Ordering::Release);
            }
            *owner != client
        });
    }
}
