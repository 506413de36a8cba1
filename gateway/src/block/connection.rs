//! One TCP connection of an initiator: PDUs in, commands run, PDUs out.

use super::cell::{Cell, Port, Work};
use super::execute::{execute, weight};
use super::functions;
use super::limits::{
    LAST_WORDS_TIMEOUT, MAX_QUEUED_BYTES, MAX_RUNNING, MAX_RUNNING_BYTES, MAX_TOTAL_BYTES,
    SEND_BATCH_BYTES,
};
use super::login::{self, Admitted};
use super::receive::Receiver;
use super::service::BlockService;
use crate::listen::send::Sender;
use crate::serve::data_path::{DataDirection, Transport};
use crate::serve::service::Service;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use tokio::net::TcpStream;
use zgate_iscsi::framing::{Digests, Encoder};
use zgate_iscsi::pdu::{Frame, Outgoing};
use zgate_iscsi::session::{CloseReason, Command, Completion, TaskTag};
use zgate_nfs::Peer;
use zgate_store::{BufferPool, Payload};

/// What came of something that ran: the bytes it was counted with, and a
/// command's result.
type Finished = (u64, Option<(TaskTag, Completion)>);
type Running = FuturesUnordered<LocalBoxFuture<'static, Finished>>;

/// The socket and its framing.
pub(crate) struct Wire {
    stream: TcpStream,
    receiver: Receiver,
    encoder: Encoder,
    sender: Sender,
    pieces: Vec<Payload>,
}

impl Wire {
    fn new(stream: TcpStream, pool: BufferPool) -> Self {
        Self {
            stream,
            receiver: Receiver::new(pool),
            encoder: Encoder::new(),
            sender: Sender::default(),
            pieces: Vec::new(),
        }
    }

    /// What login agreed.
    pub(crate) fn configure(&mut self, digests: Digests, max_data_bytes: u32) {
        self.receiver.configure(digests, max_data_bytes);
        self.encoder.configure(digests);
    }

    /// The address the peer connected to.
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        self.stream.local_addr().ok()
    }

    /// The next PDU, however long it takes.
    pub(crate) async fn next(&mut self) -> Result<Frame, &'static str> {
        loop {
            match self.receiver.next() {
                Ok(Some(frame)) => return Ok(frame),
                Ok(None) => {}
                Err(_) => return Err("bad framing"),
            }
            self.stream.readable().await.map_err(|_| "the peer is gone")?;
            match self.receiver.fill(&self.stream) {
                Ok(0) => return Err("closed by the peer"),
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return Err("the peer is gone"),
            }
        }
    }

    /// Queues a PDU.
    pub(crate) fn queue(&mut self, pdu: Outgoing) -> Result<(), &'static str> {
        self.encoder.encode(pdu, &mut self.pieces).map_err(|error| {
            tracing::error!(%error, "a PDU cannot be sent");
            "a PDU cannot be sent"
        })?;
        self.pieces.drain(..).for_each(|piece| self.sender.push_payload(piece));
        Ok(())
    }

    /// Sends everything that is queued.
    pub(crate) async fn flush_all(&mut self) -> Result<(), &'static str> {
        loop {
            self.sender.flush(&self.stream).map_err(|_| "the peer is gone")?;
            if self.sender.is_empty() {
                return Ok(());
            }
            self.stream.writable().await.map_err(|_| "the peer is gone")?;
        }
    }
}

struct Connection {
    wire: Wire,
    port: Arc<Port>,
    service: Rc<Service>,
    block: Arc<BlockService>,
    admitted: Admitted,
    running: Running,
    running_bytes: u64,
    todo: VecDeque<Work>,
    draining: bool,
}

