//! Commands and functions of one connection that run, and commands that wait for room.

use super::execute::{execute, weight};
use super::service::IscsiService;
use super::session::LiveSession;
use super::shares::{Place, Shares};
use super::stats::{Family, Stats};
use super::task_management;
use crate::net::in_flight::InFlight;
use crate::net::memory_quota::MemoryReservation;
use crate::observe::data_path;
use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use zgate_iscsi::pdu::{Lun as WireLun, TaskFunction};
use zgate_iscsi::session::{Command, Completion, FunctionTag, Session, TaskTag};
use zgate_scsi::{Lun, ScsiStatus};

/// A command that has ended.
pub(crate) struct Ended {
    task: TaskTag,
    completion: Completion,
    place: Option<Place>,
    bytes: usize,
}

/// A command's result; `None` after a task management function.
pub(crate) type Finished = Option<Ended>;

/// A command that has arrived, and waits for room.
pub(super) struct Waiting {
    pub command: Box<Command>,
    place: Option<Place>,
}

/// Commands and functions in progress, and the memory of the connection.
pub(super) struct Running {
    pub in_flight: InFlight<Finished>,
    pub shares: Shares,
    /// Commands that have arrived and wait for room, in order. Their number is bounded
    /// by the command window, and their data by the session's limits on it.
    waiting: VecDeque<Waiting>,
    /// Bytes of their data.
    waiting_bytes: usize,
    /// The last ones of them that have come since the last look at what is aborted.
    unseen: usize,
    /// Aborts of the session at that look.
    aborts: u32,
    /// Memory of the commands and of the transmit queue.
    pub memory: MemoryReservation,
    pub unsent_bytes: usize,
    /// Bytes of commands counted in the metric.
    counted_bytes: usize,
}

