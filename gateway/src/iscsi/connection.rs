//! A connection as seen by its session, independent of the transport: executes
//! the session's requests and counts running commands.

use super::execute::{execute, weight};
use super::limits::{
    MAX_QUEUED_BYTES, MAX_RUNNING, MAX_RUNNING_BYTES, RESERVED_BYTES, SEND_BATCH_BYTES,
};
use super::login::Admitted;
use super::service::IscsiService;
use super::session::{ConnectionHandle, LiveSession, Work};
use super::stats::Stats;
use super::task_management;
use crate::net::connection_end::ConnectionEnd;
use crate::net::in_flight::InFlight;
use crate::net::memory_quota::MemoryReservation;
use crate::observe::data_path;
use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use std::collections::VecDeque;
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zgate_iscsi::limits::BHS_BYTES;
use zgate_iscsi::login::Transport;
use zgate_iscsi::pdu::{Frame, Lun as WireLun, Outgoing, TaskFunction};
use zgate_iscsi::session::{Command, Completion, FunctionTag, Session, TaskTag};
use zgate_scsi::ScsiStatus;
use zgate_store::Payload;

/// A command's result; `None` after a task management function.
pub(crate) type Finished = Option<(TaskTag, Completion)>;

/// The PDUs that a connection may take in; each kind includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Intake {
    Nothing,
    /// Those without data, and pings and texts: they need no memory beyond the reserve of the
    /// connection.
    WithoutData,
    All,
}

/// A connection that has logged in.
pub(crate) struct InitiatorConnection {
    pub connection: Arc<ConnectionHandle>,
    pub block: Arc<IscsiService>,
    pub admitted: Admitted,
    /// Local address of the connection.
    pub local: Option<SocketAddr>,
    /// Set when the gateway stops: no more requests are read.
    pub is_draining: bool,
    running: Running,
    /// Approximate number of bytes queued in the session for this connection.
    left_bytes: usize,
    todo: VecDeque<Work>,
}

/// Commands and functions in progress, and the memory of the connection.
struct Running {
    in_flight: InFlight<Finished>,
    /// Commands that have arrived and wait for room, in order. Their number is bounded
    /// by the command window, and their data by the session's limits on it.
    parked: VecDeque<Box<Command>>,
    /// Bytes of their data.
    parked_bytes: usize,
    /// Memory of the commands and of the transmit queue.
    memory: MemoryReservation,
    unsent_bytes: usize,
    /// Bytes of commands counted in the metric.
    counted_bytes: usize,
}

impl Running {
    fn new(memory: MemoryReservation) -> Self {
        Self {
            in_flight: InFlight::default(),
            parked: VecDeque::new(),
            parked_bytes: 0,
            memory,
            unsent_bytes: 0,
            counted_bytes: 0,
        }
    }

    /// Returns whether the commands that run leave room for another one.
    fn has_room(&self) -> bool {
        self.in_flight.len() < MAX_RUNNING && self.in_flight.bytes() < MAX_RUNNING_BYTES
    }

    fn park(&mut self, command: Box<Command>) {
        self.parked_bytes += data_bytes(&command);
        self.parked.push_back(command);
    }

    /// Takes the oldest parked command.
    fn unpark(&mut self) -> Option<Box<Command>> {
        let command = self.parked.pop_front()?;
        self.parked_bytes -= data_bytes(&command);
        Some(command)
    }

    /// Takes the parked commands that were aborted: they never begin.
    fn take_aborted(&mut self, session: &Session) -> Vec<TaskTag> {
        let (mut aborted, parked_bytes) = (Vec::new(), &mut self.parked_bytes);
        self.parked.retain(|command| {
            let is_aborted = session.is_aborted(command.task);
            if is_aborted {
                *parked_bytes -= data_bytes(command);
                aborted.push(command.task);
            }
            !is_aborted
        });
        aborted
    }

    /// Begins parked commands whose connection has ended, as far as there is room.
    fn begin_alone(
        &mut self,
        live: &Arc<LiveSession>,
        block: &Arc<IscsiService>,
        carrier: data_path::Transport,
    ) {
        for task in live.with_engine(|session| self.take_aborted(session)) {
            live.with(|session| session.complete(task, never_begun()));
        }
        while self.has_room()
            && let Some(command) = self.unpark()
        {
            let bytes = weight(&command);
            self.in_flight.push(bytes, run_command(block, live, command, carrier));
        }
    }

