//! Runs a copy, before the reply to COPY or after it.

use crate::changes::ChangeGuard;
use crate::v4::request::Cx;
use crate::v4::request::io::IoFile;
use crate::v4::state::copies::Progress;
use std::sync::Arc;
use zgate_nfs_wire::v4::callback::CallbackOp;
use zgate_nfs_wire::v4::{Fh, Stateid, Status};
use zgate_store::FileStore;

/// Bytes copied between two checks for a cancellation.
const STEP_BYTES: u64 = 16 << 20;

/// A copy within one store.
pub(super) struct Job {
    /// The store.
    pub(super) store: Arc<dyn FileStore>,
    /// Open for reading.
    pub(super) source: IoFile,
    /// Open for writing.
    pub(super) target: IoFile,
    /// The change of the target.
    pub(super) changing: ChangeGuard,
    /// First byte.
    pub(super) from_offset: u64,
    /// Target offset.
    pub(super) to_offset: u64,
    /// Bytes.
    pub(super) count: u64,
}

/// Copies; returns the bytes copied. After an error in the middle it returns
/// the bytes before.
///
/// # Errors
/// Errors of the store, if nothing was copied.
pub(super) async fn run(job: &Job, progress: Option<&Progress>) -> Result<u64, Status> {
    let mut copied = 0;
    while copied < job.count {
        if progress.is_some_and(Progress::cancelled) {
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
            progress.set_copied(copied);
        }
    }
    Ok(copied)
}

/// Starts a copy that sends CB_OFFLOAD to the client when it ends, and again until the
/// client knows (state/copies.rs).
///
/// # Errors
/// [`Status::Delay`] if the client has too many copies, [`Status::StaleClientid`] if it is
/// gone: nobody would stop its copy.
pub(super) fn start(cx: &Cx<'_>, job: Job, fh: Fh) -> Result<Stateid, Status> {
    let client = cx.session_client().ok_or(Status::OpNotInSession)?;
    let state = &cx.server.state;
    let key = state.ids.state();
    let (progress, target) = {
        let tables = state.lock();
        let record = tables.clients.get(&client).ok_or(Status::StaleClientid)?;
        let progress = state.copies.add(client, &record.host, key)?;
        (progress, state.back.later(&tables, client))
    };
    let stateid = key.stateid(1);
    let verifier = cx.server.write_verifier.of(&*job.store);
    let runtime = Arc::clone(&state.runtime);
    let at_last = progress.ended_at_last();
    cx.server.runtime.spawn(Box::pin(async move {
        // It is dropped after the job: until then the copy may write.
        let (_at_last, job) = (at_last, job);
        let result = run(&job, Some(&progress)).await;
        drop(job);
        let status = result.err().unwrap_or(Status::Ok);
        let bytes = progress.copied();
        let op = CallbackOp::Offload { fh, stateid, status, bytes, committed: 0, verifier };
        progress.end(status, op.clone(), runtime.now().seconds());
        if progress.cancelled() {
            return;
        }
        if let Some(target) = target {
            progress.tell(&target, op).await;
        }
    }));
    Ok(stateid)
}
