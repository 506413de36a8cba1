//! A connection's side towards its session, whatever it came in on: what the
//! session asks for is carried out, what runs is counted.

use super::cell::{Cell, Port, Work};
use super::execute::{execute, weight};
use super::functions;
use super::limits::{
    LAST_WORDS_TIMEOUT, MAX_RUNNING, MAX_RUNNING_BYTES, MAX_TOTAL_BYTES, SEND_BATCH_BYTES,
};
use super::login::Admitted;
use super::service::BlockService;
use crate::serve::data_path;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use zgate_iscsi::limits::BHS_BYTES;
use zgate_iscsi::login::Transport;
use zgate_iscsi::pdu::{Lun as WireLun, Outgoing, TaskFunction};
use zgate_iscsi::session::{CloseReason, Command, Completion, FunctionTag, TaskTag};

/// What came of something that ran: the bytes it was counted with, and a
/// command's result.
pub(crate) type Finished = (u64, Option<(TaskTag, Completion)>);
type Running = FuturesUnordered<LocalBoxFuture<'static, Finished>>;

/// A connection that has logged in.
pub(crate) struct Attached {
    pub port: Arc<Port>,
    pub block: Arc<BlockService>,
    pub admitted: Admitted,
    /// Where the initiator connected to.
    pub local: Option<SocketAddr>,
    running: Running,
    running_bytes: u64,
    todo: VecDeque<Work>,
}

/// A connection that logged in, and was gone before it could do anything.
pub(crate) fn abandon(block: &BlockService, admitted: &Admitted) {
    let (cell, handle) = (&admitted.cell, admitted.handle);
    let now = block.now();
    cell.with(|session| session.handle_closed(handle, now));
    cell.remove_port(handle);
    block.connection_ended(cell, &admitted.login);
    if cell.with(|session| session.is_ended()) {
        block.end_session(cell);
    }
}

impl Attached {
    pub(crate) fn new(
        port: Arc<Port>,
        block: Arc<BlockService>,
        admitted: Admitted,
        local: Option<SocketAddr>,
    ) -> Self {
        Self {
            port,
            block,
            admitted,
            local,
            running: FuturesUnordered::new(),
            running_bytes: 0,
            todo: VecDeque::new(),
        }
    }

    /// Calls the engine and takes what it wants done.
    pub(crate) fn drive<T>(
        &mut self,
        call: impl FnOnce(&mut zgate_iscsi::session::Session) -> T,
    ) -> T {
        self.admitted.cell.drive(self.admitted.handle, &mut self.todo, call)
    }

    /// Takes what came about elsewhere, at the beginning and when its port is woken.
    pub(crate) fn catch_up(&mut self) {
        self.drive(|_| {});
    }

    /// Takes PDUs that the session has for this connection, up to `room` in bytes or a
    /// little more, and whether there are no others that could go now.
    pub(crate) fn take_outgoing(&self, room: usize) -> (Vec<Outgoing>, bool) {
        let mut taken = Vec::new();
        let took_all = self.admitted.cell.with_engine(|session| {
            let mut bytes = 0;
            while bytes < SEND_BATCH_BYTES.min(room) {
                let Some(pdu) = session.poll_transmit(self.admitted.handle) else { return true };
                bytes += pdu.data_bytes() + BHS_BYTES;
                taken.push(pdu);
            }
            room == 0
        });
        (taken, took_all)
    }

    /// What carries its data.
    pub(crate) fn carrier(&self) -> data_path::Transport {
        match self.admitted.login.transport {
            Transport::Tcp => data_path::Transport::Iscsi,
            Transport::Iser => data_path::Transport::Iser,
        }
    }

    /// Whether another command may begin.
    pub(crate) fn may_begin(&self) -> bool {
        let total = self.block.figures.running_bytes.load(Ordering::Relaxed);
        self.running.len() < MAX_RUNNING
            && self.running_bytes < MAX_RUNNING_BYTES
            && (total < MAX_TOTAL_BYTES || self.running.is_empty())
    }

    /// Whether nothing runs.
    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// What comes to its end next; never, when nothing runs.
    pub(crate) async fn finished(&mut self) -> Finished {
        match self.running.next().await {
            Some(finished) => finished,
            None => std::future::pending().await,
        }
    }

    /// Does what the engine asked for. A command that needs no waiting is
    /// answered on the spot, so that a burst leaves in one send.
    pub(crate) async fn work(&mut self) {
        while let Some(work) = self.todo.pop_front() {
            match work {
                Work::Run(command) => self.start(command).await,
                Work::Function { tag, function, lun } => {
                    let cell = &self.admitted.cell;
                    self.running.push(run_function(&self.block, cell, tag, function, lun));
                }
                Work::SendTargets { tag, scope } => {
                    let local = self.local;
                    let cell = &self.admitted.cell;
                    let targets =
                        self.block.listing(&scope, &cell.key.initiator, cell.address, local);
                    self.drive(|session| session.answer_send_targets(tag, &targets));
                }
                Work::Ended(reason) => {
                    tracing::info!(
                        session = self.admitted.cell.tsih.0,
                        ?reason,
                        "iSCSI session ended"
                    );
                    self.block.end_session(&self.admitted.cell);
                }
            }
        }
    }