    /// Updates the counted memory.
    fn count(&mut self, stats: &Stats) {
        let bytes = self.in_flight.bytes();
        self.memory.set_about(bytes + self.parked_bytes + self.unsent_bytes);
        if bytes == self.counted_bytes {
            return;
        }
        let before = std::mem::replace(&mut self.counted_bytes, bytes);
        // Wraps around if the number decreases.
        stats.running_bytes.fetch_add((bytes.wrapping_sub(before)) as u64, Ordering::Relaxed);
    }
}

/// Returns the bytes of a command's data.
fn data_bytes(command: &Command) -> usize {
    command.data_out.iter().map(Bytes::len).sum()
}

/// Returns the result of a command that was aborted before it began.
fn never_begun() -> Completion {
    Completion { status: ScsiStatus::TaskAborted as u8, ..Completion::default() }
}

/// Returns the transport of the data of a connection.
pub(crate) fn carrier(transport: Transport) -> data_path::Transport {
    match transport {
        Transport::Tcp => data_path::Transport::Iscsi,
        Transport::Iser => data_path::Transport::Iser,
    }
}

impl InitiatorConnection {
    pub(crate) fn new(
        connection: Arc<ConnectionHandle>,
        block: Arc<IscsiService>,
        admitted: Admitted,
        local: Option<SocketAddr>,
        memory: MemoryReservation,
    ) -> Self {
        Self {
            connection,
            block,
            admitted,
            local,
            is_draining: false,
            running: Running::new(memory),
            left_bytes: 0,
            todo: VecDeque::new(),
        }
    }

    /// Calls the engine and collects the work it requests.
    pub(crate) fn drive<T>(
        &mut self,
        call: impl FnOnce(&mut zgate_iscsi::session::Session) -> T,
    ) -> T {
        self.admitted.live.drive(self.admitted.handle, &mut self.todo, call)
    }

    /// Gives a PDU to the session.
    pub(crate) fn handle_pdu(&mut self, frame: Frame) {
        let (handle, now) = (self.admitted.handle, self.block.now());
        self.drive(|session| session.handle_pdu(handle, frame, now));
    }

    /// Tells the session about bytes that are not a PDU; returns the end of the
    /// connection.
    pub(crate) fn framing_error(&mut self, error: impl Display) -> ConnectionEnd {
        let (handle, now) = (self.admitted.handle, self.block.now());
        self.drive(|session| session.handle_framing_error(handle, now));
        ConnectionEnd::framing(error)
    }

    /// Takes what came about elsewhere, at the beginning and when its handle is woken.
    pub(crate) fn catch_up(&mut self) {
        self.drive(|_| {});
    }

    /// Takes the session's PDUs for this connection, on top of `unsent_bytes`
    /// already queued. Returns them, and whether there are no others that could
    /// be sent now.
    pub(crate) fn take_outgoing(&mut self, unsent_bytes: usize) -> (Vec<Outgoing>, bool) {
        let room = MAX_QUEUED_BYTES.saturating_sub(unsent_bytes);
        let (mut taken, mut bytes) = (Vec::new(), 0);
        let left = self.admitted.live.with_engine(|session| {
            while bytes < SEND_BATCH_BYTES.min(room) {
                let Some(pdu) = session.poll_transmit(self.admitted.handle) else { return 0 };
                bytes += pdu.data_bytes() + BHS_BYTES;
                taken.push(pdu);
            }
            session.queued_bytes(self.admitted.handle)
        });
        self.left_bytes = left;
        (taken, left == 0 || room == 0)
    }

    /// Updates the memory of the connection, which has `unsent_bytes` queued
    /// for the peer.
    pub(crate) fn count_memory(&mut self, unsent_bytes: usize) {
        self.running.unsent_bytes = unsent_bytes + self.left_bytes;
        self.running.count(&self.block.stats);
    }