/// Serves a connection until either side closes it.
pub(crate) async fn serve(stream: TcpStream, peer: Peer, core: usize, service: Rc<Service>) {
    let block = Arc::clone(&service.shared.block);
    let number = peer.connection;
    let port = Arc::new(Port::new(SocketAddr::new(peer.address, peer.port), core));
    let mut wire = Wire::new(stream, service.shared.pool.clone());
    let drain = service.shared.drain.wait();
    let admitted = tokio::select! {
        admitted = login::run(&mut wire, &block, &port) => admitted,
        () = drain => Err("draining"),
    };
    match admitted {
        Ok(admitted) => {
            let mut connection = Connection {
                wire,
                port,
                block,
                admitted,
                running: FuturesUnordered::new(),
                running_bytes: 0,
                todo: VecDeque::new(),
                draining: false,
                service: Rc::clone(&service),
            };
            let why = connection.run().await;
            tracing::info!(peer = %connection.port.peer, why, "iSCSI connection closed");
            connection.close().await;
        }
        Err(why) => tracing::debug!(peer = %port.peer, why, "iSCSI connection closed"),
    }
    service.shared.connections.remove(number);
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

impl Connection {
    async fn run(&mut self) -> &'static str {
        let (service, port) = (Rc::clone(&self.service), Arc::clone(&self.port));
        loop {
            if let Err(why) = self.advance().await {
                return why;
            }
            if let Some(reason) = port.closing() {
                return self.last_words(reason).await;
            }
            if self.draining && self.running.is_empty() && self.wire.sender.is_empty() {
                return self.say_goodbye().await;
            }
            tokio::select! {
                biased;
                Some(finished) = self.running.next(), if !self.running.is_empty() => {
                    self.finish(finished);
                }
                ready = self.wire.stream.writable(), if !self.wire.sender.is_empty() => {
                    if ready.is_err() {
                        return "the peer is gone";
                    }
                }
                ready = self.wire.stream.readable(), if self.may_read() => {
                    if ready.is_err() {
                        return "the peer is gone";
                    }
                    match self.wire.receiver.fill(&self.wire.stream) {
                        Ok(0) => return "closed by the peer",
                        Ok(got) => {
                            self.block.figures.received_bytes.fetch_add(got as u64, Ordering::Relaxed);
                            service.attention.traffic();
                        }
                        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                        Err(_) => return "the peer is gone",
                    }
                }
                () = port.wake.notified() => {}
                () = service.shared.drain.wait(), if !self.draining => self.draining = true,
            }
        }
    }

    /// Everything that can be done without waiting.
    async fn advance(&mut self) -> Result<(), &'static str> {
        self.drive(|_| {});
        self.work().await;
        while self.may_read() {
            let frame = match self.wire.receiver.next() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(peer = %self.port.peer, %error, "closing the iSCSI connection");
                    let (handle, now) = (self.admitted.handle, self.block.now());
                    self.drive(|session| session.handle_framing_error(handle, now));
                    return Err("bad framing");
                }
            };
            let copied = self.wire.receiver.take_copied_bytes();
            self.block.figures.data.carried(Transport::Iscsi, DataDirection::Write, 0, copied);
            let (handle, now) = (self.admitted.handle, self.block.now());
            self.drive(|session| session.handle_pdu(handle, frame, now));
            self.work().await;
        }
        self.transmit()
    }

    fn drive<T>(&mut self, call: impl FnOnce(&mut zgate_iscsi::session::Session) -> T) -> T {
        self.admitted.cell.drive(self.admitted.handle, &mut self.todo, call)
    }

    fn may_read(&self) -> bool {
        let total = self.block.figures.running_bytes.load(Ordering::Relaxed);
        !self.draining
            && self.running.len() < MAX_RUNNING
            && self.running_bytes < MAX_RUNNING_BYTES
            && (total < MAX_TOTAL_BYTES || self.running.is_empty())
            && self.wire.sender.queued_bytes() < MAX_QUEUED_BYTES
    }

    /// Does what the engine asked for. A command that needs no waiting is
    /// answered on the spot, so that a burst leaves in one send.
    async fn work(&mut self) {
        while let Some(work) = self.todo.pop_front() {
            match work {
                Work::Run(command) => self.start(command).await,
                Work::Function { tag, function, lun } => {
                    let (block, cell) = (Arc::clone(&self.block), Arc::clone(&self.admitted.cell));
                    self.running.push(Box::pin(async move {
                        functions::carry_out(&block, &cell, tag, function, lun).await;
                        (0, None)
                    }));
                }
                Work::SendTargets { tag, scope } => {
                    let local = self.wire.local();
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
        let bytes = weight(&command);
        let (block, cell) = (Arc::clone(&self.block), Arc::clone(&self.admitted.cell));
        let mut run: LocalBoxFuture<'static, Finished> = Box::pin(async move {
            let result = execute(&block, &cell, command, Transport::Iscsi).await;
            (bytes, Some(result))
        });
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

    fn finish(&mut self, (bytes, result): Finished) {
        self.running_bytes -= bytes;
        self.block.figures.running_bytes.fetch_sub(bytes, Ordering::Relaxed);
        if let Some((tag, completion)) = result {
            self.drive(|session| session.complete(tag, completion));
        }
    }

    /// Takes what the session has for this connection and sends as much as the
    /// socket takes.
    fn transmit(&mut self) -> Result<(), &'static str> {
        loop {
            let handle = self.admitted.handle;
            let room = MAX_QUEUED_BYTES.saturating_sub(self.wire.sender.queued_bytes());
            let mut taken = Vec::new();
            self.admitted.cell.with_engine(|session| {
                let mut bytes = 0;
                while bytes < SEND_BATCH_BYTES.min(room) {
                    let Some(pdu) = session.poll_transmit(handle) else { break };
                    bytes += pdu.data_bytes() + zgate_iscsi::limits::BHS_BYTES;
                    taken.push(pdu);
                }
            });
            let nothing_more = taken.is_empty();
            for pdu in taken {
                self.wire.queue(pdu)?;
            }
            let sent = self.wire.sender.flush(&self.wire.stream).map_err(|_| "the peer is gone")?;
            self.block.figures.sent_bytes.fetch_add(sent as u64, Ordering::Relaxed);
            if nothing_more || !self.wire.sender.is_empty() {
                return Ok(());
            }
        }
    }

    /// The session wants this connection closed.
    async fn last_words(&mut self, reason: CloseReason) -> &'static str {
        if matches!(reason, CloseReason::Logout | CloseReason::Dropped) {
            let all = async {
                while self.transmit().is_ok() && !self.wire.sender.is_empty() {
                    if self.wire.stream.writable().await.is_err() {
                        return;
                    }
                }
            };
            // A peer that does not read them does not want them.
            let _ = tokio::time::timeout(LAST_WORDS_TIMEOUT, all).await;
        }
        match reason {
            CloseReason::Logout => "logged out",
            CloseReason::Dropped => "dropped",
            CloseReason::Protocol => "protocol error",
            CloseReason::Silent => "the peer does not answer",
            CloseReason::Overrun => "the peer does not read",
            CloseReason::Reinstated => "another connection took its place",
        }
    }

    /// The gateway stops: everything that ran is answered.
    async fn say_goodbye(&mut self) -> &'static str {
        let handle = self.admitted.handle;
        self.drive(|session| session.drop_connection(handle));
        self.last_words(CloseReason::Dropped).await;
        "draining"
    }

    /// Commands that run when the connection goes are finished all the same.
    async fn close(mut self) {
        let (handle, now) = (self.admitted.handle, self.block.now());
        self.drive(|session| session.handle_closed(handle, now));
        self.work().await;
        let Admitted { login, cell, .. } = &self.admitted;
        cell.remove_port(handle);
        self.block.connection_ended(cell, login);
        tokio::task::spawn_local(run_out(self.running, Arc::clone(cell), Arc::clone(&self.block)));
    }
}

/// Lets what runs come to its end without its connection. What the session
/// then has to do is done here, unless another connection does it.
async fn run_out(mut running: Running, cell: Arc<Cell>, block: Arc<BlockService>) {
    while let Some((bytes, result)) = running.next().await {
        block.figures.running_bytes.fetch_sub(bytes, Ordering::Relaxed);
        if let Some((tag, completion)) = result {
            cell.with(|session| session.complete(tag, completion));
        }
    }
    while cell.ports().is_empty() {
        match cell.take_work() {
            Some(Work::Run(command)) => {
                let (tag, completion) = execute(&block, &cell, command, Transport::Iscsi).await;
                cell.with(|session| session.complete(tag, completion));
            }
            Some(Work::Function { tag, function, lun }) => {
                functions::carry_out(&block, &cell, tag, function, lun).await;
            }
            Some(Work::SendTargets { .. }) => {}
            Some(Work::Ended(_)) => block.end_session(&cell),
            None => return,
        }
    }
}