    async fn start(&mut self, command: Box<Command>) {
        let (bytes, carrier) = (weight(&command), self.carrier());
        let mut run = run_command(&self.block, &self.admitted.cell, command, carrier);
        let first =
            std::future::poll_fn(|task: &mut Context<'_>| Poll::Ready(run.as_mut().poll(task)));
        match first.await {
            Poll::Ready((_, Some((tag, completion)))) => {
                self.drive(|session| session.complete(tag, completion));
            }
            Poll::Ready((_, None)) => {}
            Poll::Pending => {
                self.running_bytes += bytes;
                self.block.figures.running_bytes.fetch_add(bytes, Ordering::Relaxed);
                self.running.push(run);
            }
        }
    }

    pub(crate) fn finish(&mut self, (bytes, result): Finished) {
        self.running_bytes -= bytes;
        self.block.figures.running_bytes.fetch_sub(bytes, Ordering::Relaxed);
        if let Some((tag, completion)) = result {
            self.drive(|session| session.complete(tag, completion));
        }
    }
}

impl Drop for Attached {
    /// The connection is gone, in whichever way. Commands that run are finished all the
    /// same: dropped, they would be forgotten while the storage still writes.
    fn drop(&mut self) {
        let (handle, now) = (self.admitted.handle, self.block.now());
        self.drive(|session| session.handle_closed(handle, now));
        let Admitted { login, cell, .. } = &self.admitted;
        // Nobody may take the session for a living one any more.
        if self.todo.iter().any(|work| matches!(work, Work::Ended(_))) {
            self.block.end_session(cell);
        }
        cell.remove_port(handle);
        self.block.connection_ended(cell, login);
        tokio::task::spawn_local(run_out(
            std::mem::take(&mut self.running),
            std::mem::take(&mut self.todo),
            Arc::clone(cell),
            Arc::clone(&self.block),
            self.carrier(),
        ));
    }
}

/// The session wants its connection closed: `send_all` may take a moment for
/// what is queued, where somebody still listens. Returns what to log.
pub(crate) async fn last_words(
    reason: CloseReason,
    send_all: impl Future<Output = ()>,
) -> &'static str {
    if matches!(reason, CloseReason::Logout | CloseReason::Dropped) {
        // A peer that does not take them does not want them.
        let _ = tokio::time::timeout(LAST_WORDS_TIMEOUT, send_all).await;
    }
    words(reason)
}

/// What a closed connection is logged with.
fn words(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::Logout => "logged out",
        CloseReason::Dropped => "dropped",
        CloseReason::Protocol => "protocol error",
        CloseReason::Silent => "the peer does not answer",
        CloseReason::Overrun => "the peer does not read",
        CloseReason::Reinstated => "another connection took its place",
    }
}

/// Lets what runs come to its end without its connection. What the session
/// then has to do is done here, unless another connection does it.
async fn run_out(
    mut running: Running,
    mut todo: VecDeque<Work>,
    cell: Arc<Cell>,
    block: Arc<BlockService>,
    carrier: data_path::Transport,
) {
    // The connection's own work goes with it; what comes later may be another one's.
    while let Some(work) = todo.pop_front() {
        run_on(work, &running, &cell, &block, carrier);
    }
    loop {
        while let Some((bytes, result)) = running.next().await {
            block.figures.running_bytes.fetch_sub(bytes, Ordering::Relaxed);
            if let Some((tag, completion)) = result {
                cell.with(|session| session.complete(tag, completion));
            }
        }
        let later = if cell.ports().is_empty() { cell.take_work() } else { None };
        let Some(work) = later else { return };
        run_on(work, &running, &cell, &block, carrier);
    }
}

/// Begins what a session wants done that has no connection for it.
fn run_on(
    work: Work,
    running: &Running,
    cell: &Arc<Cell>,
    block: &Arc<BlockService>,
    carrier: data_path::Transport,
) {
    match work {
        Work::Run(command) => {
            let bytes = weight(&command);
            block.figures.running_bytes.fetch_add(bytes, Ordering::Relaxed);
            running.push(run_command(block, cell, command, carrier));
        }
        Work::Function { tag, function, lun } => {
            running.push(run_function(block, cell, tag, function, lun));
        }
        Work::SendTargets { .. } => {}
        Work::Ended(_) => block.end_session(cell),
    }
}

fn run_command(
    block: &Arc<BlockService>,
    cell: &Arc<Cell>,
    command: Box<Command>,
    carrier: data_path::Transport,
) -> LocalBoxFuture<'static, Finished> {
    let (block, cell, bytes) = (Arc::clone(block), Arc::clone(cell), weight(&command));
    Box::pin(async move { (bytes, Some(execute(&block, &cell, command, carrier).await)) })
}

fn run_function(
    block: &Arc<BlockService>,
    cell: &Arc<Cell>,
    tag: FunctionTag,
    function: TaskFunction,
    lun: WireLun,
) -> LocalBoxFuture<'static, Finished> {
    let (block, cell) = (Arc::clone(block), Arc::clone(cell));
    Box::pin(async move {
        functions::carry_out(&block, &cell, tag, function, lun).await;
        (0, None)
    })
}
