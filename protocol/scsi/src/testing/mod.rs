//! Test bench: a disk over a store in memory, a nexus, and methods to run
//! commands.

mod executor;
mod reservations;
mod store;
mod stream;

pub(crate) use reservations::PausingReservations;
pub(crate) use store::MemoryStore;

use crate::{
    AccessState, Asc, Cdb, Command, Disk, DiskConfig, Finished, LogicalUnits, Lun, Naa, Nexus,
    NexusId, PortGroup, Response, ScsiStatus, SenseKey, TargetPort, Task, TaskAttribute,
    TransportId, Work,
};
use bytes::Bytes;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use zgate_store::Payload;

pub(crate) struct Bench {
    pub(crate) disk: Arc<Disk>,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) nexus: Arc<Nexus>,
    pub(crate) reservations: Arc<PausingReservations>,
    config: DiskConfig,
}

fn config() -> DiskConfig {
    DiskConfig {
        vendor: "ZGATE".into(),
        product: "BENCH".into(),
        revision: "1".into(),
        serial: "0001".into(),
        naa: Naa::Long([0x6E, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]),
        logical_block_bytes: 512,
        physical_block_bytes: None,
        read_only: false,
        removable: false,
        write_cache: None,
        thin: true,
        sanitize: true,
        explicit_alua: false,
        state_elsewhere: false,
        token_secret: [7; 16],
        port_groups: vec![PortGroup {
            id: 1,
            preferred: false,
            state: AccessState::ActiveOptimized,
            ports: vec![TargetPort {
                relative_id: 1,
                target_name: "iqn.2026-01.test:target".into(),
                portal_group_tag: 1,
            }],
        }],
    }
}

pub(crate) fn nexus(id: u64) -> Arc<Nexus> {
    let isid = [0x80, 0, 0, 0, 0, u8::try_from(id).unwrap()];
    Arc::new(Nexus {
        id: NexusId(id),
        initiator: TransportId::iscsi_port("iqn.2026-01.test:initiator", isid),
        relative_port: 1,
    })
}

/// A command that is aborted when this says so.
pub(crate) struct AbortedWhen<F>(pub(crate) F);

impl<F: Fn() -> bool> Task for AbortedWhen<F> {
    fn is_aborted(&self) -> bool {
        (self.0)()
    }

    fn abort_others(&self, _which: &dyn Fn(&Nexus) -> bool) {}

    fn in_time<'a>(&'a self, work: Work<'a>) -> Finished<'a> {
        Box::pin(async move {
            work.await;
            true
        })
    }
}

