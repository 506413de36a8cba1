//! Concurrent reads of a plan's regions, with a bound on the bytes in flight
//! and not yet taken, for any kind of memory.

use super::LoadError;
use super::checksum::FileHash;
use super::plan::Region;
use crate::client::Client;
use crate::file::File;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::{JoinError, JoinSet};

/// Unit of the bound on memory, in bytes.
const UNIT_BYTES: u64 = 4096;

/// Tensors of a region, and their permit for memory, held until they are taken.
pub(super) type Delivery<T> = (Result<Vec<T>, LoadError>, Option<OwnedSemaphorePermit>);

/// Converts a bound on memory to units; a bound of more units than there can be is the
/// largest one.
pub(super) fn units(inflight_bytes: u64) -> u32 {
    let most = u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX);
    (inflight_bytes / UNIT_BYTES).clamp(1, most.into()) as u32
}

/// Reads regions, each with its index, within the bound; then checks whether
/// their files were changed meanwhile, and compares the checksums of whole
/// files.
pub(super) async fn load_all<T: Send + 'static, F>(
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
            // If the load was dropped, nothing receives the tensors.
            let _ = sender.send((tensors, Some(permit)));
        });
    }
    while let Some(ended) = running.join_next().await {
        report(ended, sender);
    }
    for (name, file) in read.into_iter().filter_map(|number| files.get(number)) {
        if let Err(error) = unchanged(client, name, file).await {
            // If the load was dropped, nothing receives the error.
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

/// Fails if a file is known to have been changed after it was opened.
pub(super) async fn unchanged(client: &Client, name: &str, file: &File) -> Result<(), LoadError> {
    let file_name = || name.to_owned();
    match file.is_unchanged(client).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(LoadError::Changed { file: file_name() }),
        Err(source) => Err(LoadError::Client { what: file_name(), source }),
    }
}

/// Reports a panic in a region: it must not look like the end of the model.
fn report<T>(ended: Result<(), JoinError>, sender: &mpsc::UnboundedSender<Delivery<T>>) {
    if let Err(error) = ended {
        let reason = LoadError::Ended(format!("the load ended unexpectedly: {error}"));
        // If the load was dropped, nothing receives the error.
        let _ = sender.send((Err(reason), None));
    }
}

/// Error for a part of a load that was dropped.
pub(super) fn stopped<E>(_: E) -> LoadError {
    LoadError::Ended("the load was stopped".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_load_is_not_a_missing_file() {
        assert!(matches!(stopped(()), LoadError::Ended(_)));
        let full = std::io::ErrorKind::StorageFull.into();
        let error = super::super::reader::not_shared(&full);
        assert!(matches!(error, LoadError::SharedMemory(_)), "{error}");
    }

    #[test]
    fn a_bound_beyond_all_memory_is_the_largest() {
        assert_eq!(units(0), 1);
        assert_eq!(units(256 << 20), 65_536);
        for bytes in [1 << 44, 1 << 62, u64::MAX] {
            assert_eq!(units(bytes), u32::MAX, "{bytes}");
        }
    }
}