impl Running {
    pub(super) fn new(memory: MemoryReservation) -> Self {
        Self {
            in_flight: InFlight::default(),
            shares: Shares::default(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            unseen: 0,
            aborts: 0,
            memory,
            unsent_bytes: 0,
            counted_bytes: 0,
        }
    }

    /// Has a command wait for room.
    pub(super) fn park(&mut self, command: Box<Command>, live: &LiveSession) {
        let (lun, lun_map) = (Lun::parse(command.lun.0.to_be_bytes()), live.lun_map());
        let place = lun.and_then(|lun| {
            let unit = lun_map.units.get(&lun)?;
            Some(Place { lun, storage: unit.volume.storage() })
        });
        if let Some(place) = place {
            self.shares.note(place);
        }
        self.waiting_bytes += data_bytes(&command);
        self.waiting.push_back(Waiting { command, place });
        self.unseen += 1;
    }

    /// Returns whether commands wait for room.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns whether one of them has room.
    pub(super) fn has_room(&self) -> bool {
        self.first_with_room().is_some()
    }

    /// Takes the oldest one that has room. Those of one logical unit stay in order: where the
    /// first of them has no room, the others have none.
    pub(super) fn next_to_begin(&mut self) -> Option<Waiting> {
        let at = self.first_with_room()?;
        let next = self.waiting.remove(at)?;
        self.waiting_bytes -= data_bytes(&next.command);
        Some(next)
    }

    fn first_with_room(&self) -> Option<usize> {
        // Many of one unit may wait: it is looked up once.
        let mut full = None;
        self.waiting.iter().position(|one| {
            let has_room = full != Some(one.place) && self.shares.has_room(one.place);
            full = Some(one.place);
            has_room
        })
    }

    /// Takes those that were aborted: they never begin.
    pub(super) fn take_aborted(&mut self, session: &Session) -> Vec<TaskTag> {
        let unseen = std::mem::take(&mut self.unseen);
        let before = std::mem::replace(&mut self.aborts, session.aborts());
        let is_aborted = |one: &Waiting| session.is_aborted(one.command.task);
        // Many may wait, and this is asked with each command that begins or ends.
        if before == self.aborts && !self.waiting.iter().rev().take(unseen).any(is_aborted) {
            return Vec::new();
        }
        let aborted = self.take(|one, _| is_aborted(one));
        aborted.iter().map(|one| one.command.task).collect()
    }

    /// Takes those without room whose logical unit, or its storage, has not answered for
    /// `patience`. The only unit of a session keeps its commands: they are in nobody's way.
    pub(super) fn take_stalled(&mut self, patience: Duration) -> VecDeque<Waiting> {
        if self.next_stall(patience).is_none_or(|at| at > Instant::now()) {
            return VecDeque::new();
        }
        let now = Instant::now();
        self.take(|one, shares| one.stalls_at(shares, patience).is_some_and(|at| at <= now))
    }

    /// Returns the moment from which on [`Self::take_stalled`] takes a command, unless another
    /// one begins or ends before.
    pub(super) fn next_stall(&self, patience: Duration) -> Option<Instant> {
        let mut last = None;
        let of_others = |one: &&Waiting| last.replace(one.place) != Some(one.place);
        let units = self.waiting.iter().filter(of_others);
        units.filter_map(|one| one.stalls_at(&self.shares, patience)).min()
    }

    fn take(&mut self, takes: impl Fn(&Waiting, &Shares) -> bool) -> VecDeque<Waiting> {
        let Self { waiting, shares, .. } = self;
        if !waiting.iter().any(|one| takes(one, shares)) {
            return VecDeque::new();
        }
        let all = std::mem::take(waiting).into_iter();
        let (taken, left): (VecDeque<_>, VecDeque<_>) = all.partition(|one| takes(one, shares));
        self.waiting = left;
        self.waiting_bytes -= taken.iter().map(|one| data_bytes(&one.command)).sum::<usize>();
        taken
    }

    /// Counts a command that begins; returns its work, and the bytes it is counted with.
    pub(super) fn begin(
        &mut self,
        next: Waiting,
        block: &Arc<IscsiService>,
        live: &Arc<LiveSession>,
        carrier: data_path::Transport,
    ) -> (usize, LocalBoxFuture<'static, Finished>) {
        let Waiting { command, place } = next;
        let bytes = weight(&command);
        self.shares.begin(place, bytes);
        let (block, live) = (Arc::clone(block), Arc::clone(live));
        let work: LocalBoxFuture<'static, Finished> = Box::pin(async move {
            let (task, completion) = execute(&block, &live, command, carrier).await;
            Some(Ended { task, completion, place, bytes })
        });
        (bytes, work)
    }

    /// Begins a task management function.
    pub(super) fn begin_function(
        &mut self,
        (tag, function, lun): (FunctionTag, TaskFunction, WireLun),
        block: &Arc<IscsiService>,
        live: &Arc<LiveSession>,
    ) {
        let (block, live) = (Arc::clone(block), Arc::clone(live));
        let work: LocalBoxFuture<'static, Finished> = Box::pin(async move {
            task_management::carry_out(&block, &live, tag, function, lun).await;
            None
        });
        self.in_flight.push(0, work);
    }

    /// Counts a command that has ended; returns its result.
    pub(super) fn end(&mut self, ended: Ended) -> (TaskTag, Completion) {
        let Ended { task, completion, place, bytes } = ended;
        self.shares.end(place, bytes);
        (task, completion)
    }

    /// Begins commands whose connection has ended, as far as there is room.
    pub(super) fn begin_alone(
        &mut self,
        live: &Arc<LiveSession>,
        block: &Arc<IscsiService>,
        carrier: data_path::Transport,
    ) {
        for task in live.with_engine(|session| self.take_aborted(session)) {
            live.with(|session| session.complete(task, never_begun()));
        }
        while let Some(next) = self.next_to_begin() {
            if next.command.holds_memory {
                live.with(|session| session.begun(next.command.task));
            }
            let (bytes, work) = self.begin(next, block, live, carrier);
            self.in_flight.push(bytes, work);
        }
    }

    /// Updates the counted memory.
    pub(super) fn count(&mut self, stats: &Stats) {
        let bytes = self.in_flight.bytes();
        self.memory.set_about(bytes + self.waiting_bytes + self.unsent_bytes);
        if bytes == self.counted_bytes {
            return;
        }
        stats.bytes_running(std::mem::replace(&mut self.counted_bytes, bytes), bytes);
    }
}

impl Waiting {
    /// Returns the moment from which on it is not to wait any more. One that waits for memory
    /// alone does.
    fn stalls_at(&self, shares: &Shares, patience: Duration) -> Option<Instant> {
        let place = self.place.filter(|_| !shares.has_room(self.place))?;
        shares.quiet_for(place, patience)
    }

    /// Returns the number of its logical unit.
    pub(super) fn lun(&self) -> Option<u16> {
        Lun::parse(self.command.lun.0.to_be_bytes()).map(Lun::number)
    }

    /// Returns the family of the command.
    pub(super) fn family(&self) -> Family {
        Family::of(self.command.cdb.first().copied().unwrap_or_default())
    }
}

/// Returns the bytes of a command's data.
fn data_bytes(command: &Command) -> usize {
    command.data_out.iter().map(Bytes::len).sum()
}

/// Returns the result of a command that was aborted before it began.
pub(super) fn never_begun() -> Completion {
    Completion { status: ScsiStatus::TaskAborted as u8, ..Completion::default() }
}

/// Returns the result of a command that its logical unit has no room for (SAM-5 §5.3.1).
pub(super) fn refused() -> Completion {
    Completion { status: ScsiStatus::TaskSetFull as u8, ..Completion::default() }
}
