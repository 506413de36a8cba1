//! In place of a store that cannot be opened now: the shape that it had, without its content.

use bytes::Bytes;
use zgate_store::block_store::{BlockGeometry, Extent};
use zgate_store::{BlockStore, Payload, StoreError, StoreFuture};

/// A store of this geometry that reads and writes nothing.
pub(super) struct AbsentStore(pub(super) BlockGeometry);

fn refused<'a, T: Send + 'a>() -> StoreFuture<'a, T> {
    Box::pin(async { Err(StoreError::Io) })
}

impl BlockStore for AbsentStore {
    fn geometry(&self) -> BlockGeometry {
        self.0
    }

    fn read<'a>(&'a self, _offset: u64, _len: usize) -> StoreFuture<'a, Payload> {
        refused()
    }

    fn read_to_send<'a>(&'a self, _offset: u64, _len: usize) -> StoreFuture<'a, Payload> {
        refused()
    }

    fn write<'a>(&'a self, _offset: u64, _data: Bytes, _fua: bool) -> StoreFuture<'a, ()> {
        refused()
    }

    fn sync<'a>(&'a self) -> StoreFuture<'a, ()> {
        refused()
    }

    fn admit_change<'a>(&'a self) -> StoreFuture<'a, ()> {
        refused()
    }

    fn discard<'a>(&'a self, _offset: u64, _len: u64) -> StoreFuture<'a, ()> {
        refused()
    }

    fn write_zeroes<'a>(
        &'a self,
        _offset: u64,
        _len: u64,
        _may_unmap: bool,
    ) -> StoreFuture<'a, ()> {
        refused()
    }

    fn extents<'a>(&'a self, _offset: u64, _len: u64, _max: usize) -> StoreFuture<'a, Vec<Extent>> {
        refused()
    }

    fn prefetch<'a>(&'a self, _offset: u64, _len: u64) -> StoreFuture<'a, ()> {
        refused()
    }

    fn refresh<'a>(&'a self) -> StoreFuture<'a, u64> {
        refused()
    }
}
