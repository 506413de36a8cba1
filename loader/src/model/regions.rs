//! Regions of a plan, many at a time: what is under way and not yet taken is
//! bounded, whatever memory the tensors lie in.

use super::LoadError;
use super::checksum::FileHash;
use super::plan::Region;
use crate::client::Client;
use crate::file::File;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::{JoinError, JoinSet};

/// The unit of the bound on memory.
const UNIT_BYTES: u64 = 4096;

/// The tensors of a region, and the room they take until they are taken.
pub(super) type Delivery<T> = (Result<Vec<T>, LoadError>, Option<OwnedSemaphorePermit>);

/// A bound on memory, in units.
pub(super) fn units(inflight_bytes: u64) -> u32 {
    (inflight_bytes / UNIT_BYTES).clamp(1, Semaphore::MAX_PERMITS as u64) as u32
}

/// Brings regions, each with its number, as far as there is room; then finds out
/// whether their files were changed meanwhile, and compares the checksums of
/// whole files.
pub(super) async fn bring<T: Send + 'static, F>(
    regions: impl IntoIterator<Item = (usize, Region)>,
    units: u32,
    (client, files): (&Client, &[(String, File)]),
    hashes: &[Mutex<FileHash>],
    sender: &mpsc::UnboundedSender<Delivery<T>>,
    one: impl Fn(usize, Region) -> F,
) where
    F: Future<Output = Result<Vec<T>, LoadError>> + Send + 'static,
{
    let room = Arc::new(Semaphore::new(units as usize));
    let mut running = JoinSet::new();
    let mut read = BTreeSet::new();
    for (number, region) in regions {
        let need = region.bytes.div_ceil(UNIT_BYTES).clamp(1, units.into()) as u32;
        let Ok(permit) = Arc::clone(&room).acquire_many_owned(need).await else { return };
        while let Some(ended) = running.try_join_next() {
            report(ended, sender);
        }
        read.insert(region.shard);
        let (tensors, sender) = (one(number, region), sender.clone());
        running.spawn(async move {
            let tensors = tensors.await;
            // Nobody waits when the load was dropped.
            let _ = sender.send((tensors, Some(permit)));
        });
    }
    while let Some(ended) = running.join_next().await {
        report(ended, sender);
    }
    for (name, file) in read.into_iter().filter_map(|number| files.get(number)) {
        if let Err(error) = unchanged(client, name, file).await {
            // Nobody waits when the load was dropped.
            let _ = sender.send((Err(error), None));
        }
    }
    for hash in hashes {
        let hash = std::mem::take(&mut *hash.lock().unwrap_or_else(PoisonError::into_inner));
        if let Err(error) = hash.finish() {
            let _ = sender.send((Err(error), None));
        }
    }
}

/// Fails when a file is known to have been changed after it was opened.
pub(super) async fn unchanged(client: &Client, name: &str, file: &File) -> Result<(), LoadError> {
    let file_name = || name.to_owned();
    match file.is_unchanged(client).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(LoadError::Changed { file: file_name() }),
        Err(source) => Err(LoadError::Client { what: file_name(), source }),
    }
}

/// A region that ended in a panic of ours must not look like the end of the
/// model.
fn report<T>(ended: Result<(), JoinError>, sender: &mpsc::UnboundedSender<Delivery<T>>) {
    if let Err(error) = ended {
        let reason = LoadError::Missing(format!("the load ended unexpectedly: {error}"));
        // Nobody waits when the load was dropped.
        let _ = sender.send((Err(reason), None));
    }
}

/// A part of a load that is gone.
pub(super) fn stopped<E>(_: E) -> LoadError {
    LoadError::Missing("the load was stopped".to_owned())
}
