//! The store of the logical unit, whose calls take time and fail, and its
//! persistent reservations on stable storage.

use crate::dice::Dice;
use crate::disk::Disk;
use crate::executor::{Domain, Executor, MILLISECOND, lock};
use crate::mutant::Mutant;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use zgate_memory::FileOp;
use zgate_scsi::ReservationStore;
use zgate_store::block_store::{BlockGeometry, Extent};
use zgate_store::{BlockStore, Payload, StoreError, StoreFuture};

/// The disk behind the logical unit, as one server sees it.
pub struct UnitStore {
    /// The disk.
    pub disk: Arc<Disk>,
    /// Planted fault.
    pub mutant: Option<Mutant>,
    /// Writes that run.
    pub running: Arc<RunningWrites>,
}

/// Times at which the running writes of one server began.
#[derive(Default)]
pub struct RunningWrites(Mutex<(u64, BTreeMap<u64, u64>)>);

impl RunningWrites {
    fn begin(self: &Arc<Self>, nanos: u64) -> RunningWrite {
        let mut inside = lock(&self.0);
        inside.0 += 1;
        let number = inside.0;
        inside.1.insert(number, nanos);
        RunningWrite { all: Arc::clone(self), number }
    }

    /// Returns whether a write runs that began before this time.
    #[must_use]
    pub fn any_before(&self, nanos: u64) -> bool {
        lock(&self.0).1.values().any(|began| *began < nanos)
    }
}

/// A write, while it runs.
struct RunningWrite {
    all: Arc<RunningWrites>,
    number: u64,
}

impl Drop for RunningWrite {
    fn drop(&mut self) {
        lock(&self.all.0).1.remove(&self.number);
    }
}

/// Calls that differ in nothing but their kind.
macro_rules! pass {
    ($($op:ident $name:ident($($arg:ident: $kind:ty),*) -> $result:ty;)*) => {$(
        fn $name<'a>(&'a self, $($arg: $kind),*) -> StoreFuture<'a, $result> {
            Box::pin(async move {
                self.disk.reach(FileOp::$op).await?;
                let result = self.disk.blocks.$name($($arg),*).await;
                self.disk.leave().await;
                result
            })
        }
    )*};
}

impl BlockStore for UnitStore {
    fn geometry(&self) -> BlockGeometry {
        self.disk.blocks.geometry()
    }

    fn read_to_send<'a>(&'a self, offset: u64, len: usize) -> StoreFuture<'a, Payload> {
        self.read(offset, len)
    }

    fn write<'a>(&'a self, offset: u64, data: Bytes, fua: bool) -> StoreFuture<'a, ()> {
        let fua = fua && self.mutant != Some(Mutant::FuaIgnored);
        Box::pin(async move {
            let _running = self.running.begin(self.disk.nanos());
            self.disk.reach(FileOp::Write).await?;
            let result = self.disk.blocks.write(offset, data, fua).await;
            self.disk.leave().await;
            result
        })
    }

    fn sync<'a>(&'a self) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.disk.reach(FileOp::Commit).await?;
            if self.mutant == Some(Mutant::FlushIgnored) {
                return Ok(());
            }
            self.disk.blocks.sync().await
        })
    }

    fn admit_change<'a>(&'a self) -> StoreFuture<'a, ()> {
        self.disk.blocks.admit_change()
    }

    fn discard<'a>(&'a self, offset: u64, len: u64) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.disk.reach(FileOp::Write).await?;
            if self.mutant == Some(Mutant::UnmapIgnored) {
                return Ok(());
            }
            self.disk.blocks.discard(offset, len).await
        })
    }

    pass! {
        Read read(offset: u64, len: usize) -> Payload;
        Write write_zeroes(offset: u64, len: u64, may_unmap: bool) -> ();
        Read extents(offset: u64, len: u64, max: usize) -> Vec<Extent>;
        Read prefetch(offset: u64, len: u64) -> ();
        Read refresh() -> u64;
    }
}

/// Reservations that outlive servers.
pub struct Reservations {
    executor: Arc<Executor>,
    disk: Arc<Disk>,
    kept: Arc<Mutex<Option<Bytes>>>,
    dice: Mutex<Dice>,
    mutant: Option<Mutant>,
}

impl Reservations {
    /// No reservations.
    #[must_use]
    pub fn new(disk: &Arc<Disk>, seed: u64, mutant: Option<Mutant>) -> Arc<Self> {
        Arc::new(Self {
            executor: Arc::clone(disk.executor()),
            disk: Arc::clone(disk),
            kept: Arc::default(),
            dice: Mutex::new(Dice::new(seed, "reservations")),
            mutant,
        })
    }
}

/// The reservations as one server uses them: its saves end with it.
pub(super) struct ServerReservations {
    /// The reservations.
    pub all: Arc<Reservations>,
    /// The server.
    pub domain: Domain,
}

impl ReservationStore for ServerReservations {
    fn load<'a>(&'a self) -> StoreFuture<'a, Option<Bytes>> {
        let forgets = self.all.mutant == Some(Mutant::ReservationsForgotten);
        let kept = lock(&self.all.kept).clone().filter(|_| !forgets);
        Box::pin(async move { Ok(kept) })
    }

    fn save<'a>(&'a self, image: Bytes) -> StoreFuture<'a, ()> {
        let nanos = lock(&self.all.dice).spread(1000, 100 * MILLISECOND);
        let (executor, kept) = (Arc::clone(&self.all.executor), Arc::clone(&self.all.kept));
        Box::pin(async move {
            if self.all.mutant == Some(Mutant::ReservationsNotSynced) {
                let later = Arc::clone(&executor);
                executor.spawn(self.domain, async move {
                    later.sleep(nanos * 1000).await;
                    *lock(&kept) = Some(image);
                });
                return Ok(());
            }
            executor.sleep(nanos).await;
            if self.all.disk.refuses_current() {
                return Err(StoreError::Io);
            }
            *lock(&kept) = Some(image);
            executor.sleep(nanos / 8).await;
            Ok(())
        })
    }
}