    /// Warns that data of the initiator is thrown away from now on.
    pub(crate) fn warn_of_discards(&self) {
        tracing::warn!(
            initiator = %self.admitted.live.key.initiator,
            "writes are answered with TASK SET FULL, long pings and texts with a Reject: there is \
             no memory for their data; see server.buffers, or whether storage hangs"
        );
    }

    /// Returns the transport of its data.
    pub(crate) fn carrier(&self) -> data_path::Transport {
        carrier(self.admitted.login.transport)
    }

    /// Returns what may be read, with `unsent_bytes` queued for the peer. Requests are while
    /// as many commands run as may, and all but unasked data while there is no memory: the
    /// initiator must be able to abort commands, to ping and to log out when storage hangs.
    /// Commands that come then are parked.
    pub(crate) fn intake(&self, unsent_bytes: usize) -> Intake {
        if self.is_draining {
            Intake::Nothing
        } else if self.has_memory(unsent_bytes) {
            Intake::All
        } else if unsent_bytes + self.left_bytes < RESERVED_BYTES {
            Intake::WithoutData
        } else {
            Intake::Nothing
        }
    }

    /// Returns whether another command may begin.
    fn may_begin(&self, unsent_bytes: usize) -> bool {
        self.running.has_room() && self.has_memory(unsent_bytes)
    }

    /// Returns whether there is memory for another command. Under memory pressure, a
    /// connection waits for the end of its own commands, and until their results are sent.
    /// Solicited data already has its memory: it is not part of this wait.
    fn has_memory(&self, unsent_bytes: usize) -> bool {
        let Running { in_flight, memory, .. } = &self.running;
        let waiting_helps = !in_flight.is_empty() || unsent_bytes + self.left_bytes > 0;
        unsent_bytes < MAX_QUEUED_BYTES && (!waiting_helps || memory.may_take())
    }

    /// Returns whether commands wait for room.
    pub(crate) fn has_parked(&self) -> bool {
        !self.running.parked.is_empty()
    }

    /// Returns whether a parked command can begin now.
    pub(crate) fn may_go_on(&self, unsent_bytes: usize) -> bool {
        self.has_parked() && self.may_begin(unsent_bytes)
    }

    /// Returns whether no command runs or waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.running.in_flight.is_empty() && !self.has_parked()
    }

    /// Waits for the next work to finish; forever, if none runs.
    pub(crate) async fn finished(&mut self) -> Finished {
        match self.running.in_flight.next().await {
            Some(finished) => finished,
            None => std::future::pending().await,
        }
    }

    /// Handles the events of the session, with `unsent_bytes` queued for the peer.
    pub(crate) async fn work(&mut self, unsent_bytes: usize) {
        loop {
            self.end_aborted();
            self.begin_parked(unsent_bytes).await;
            let Some(work) = self.todo.pop_front() else { return };
            match work {
                Work::Run(command) => self.running.park(command),
                Work::Function { tag, function, lun } => {
                    let live = &self.admitted.live;
                    let run = run_function(&self.block, live, tag, function, lun);
                    self.running.in_flight.push(0, run);
                }
                Work::SendTargets { tag, scope } => {
                    let local = self.local;
                    let live = &self.admitted.live;
                    let targets =
                        self.block.listing(&scope, &live.key.initiator, live.address, local);
                    self.drive(|session| session.answer_send_targets(tag, &targets));
                }
                Work::Ended(reason) => {
                    tracing::info!(
                        session = self.admitted.live.tsih.0,
                        ?reason,
                        "iSCSI session ended"
                    );
                    self.block.end_session(&self.admitted.live);
                }
            }
        }
    }

    /// Ends the parked commands that were aborted.
    fn end_aborted(&mut self) {
        if !self.has_parked() {
            return;
        }
        let running = &mut self.running;
        let aborted = self.admitted.live.with_engine(|session| running.take_aborted(session));
        for task in aborted {
            self.drive(|session| session.complete(task, never_begun()));
        }
    }

    /// Begins parked commands, as far as there is room.
    async fn begin_parked(&mut self, unsent_bytes: usize) {
        while self.may_go_on(unsent_bytes) {
            let Some(command) = self.running.unpark() else { return };
            self.start(command).await;
        }
        if self.has_parked() {
            self.running.count(&self.block.stats);
        }
    }

    async fn start(&mut self, command: Box<Command>) {
        let bytes = weight(&command);
        let run = run_command(&self.block, &self.admitted.live, command, self.carrier());
        match self.running.in_flight.start(bytes, run).await {
            Some(finished) => self.finish(finished),
            None => self.running.count(&self.block.stats),
        }
    }

    /// Gives the result of what has ended to the session.
    pub(crate) fn finish(&mut self, finished: Finished) {
        let Some((tag, completion)) = finished else { return };
        let bytes = completion.data_in.iter().map(Payload::len).sum::<usize>();
        self.left_bytes += bytes;
        self.running.unsent_bytes += bytes;
        self.drive(|session| session.complete(tag, completion));
        self.running.count(&self.block.stats);
    }
}