/// Polls a command that cannot end yet until it has done something.
pub(crate) fn poll_until<F: Future>(mut command: Pin<&mut F>, has_done: impl Fn() -> bool) {
    let mut context = Context::from_waker(Waker::noop());
    while !has_done() {
        assert!(command.as_mut().poll(&mut context).is_pending());
    }
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut DiskConfig)) -> Self {
        let mut config = config();
        change(&mut config);
        let bench = Self::open(config, Arc::default(), Arc::default());
        bench.settle(&bench.nexus);
        bench
    }

    /// Returns two units, the logical units 0 and 1 of their initiator.
    pub(crate) fn pair() -> (Self, Self, LogicalUnits) {
        Self::pair_with(|_| {})
    }

    /// The same with another configuration of the second one.
    pub(crate) fn pair_with(change: impl FnOnce(&mut DiskConfig)) -> (Self, Self, LogicalUnits) {
        let second = |config: &mut DiskConfig| {
            config.naa = Naa::Short([0x5E, 0, 0, 0, 0, 0, 0, 2]);
            change(config);
        };
        let (first, second) = (Self::new(), Self::with(second));
        let units = [(Lun::ZERO, &first), (Lun::new(1).unwrap(), &second)];
        let units = LogicalUnits::new(units.map(|(lun, bench)| (lun, Arc::clone(&bench.disk))));
        (first, second, units)
    }

    fn open(
        config: DiskConfig,
        store: Arc<MemoryStore>,
        reservations: Arc<PausingReservations>,
    ) -> Self {
        let opening = Disk::open(
            config.clone(),
            Arc::clone(&store) as Arc<dyn zgate_store::BlockStore>,
            Arc::clone(&reservations) as Arc<dyn crate::ReservationStore>,
        );
        let disk = executor::block_on(opening).unwrap();
        Self { disk: Arc::new(disk), store, nexus: nexus(1), reservations, config }
    }

    /// Returns the same disk after a power loss.
    pub(crate) fn restarted(&self) -> Self {
        Self::open(self.config.clone(), Arc::clone(&self.store), Arc::clone(&self.reservations))
    }

    /// Returns the same unit, opened again while the present disk is in use.
    pub(crate) fn reopened(&self) -> Self {
        self.reopened_with(|_| {})
    }

    /// The same with another configuration.
    pub(crate) fn reopened_with(&self, change: impl FnOnce(&mut DiskConfig)) -> Self {
        let mut config = self.config.clone();
        change(&mut config);
        let (store, reservations) = (Arc::clone(&self.store), Arc::clone(&self.reservations));
        let disk = self.disk.reopen(config.clone(), store.clone(), reservations.clone()).unwrap();
        Self { disk: Arc::new(disk), store, nexus: Arc::clone(&self.nexus), reservations, config }
    }

    /// Creates a nexus that has already received its power-on attention.
    pub(crate) fn another_nexus(&self, id: u64) -> Arc<Nexus> {
        let nexus = nexus(id);
        self.settle(&nexus);
        nexus
    }

    /// Takes all unit attentions.
    pub(crate) fn settle(&self, nexus: &Arc<Nexus>) {
        loop {
            let sense = self.run_as(nexus, &[0; 6], b"").sense;
            if sense.is_none_or(|sense| sense.key != SenseKey::UnitAttention) {
                break;
            }
        }
    }

    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        executor::block_on(future)
    }

    pub(crate) fn command(&self, nexus: &Arc<Nexus>, cdb: &[u8], data_out: &[u8]) -> Command {
        Command {
            nexus: Arc::clone(nexus),
            cdb: Cdb::new(cdb),
            attribute: TaskAttribute::Simple,
            data_out: Bytes::copy_from_slice(data_out),
            data_out_offered_bytes: data_out.len() as u64,
        }
    }

    pub(crate) fn run_as(&self, nexus: &Arc<Nexus>, cdb: &[u8], data_out: &[u8]) -> Response {
        executor::block_on(self.disk.execute(self.command(nexus, cdb, data_out)))
    }

    pub(crate) fn run(&self, cdb: &[u8], data_out: &[u8]) -> Response {
        self.run_as(&self.nexus, cdb, data_out)
    }

    /// Runs a command that is aborted when `is_aborted` says so.
    pub(crate) fn run_until(
        &self,
        is_aborted: impl Fn() -> bool,
        cdb: &[u8],
        data_out: &[u8],
    ) -> Response {
        let (command, task) = (self.command(&self.nexus, cdb, data_out), AbortedWhen(is_aborted));
        executor::block_on(self.disk.execute_among(None, command, &task))
    }

    /// Runs two commands concurrently, on a store that pauses in every call.
    pub(crate) fn run_both(
        &self,
        first: (&[u8], &[u8]),
        second: (&[u8], &[u8]),
    ) -> (Response, Response) {
        self.store.pause_calls(true);
        let first = self.disk.execute(self.command(&self.nexus, first.0, first.1));
        let second = self.disk.execute(self.command(&self.nexus, second.0, second.1));
        let both = executor::block_on(futures_util::future::join(first, second));
        self.store.pause_calls(false);
        both
    }

    /// Asserts ILLEGAL REQUEST with this code.
    #[track_caller]
    pub(crate) fn refused(&self, cdb: &[u8], data_out: &[u8], asc: Asc) {
        let response = self.run(cdb, data_out);
        assert_eq!(response.status, ScsiStatus::CheckCondition, "{cdb:02x?}");
        let sense = response.sense.unwrap();
        assert_eq!((sense.key, sense.asc), (SenseKey::IllegalRequest, asc), "{cdb:02x?}");
    }

    #[track_caller]
    pub(crate) fn refused_as_not_ready(&self, cdb: &[u8]) {
        assert_eq!(self.run(cdb, b"").sense.unwrap().key, SenseKey::NotReady);
    }

    pub(crate) fn data(&self, response: &Response) -> Vec<u8> {
        match &response.data_in {
            Some(Payload::Bytes(bytes)) => bytes.to_vec(),
            Some(Payload::Span(_)) => panic!("the store reads into memory"),
            None => Vec::new(),
        }
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.disk.capacity_blocks()
    }

    /// Fills blocks of the store.
    pub(crate) fn fill(&self, lba: u64, blocks: u64, byte: u8) {
        self.store.fill(lba * 512, blocks * 512, byte);
    }

    /// Returns blocks of the store.
    pub(crate) fn content(&self, lba: u64, blocks: u64) -> Vec<u8> {
        self.store.content(lba * 512, blocks * 512)
    }
}
