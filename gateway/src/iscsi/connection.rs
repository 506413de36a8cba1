//! A connection as seen by its session, independent of the transport: executes
//! the session's requests.

use super::limits::{MAX_QUEUED_BYTES, MEMORY_RETRY, RESERVED_BYTES, SEND_BATCH_BYTES};
use super::login::Admitted;
use super::running::{Finished, Running, Waiting, never_begun, refused};
use super::service::IscsiService;
use super::session::{ConnectionHandle, LiveSession, Work};
use crate::net::connection_end::ConnectionEnd;
use crate::net::memory_quota::MemoryReservation;
use crate::observe::data_path;
use crate::observe::throttle::warn_seldom;
use std::collections::VecDeque;
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use zgate_iscsi::limits::BHS_BYTES;
use zgate_iscsi::login::Transport;
use zgate_iscsi::pdu::{Frame, Outgoing};
use zgate_scsi::ScsiStatus;
use zgate_store::Payload;

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
        let window = self.drive(|session| session.window_per_connection());
        self.running.shares.set_window(window);
    }

    /// Takes the session's PDUs for this connection, on top of `unsent_bytes`
    /// already queued. Returns them, and whether there are no others that could
    /// be sent now.
    pub(crate) fn take_outgoing(&mut self, unsent_bytes: usize) -> (Vec<Outgoing>, bool) {
        let room = MAX_QUEUED_BYTES.saturating_sub(unsent_bytes);
        let (mut taken, mut bytes) = (Vec::new(), 0);
        let (left, window) = self.admitted.live.with_engine(|session| {
            while bytes < SEND_BATCH_BYTES.min(room)
                && let Some(pdu) = session.poll_transmit(self.admitted.handle)
            {
                bytes += pdu.data_bytes() + BHS_BYTES;
                taken.push(pdu);
            }
            (session.queued_bytes(self.admitted.handle), session.window_per_connection())
        });
        self.left_bytes = left;
        // Another connection may have come or gone.
        self.running.shares.set_window(window);
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
    /// Commands that come then wait.
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

    /// Returns whether there is memory for another command. Under memory pressure, a
    /// connection waits for the end of its own commands, and until their results are sent, or
    /// until others have given memory back.
    /// Solicited data already has its memory: it is not part of this wait.
    fn has_memory(&self, unsent_bytes: usize) -> bool {
        let Running { in_flight, memory, .. } = &self.running;
        let waiting_helps = !in_flight.is_empty() || unsent_bytes + self.left_bytes > 0;
        unsent_bytes < MAX_QUEUED_BYTES && (!waiting_helps || memory.may_take())
    }

    /// Returns whether commands wait for room.
    pub(crate) fn has_waiting(&self) -> bool {
        self.running.has_waiting()
    }

    /// Returns whether a command that waits can begin now.
    pub(crate) fn may_go_on(&self, unsent_bytes: usize) -> bool {
        self.running.has_room() && self.has_memory(unsent_bytes)
    }

    /// Returns the time after which the connection has to look again, without an event of its
    /// own: whether others have given memory back, if a command or, with `holds_data`, data on
    /// the transport waits for it; and whether a logical unit has not answered.
    pub(crate) fn retry_after(&self, unsent_bytes: usize, holds_data: bool) -> Option<Duration> {
        let waits = self.has_waiting() || holds_data;
        // Otherwise the peer has to read, which is an event.
        let is_for_memory = unsent_bytes < MAX_QUEUED_BYTES && !self.has_memory(unsent_bytes);
        let memory = (waits && is_for_memory).then_some(MEMORY_RETRY);
        let stall = self.running.next_stall(self.block.timeouts.data);
        let stall = stall.map(|at| at.saturating_duration_since(Instant::now()));
        memory.into_iter().chain(stall).min()
    }

    /// Returns whether no command runs or waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.running.in_flight.is_empty() && !self.has_waiting()
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
            self.begin_waiting(unsent_bytes).await;
            self.refuse_stalled();
            let Some(work) = self.todo.pop_front() else { return };
            match work {
                Work::Run(command) => self.running.park(command, &self.admitted.live),
                Work::Function { tag, function, lun } => {
                    let live = &self.admitted.live;
                    self.running.begin_function((tag, function, lun), &self.block, live);
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

    /// Ends the commands that wait and were aborted.
    fn end_aborted(&mut self) {
        if !self.has_waiting() {
            return;
        }
        let running = &mut self.running;
        let aborted = self.admitted.live.with_engine(|session| running.take_aborted(session));
        for task in aborted {
            self.drive(|session| session.complete(task, never_begun()));
        }
    }

    /// Begins commands that wait, as far as there is room.
    async fn begin_waiting(&mut self, unsent_bytes: usize) {
        while self.has_memory(unsent_bytes)
            && let Some(next) = self.running.next_to_begin()
        {
            self.start(next).await;
        }
        if self.has_waiting() {
            self.running.count(&self.block.stats);
        }
    }

    /// Answers commands that wait for a logical unit that does not answer with TASK SET FULL:
    /// otherwise they would keep the command window, and the memory for data of writes, from
    /// the others. Hosts send them again, most of them when a command of that unit has ended.
    fn refuse_stalled(&mut self) {
        let stalled = self.running.take_stalled(self.block.timeouts.data);
        let Some(first) = stalled.front() else { return };
        warn_seldom!(
            initiator = %self.admitted.live.key.initiator,
            target_name = self.admitted.live.key.target.as_ref().map(tracing::field::display),
            lun = first.lun(),
            "a logical unit does not answer; its commands beyond those that run are answered \
             with TASK SET FULL until it does, others are not affected"
        );
        for waiting in stalled {
            self.block.stats.command(waiting.family(), ScsiStatus::TaskSetFull, 0);
            let task = waiting.command.task;
            self.drive(|session| session.complete(task, refused()));
        }
        self.running.count(&self.block.stats);
    }

    async fn start(&mut self, next: Waiting) {
        if next.command.holds_memory {
            let task = next.command.task;
            self.drive(|session| session.begun(task));
        }
        let carrier = self.carrier();
        let (bytes, work) = self.running.begin(next, &self.block, &self.admitted.live, carrier);
        match self.running.in_flight.start(bytes, work).await {
            Some(finished) => self.finish(finished),
            None => self.running.count(&self.block.stats),
        }
    }

    /// Gives the result of what has ended to the session.
    pub(crate) fn finish(&mut self, finished: Finished) {
        let Some(ended) = finished else { return };
        let (task, completion) = self.running.end(ended);
        let bytes = completion.data_in.iter().map(Payload::len).sum::<usize>();
        self.left_bytes += bytes;
        self.running.unsent_bytes += bytes;
        self.drive(|session| session.complete(task, completion));
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
                if let Some(ended) = finished.flatten() {
                    let (task, completion) = running.end(ended);
                    live.with(|session| session.complete(task, completion));
                }
            }
            // Those that wait end at once, also while storage hangs.
            () = aborted => {}
        }
    }
}

/// Takes on work of a session that has no connection.
fn run_on(work: Work, running: &mut Running, live: &Arc<LiveSession>, block: &Arc<IscsiService>) {
    match work {
        Work::Run(command) => running.park(command, live),
        Work::Function { tag, function, lun } => {
            running.begin_function((tag, function, lun), block, live);
        }
        Work::SendTargets { .. } => {}
        Work::Ended(_) => block.end_session(live),
    }
}
