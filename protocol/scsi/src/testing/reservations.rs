//! A store of reservations in memory that can pause.

use super::executor;
use crate::{MemoryReservations, ReservationStore};
use bytes::Bytes;
use std::sync::atomic::{AtomicBool, Ordering};
use zgate_store::file_store::StoreFuture;

#[derive(Debug, Default)]
pub(crate) struct PausingReservations {
    saved: MemoryReservations,
    pauses: AtomicBool,
}

impl PausingReservations {
    pub(crate) fn pause_saves(&self, pauses: bool) {
        self.pauses.store(pauses, Ordering::Relaxed);
    }
}

impl ReservationStore for PausingReservations {
    fn load<'a>(&'a self) -> StoreFuture<'a, Option<Bytes>> {
        self.saved.load()
    }

    fn save<'a>(&'a self, image: Bytes) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            executor::pause(&self.pauses).await;
            self.saved.save(image).await
        })
    }
}