impl Drop for InitiatorConnection {
    /// Handles the loss of the connection. Running commands are finished all
    /// the same: if they were dropped, they would be forgotten while the
    /// storage still writes.
    fn drop(&mut self) {
        let (handle, now) = (self.admitted.handle, self.block.now());
        self.drive(|session| session.handle_closed(handle, now));
        let Admitted { login, live, .. } = &self.admitted;
        // No other task may take the session for a live one any more.
        if self.todo.iter().any(|work| matches!(work, Work::Ended(_))) {
            self.block.end_session(live);
        }
        live.remove_connection(handle);
        self.block.connection_ended(live, login);
        let memory = self.running.memory.beside();
        tokio::task::spawn_local(run_out(
            std::mem::replace(&mut self.running, Running::new(memory)),
            std::mem::take(&mut self.todo),
            Arc::clone(live),
            Arc::clone(&self.block),
            self.carrier(),
        ));
    }
}

/// Waits for running commands to end without their connection. Later work of
/// the session is done here, unless another connection does it.
async fn run_out(
    mut running: Running,
    mut todo: VecDeque<Work>,
    live: Arc<LiveSession>,
    block: Arc<IscsiService>,
    carrier: data_path::Transport,
) {
    // This connection's own work is dropped with it; later work may belong to
    // another one.
    while let Some(work) = todo.pop_front() {
        run_on(work, &mut running, &live, &block);
    }
    running.unsent_bytes = 0;
    loop {
        // From before the look at what is aborted, so that none is missed.
        let aborted = live.aborted();
        running.begin_alone(&live, &block, carrier);
        running.count(&block.stats);
        if running.in_flight.is_empty() {
            let later = if live.connections().is_empty() { live.take_work() } else { None };
            let Some(work) = later else { return };
            run_on(work, &mut running, &live, &block);
            continue;
        }
        tokio::select! {
            finished = running.in_flight.next() => {
                if let Some((tag, completion)) = finished.flatten() {
                    live.with(|session| session.complete(tag, completion));
                }
            }
            // Parked ones end at once, also while storage hangs.
            () = aborted => {}
        }
    }
}

/// Takes on work of a session that has no connection.
fn run_on(work: Work, running: &mut Running, live: &Arc<LiveSession>, block: &Arc<IscsiService>) {
    match work {
        Work::Run(command) => running.park(command),
        Work::Function { tag, function, lun } => {
            running.in_flight.push(0, run_function(block, live, tag, function, lun));
        }
        Work::SendTargets { .. } => {}
        Work::Ended(_) => block.end_session(live),
    }
}

fn run_command(
    block: &Arc<IscsiService>,
    live: &Arc<LiveSession>,
    command: Box<Command>,
    carrier: data_path::Transport,
) -> LocalBoxFuture<'static, Finished> {
    let (block, live) = (Arc::clone(block), Arc::clone(live));
    Box::pin(async move { Some(execute(&block, &live, command, carrier).await) })
}

fn run_function(
    block: &Arc<IscsiService>,
    live: &Arc<LiveSession>,
    tag: FunctionTag,
    function: TaskFunction,
    lun: WireLun,
) -> LocalBoxFuture<'static, Finished> {
    let (block, live) = (Arc::clone(block), Arc::clone(live));
    Box::pin(async move {
        task_management::carry_out(&block, &live, tag, function, lun).await;
        None
    })
}
