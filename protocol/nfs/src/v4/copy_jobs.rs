//! Copies that continue after the reply to COPY (RFC 7862 §4.2).

use crate::changes::Changing;
use crate::v4::cx::Cx;
use crate::v4::state::ids::StateKey;
use crate::v4::state::io::IoFile;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::callback::CallbackOp;
use zgate_nfs_wire::v4::{ClientId, Stateid, Status};
use zgate_store::FileStore;

/// Bytes copied between two checks for a cancellation.
const STEP_BYTES: u64 = 16 << 20;
/// Most copies of one client, finished ones included.
const MAX_JOBS_PER_CLIENT: usize = 64;

/// A copy within one store.
pub struct Job {
    /// The store.
    pub store: Arc<dyn FileStore>,
    /// Open for reading.
    pub source: IoFile,
    /// Open for writing.
    pub target: IoFile,
    /// The change of the target.
    pub changing: Changing,
    /// First byte.
    pub from_offset: u64,
    /// Target offset.
    pub to_offset: u64,
    /// Bytes.
    pub count: u64,
}

/// Progress of a copy.
#[derive(Debug, Default)]
pub struct Progress {
    copied: AtomicU64,
    cancelled: AtomicBool,
    ended: Mutex<Option<Status>>,
}

/// All copies by client and stateid.
#[derive(Debug, Default)]
pub struct CopyJobs {
    jobs: Mutex<HashMap<(ClientId, StateKey), Arc<Progress>>>,
}

impl CopyJobs {
    fn add(&self, client: ClientId, key: StateKey) -> Result<Arc<Progress>, Status> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let over = |progress: &Progress| {
            progress.ended.lock().unwrap_or_else(PoisonError::into_inner).is_some()
        };
        if jobs.keys().filter(|(owner, _)| *owner == client).count() >= MAX_JOBS_PER_CLIENT {
            jobs.retain(|(owner, _), progress| *owner != client || !over(progress));
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
        let ended = *progress.ended.lock().unwrap_or_else(PoisonError::into_inner);
        Ok((progress.copied.load(Ordering::Relaxed), ended))
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

/// Copies; returns the bytes copied. After an error in the middle it returns
/// the bytes before.
///
/// # Errors
/// Errors of the store, if nothing was copied.
pub async fn run(job: &Job, progress: Option<&Progress>) -> Result<u64, Status> {
    let mut copied = 0;
    while copied < job.count {
        if progress.is_some_and(|p| p.cancelled.load(Ordering::Acquire)) {
            break;
        }
        let step = STEP_BYTES.min(job.count - copied);
        let (from, to) = (job.from_offset + copied, job.to_offset + copied);
        let copy = job.store.copy_range(&job.source, from, &job.target, to, step);
        match job.changing.in_store(copy).await {
            Ok(0) => break,
            Ok(bytes) => copied += bytes,
            Err(error) if copied == 0 => return Err(error.into()),
            Err(_) => break,
        }
        if let Some(progress) = progress {
            progress.copied.store(copied, Ordering::Relaxed);
        }
    }
    Ok(copied)
}

/// Starts a copy that sends CB_OFFLOAD to the client when it ends.
///
/// # Errors
/// [`Status::Delay`] if the client has too many copies.
pub fn start(cx: &Cx<'_>, job: Job, fh: Fh) -> Result<Stateid, Status> {
    let client = cx.session_client().ok_or(Status::OpNotInSession)?;
    let state = &cx.server.state;
    let key = state.ids.state();
    let progress = state.copies.add(client, key)?;
    let stateid = key.stateid(1);
    let verifier = cx.server.write_verifier.of(&*job.store);
    let tell = state.back.later(cx.server, &state.lock(), client);
    cx.server.runtime.spawn(Box::pin(async move {
        let result = run(&job, Some(&progress)).await;
        drop(job);
        let status = result.err().unwrap_or(Status::Ok);
        *progress.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
        if progress.cancelled.load(Ordering::Acquire) {
            return;
        }
        let bytes = progress.copied.load(Ordering::Relaxed);
        let op = CallbackOp::Offload { fh, stateid, status, bytes, committed: 0, verifier };
        if let Some(tell) = tell {
            // A client that does not receive it uses OFFLOAD_STATUS.
            let _ = tell.send(&[op]).await;
        }
    }));
    Ok(stateid)
}
