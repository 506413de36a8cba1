//! Storage in which persistent reservations survive a power loss (APTPL, SPC-4
//! §5.13.5).

use bytes::Bytes;
use std::sync::{Mutex, PoisonError};
use zgate_store::StoreFuture;

/// Stores one opaque image for one logical unit.
pub trait ReservationStore: Send + Sync {
    /// Loads the image saved last, if any.
    fn load<'a>(&'a self) -> StoreFuture<'a, Option<Bytes>>;

    /// Replaces the image, which is on stable storage on return. An empty image
    /// means that there is nothing to keep.
    fn save<'a>(&'a self, image: Bytes) -> StoreFuture<'a, ()>;
}

/// Store in memory only, for tests and for targets that lose reservations with
/// the process.
#[derive(Debug, Default)]
pub struct MemoryReservations {
    image: Mutex<Option<Bytes>>,
}

impl ReservationStore for MemoryReservations {
    fn load<'a>(&'a self) -> StoreFuture<'a, Option<Bytes>> {
        let image = self.image.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Box::pin(async move { Ok(image) })
    }

    fn save<'a>(&'a self, image: Bytes) -> StoreFuture<'a, ()> {
        *self.image.lock().unwrap_or_else(PoisonError::into_inner) = Some(image);
        Box::pin(async { Ok(()) })
    }
}
