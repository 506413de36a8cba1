//! Client records in the state directory.

use super::state_dir::StateDir;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use zgate_nfs::v4::state::recovery::{ClientRecord, RecoveryStore};
use zgate_store::{StoreError, StoreResult};

#[derive(Serialize, Deserialize)]
struct Stored {
    name: Vec<u8>,
    minor_zero: bool,
}

/// The gateway's [`RecoveryStore`].
#[derive(Debug)]
pub(crate) struct DirRecovery {
    dir: Arc<StateDir>,
}

impl DirRecovery {
    pub(crate) fn new(dir: Arc<StateDir>) -> Self {
        Self { dir }
    }
}

impl RecoveryStore for DirRecovery {
    fn load(&self) -> Vec<ClientRecord> {
        let files = self.dir.clients().unwrap_or_else(|error| {
            tracing::error!(%error, "client records cannot be read: no client can reclaim");
            Vec::new()
        });
        let parse = |raw: &Vec<u8>| match serde_json::from_slice::<Stored>(raw) {
            Ok(stored) => Some(ClientRecord { name: stored.name, minor_zero: stored.minor_zero }),
            Err(error) => {
                tracing::error!(%error, "a client record is damaged; that client cannot reclaim");
                None
            }
        };
        files.iter().filter_map(parse).collect()
    }

    fn put(&self, record: &ClientRecord) -> StoreResult<()> {
        let stored = Stored { name: record.name.clone(), minor_zero: record.minor_zero };
        let raw = serde_json::to_vec(&stored).map_err(|_| StoreError::Io)?;
        self.dir.put_client(&record.name, &raw).map_err(|error| {
            tracing::error!(%error, "client record");
            StoreError::Io
        })
    }

    fn remove(&self, name: &[u8]) -> StoreResult<()> {
        self.dir.remove_client(name).map_err(|error| {
            tracing::error!(%error, "client record");
            StoreError::Io
        })
    }
}
