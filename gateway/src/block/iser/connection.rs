//! One iSER connection in full feature phase.

use super::wire::{Arrived, Happened, Parts, Wire};
use crate::block::attached::{Attached, last_words};
use crate::block::cell::Port;
use crate::block::limits::MAX_QUEUED_BYTES;
use crate::block::login::{self, LoginWire};
use crate::block::logins::Ticket;
use crate::listen::rdma::accept::RdmaArrival;
use crate::listen::rdma::progress::Progress;
use crate::observe::throttle::warn_seldom;
use crate::serve::boundary;
use crate::serve::connections::Slot;
use crate::serve::data_path::DataDirection;
use crate::serve::service::Service;
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zgate_fabric::{
    QueueOptions, ReadBatch, RemoteRead, RemoteSlice, RemoteWrite, SendBatch, SendPart, WorkId,
};
use zgate_iscsi::pdu::{Opcode, R2t};
use zgate_iscsi::session::{CloseReason, Session, Solicited};
use zgate_iser::{Header, Message, Piece, Pull, Push, Step, Target};
use zgate_nfs::Peer;
use zgate_store::AlignedBuf;

/// An RDMA Read under way.
#[derive(Debug)]
struct Reading {
    r2t: R2t,
    /// The buffer holds everything in front of it, too.
    has_front: bool,
}

struct Connection {
    wire: Wire,
    attached: Attached,
    target: Target,
    /// Messages that wait until there is room for their commands. Their
    /// receives are not posted again before.
    held: VecDeque<Arrived>,
    reads: HashMap<WorkId, Reading>,
    progress: Progress,
    service: Rc<Service>,
    draining: bool,
}

/// Accepts an initiator and serves it until either side ends the connection.
pub(crate) async fn serve(
    arrival: RdmaArrival,
    peer: Peer,
    slot: Slot,
    core: usize,
    service: Rc<Service>,
) {
    let from = SocketAddr::new(peer.address, arrival.request.peer_address().port());
    let _counted = service.shared.rdma.connected();
    let port = Arc::new(Port::new(from, core));
    let Some(ticket) = login::begin(&service.shared.block, &port) else {
        tracing::debug!(peer = %from, "iSER connection refused: too many logins at once");
        arrival.request.reject(Vec::new()).await;
        return;
    };
    match Wire::accept(arrival, service.shared.pool.clone()).await {
        Ok(wire) => run(wire, port, (slot, ticket), &service).await,
        Err(error) => warn_seldom!(peer = %from, %error, "an iSER connection is not made"),
    }
}

async fn run(
    mut wire: Wire,
    port: Arc<Port>,
    (slot, ticket): (Slot, Ticket),
    service: &Rc<Service>,
) {
    let block = Arc::clone(&service.shared.block);
    let drain = service.shared.drain.wait();
    let admitted = tokio::select! {
        admitted = login::run(&mut wire, &block, &port, ticket) => admitted,
        () = drain => Err("draining"),
    };
    let admitted = match admitted {
        Ok(admitted) => admitted,
        Err(why) => {
            tracing::debug!(peer = %port.peer, why, "iSER connection closed");
            return;
        }
    };
    admitted.count(&slot);
    let target = Target::new(wire.invalidate, admitted.login.params.solicited_buffer_only);
    let attached = Attached::new(port, block, admitted, wire.local());
    let mut connection = Connection {
        wire,
        attached,
        target,
        held: VecDeque::new(),
        reads: HashMap::new(),
        progress: Progress::new(),
        service: Rc::clone(service),
        draining: false,
    };
    let why = boundary::connection(connection.run()).await;
    tracing::info!(peer = %connection.attached.port.peer, why, "iSER connection closed");
    // The queue pair goes first: nothing reaches its buffers after that.
    let Connection { wire, attached, .. } = connection;
    drop(wire);
    drop(attached);
}

