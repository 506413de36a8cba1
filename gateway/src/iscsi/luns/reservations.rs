//! Persistent reservations in the state directory (APTPL): one file per logical
//! unit, named by its NAA identifier.

use super::state_files::StateFiles;
use crate::state_writer::StateWriter;
use bytes::Bytes;
use std::sync::Arc;
use zgate_scsi::ReservationStore;
use zgate_store::{StoreError, StoreFuture};

/// The gateway's [`ReservationStore`].
pub(crate) struct DirReservations {
    files: Arc<StateFiles>,
    writer: Arc<StateWriter>,
    name: String,
}

impl DirReservations {
    /// Creates the store of the logical unit with this identifier, in
    /// hexadecimal digits.
    pub(crate) fn new(files: Arc<StateFiles>, writer: Arc<StateWriter>, name: String) -> Self {
        Self { files, writer, name }
    }
}

fn failed(error: &std::io::Error) -> StoreError {
    tracing::error!(%error, "persistent reservations");
    StoreError::Io
}

impl ReservationStore for DirReservations {
    fn load<'a>(&'a self) -> StoreFuture<'a, Option<Bytes>> {
        let found = self.files.reservations(&self.name);
        let found = found.map(|image| image.map(Bytes::from)).map_err(|error| failed(&error));
        Box::pin(async move { found })
    }

    fn save<'a>(&'a self, image: Bytes) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let (dir, name) = (Arc::clone(&self.files.dir), self.name.clone());
            let saved = self.writer.run(move || dir.put_reservations(&name, &image)).await;
            saved.and_then(|saved| saved).map_err(|error| failed(&error))
        })
    }
}