impl Connection {
    async fn run(&mut self) -> &'static str {
        let (service, port) = (Rc::clone(&self.service), Arc::clone(&self.attached.port));
        let stall = service.shared.rdma_stall;
        let mut look = tokio::time::interval(stall / 3);
        let mut drain = pin!(service.shared.drain.wait());
        let mut wake = pin!(port.wake.notified());
        // Whether anything can follow from what happened last.
        let mut news = true;
        let mut ended = None;
        self.attached.catch_up();
        loop {
            if news {
                if let Err(why) = self.advance().await {
                    return why;
                }
                if let Some(why) = ended {
                    return why;
                }
                if let Some(reason) = port.closing() {
                    return self.last_words(reason).await;
                }
                if self.draining && self.is_idle() {
                    return self.say_goodbye().await;
                }
            }
            let had_room = self.wire.sending_bytes() < MAX_QUEUED_BYTES;
            let happened = tokio::select! {
                biased;
                finished = self.attached.finished() => {
                    self.attached.finish(finished);
                    Ok(Happened::Nothing)
                }
                happened = self.wire.happens() => {
                    service.attention.traffic();
                    happened
                }
                () = wake.as_mut() => {
                    wake.set(port.wake.notified());
                    self.attached.catch_up();
                    Ok(Happened::Nothing)
                }
                _ = look.tick() => {
                    if self.has_work() && self.progress.has_stalled(stall) {
                        return "nothing gets through to the initiator";
                    }
                    Ok(Happened::Nothing)
                }
                () = drain.as_mut(), if !self.draining => {
                    self.draining = true;
                    Ok(Happened::Nothing)
                }
            };
            // What came together is gone on from together.
            news = false;
            let mut next = Some(happened);
            while let Some(happened) = next {
                match happened {
                    Ok(happened) => news |= self.take_in(happened, had_room),
                    Err(why) => (news, ended) = (true, Some(why)),
                }
                next = self.wire.at_hand();
            }
        }
    }

    /// Takes in what happened; whether anything can follow from it.
    fn take_in(&mut self, happened: Happened, had_room: bool) -> bool {
        match happened {
            Happened::Message(arrived) => self.held.push_back(arrived),
            Happened::Read(id, buffers) => self.read_done(id, buffers),
            Happened::Sent => {
                self.progress.made();
                // Only who waited for room can go on now.
                return !had_room || self.draining || !self.held.is_empty();
            }
            Happened::Nothing => {}
        }
        true
    }

    /// Everything that can be done without waiting.
    async fn advance(&mut self) -> Result<(), &'static str> {
        self.attached.work().await;
        while self.may_read() {
            let Some(arrived) = self.held.pop_front() else { break };
            self.message(arrived)?;
            self.attached.work().await;
        }
        self.transmit()
    }

    fn may_read(&self) -> bool {
        !self.draining && self.attached.may_begin() && self.wire.sending_bytes() < MAX_QUEUED_BYTES
    }

    fn is_idle(&self) -> bool {
        self.attached.is_idle() && !self.has_work()
    }

    /// Whether the initiator's side has work of this side to complete.
    fn has_work(&self) -> bool {
        !(self.reads.is_empty() && self.wire.is_empty())
    }

    /// Takes a message in.
    fn message(&mut self, arrived: Arrived) -> Result<(), &'static str> {
        let (handle, now) = (self.attached.admitted.handle, self.attached.block.now());
        let received = &self.attached.block.figures.received_bytes;
        received.fetch_add(arrived.bytes().len() as u64, Ordering::Relaxed);
        let message = match Message::decode(arrived.bytes()) {
            Ok(message) => message,
            Err(error) => {
                let peer = self.attached.port.peer;
                warn_seldom!(%peer, %error, "closing the iSER connection");
                self.attached.drive(|session| session.handle_framing_error(handle, now));
                return Err("bad message");
            }
        };
        let header = message.header;
        let more_follows = match header {
            Header::Control { write, .. } => write.is_some(),
            Header::Hello(hello) => {
                let depth = QueueOptions::default().initiator_depth;
                let reply = hello.answer(depth.into());
                self.wire.give_back(arrived);
                self.wire
                    .send(vec![Bytes::copy_from_slice(&Header::HelloReply(reply).encode())])?;
                return if reply.rejected { Err("no common iSER version") } else { Ok(()) };
            }
            Header::HelloReply(_) => return Err("a HelloReply from an initiator"),
        };
        let parts = Parts::of(&message);
        // Before anything is answered: the initiator counts on the receive.
        let (frame, copied) = self.wire.frame(arrived, parts, more_follows);
        self.copied(copied);
        if frame.bhs.opcode() == Opcode::SCSI_COMMAND {
            let immediate = frame.data.first().cloned().unwrap_or_default();
            let target = &mut self.target;
            self.attached.admitted.cell.with_engine(|session: &mut Session| {
                target.command(&frame.bhs, &header, immediate, |itt| session.has_task(itt));
            });
        }
        self.attached.drive(|session| session.handle_pdu(handle, frame, now));
        Ok(())
    }

    /// Counts data of writes that was moved within memory.
    fn copied(&self, bytes: usize) {
        let data = &self.attached.block.figures.data;
        data.carried(self.attached.carrier(), DataDirection::Write, 0, bytes);
    }

    fn read_done(&mut self, id: WorkId, mut buffers: Vec<AlignedBuf>) {
        self.progress.made();
        let Some(Reading { r2t, has_front }) = self.reads.remove(&id) else { return };
        let Some(buffer) = buffers.pop() else { return };
        let figures = &self.attached.block.figures;
        figures.received_bytes.fetch_add(r2t.desired_bytes.into(), Ordering::Relaxed);
        let data = buffer.into_bytes();
        let data = if has_front { Solicited::Front(data) } else { Solicited::Part(data) };
        let (handle, now) = (self.attached.admitted.handle, self.attached.block.now());
        self.attached.drive(|session| session.handle_solicited(handle, &r2t, data, now));
    }

    /// Posts what the session has for this connection.
    fn transmit(&mut self) -> Result<(), &'static str> {
        loop {
            let room = MAX_QUEUED_BYTES.saturating_sub(self.wire.sending_bytes());
            let (taken, took_all) = self.attached.take_outgoing(room);
            for pdu in taken {
                let is_response = pdu.bhs.opcode() == Opcode::SCSI_RESPONSE;
                let step = self.target.transmit(pdu).map_err(|fault| {
                    warn_seldom!(peer = %self.attached.port.peer, %fault, "closing the iSER connection");
                    "bad advertisement"
                })?;
                self.carry_out(step, is_response)?;
            }
            if took_all {
                return Ok(());
            }
        }
    }

    fn carry_out(&mut self, step: Step, is_response: bool) -> Result<(), &'static str> {
        match step {
            Step::Later => Ok(()),
            Step::Pull(pull) => self.pull(pull),
            Step::Send { pushes, message, invalidate } => {
                self.progress.work_begins(self.has_work());
                let writes: Vec<_> = pushes.into_iter().map(remote_write).collect();
                let sent = writes.iter().map(|write| u64::from(write.to.len)).sum::<u64>()
                    + message.iter().map(|piece| piece.len() as u64).sum::<u64>();
                self.attached.block.figures.sent_bytes.fetch_add(sent, Ordering::Relaxed);
                let send = Some(SendPart { gather: message, invalidate });
                // While data of other commands is on its way, their responses follow.
                let quiet = is_response && writes.is_empty() && !self.reads.is_empty();
                let batch = SendBatch { id: WorkId(0), writes, send };
                if quiet { self.wire.post_quietly(batch) } else { self.wire.post_send(batch) }
            }
        }
    }

    /// Reads what an R2T asks for into a buffer that storage writes from.
    fn pull(&mut self, pull: Pull) -> Result<(), &'static str> {
        let Pull { r2t, from, front } = pull;
        let has_front = front.is_some();
        let front = front.unwrap_or_default();
        let mut buffer = self.wire.buffer(front.len() + from.len as usize);
        buffer[..front.len()].copy_from_slice(&front);
        self.copied(front.len());
        let read = RemoteRead { from: slice(from), buffer: 0, offset: front.len() };
        let id = self.wire.work_id();
        self.progress.work_begins(self.has_work());
        self.reads.insert(id, Reading { r2t, has_front });
        self.wire.post_read(ReadBatch { id, buffers: vec![buffer], reads: vec![read] })
    }

    /// The session wants this connection closed.
    async fn last_words(&mut self, reason: CloseReason) -> &'static str {
        let send_all = async {
            while self.transmit().is_ok() && !self.wire.is_empty() {
                if self.wire.happens().await.is_err() {
                    return;
                }
            }
        };
        last_words(reason, send_all).await
    }

    /// The gateway stops: everything that ran is answered.
    async fn say_goodbye(&mut self) -> &'static str {
        let handle = self.attached.admitted.handle;
        self.attached.drive(|session| session.drop_connection(handle));
        self.last_words(CloseReason::Dropped).await;
        "draining"
    }
}

fn slice(piece: Piece) -> RemoteSlice {
    RemoteSlice { rkey: piece.stag, address: piece.address, len: piece.len }
}

fn remote_write(push: Push) -> RemoteWrite {
    RemoteWrite { to: slice(push.to), gather: push.data }
}
