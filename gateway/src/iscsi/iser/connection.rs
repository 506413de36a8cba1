//! One iSER connection in full feature phase.

use super::wire::{Happened, Parts, Wire};
use crate::iscsi::connection::{InitiatorConnection, last_words};
use crate::iscsi::limits::MAX_QUEUED_BYTES;
use crate::iscsi::login;
use crate::iscsi::login::LoginWire;
use crate::iscsi::logins::Ticket;
use crate::iscsi::service::IscsiService;
use crate::iscsi::session::ConnectionHandle;
use crate::net::arrival::RdmaArrival;
use crate::net::boundary;
use crate::net::connection_end::{Bug, ConnectionEnd, Misbehaved, Slow};
use crate::net::connections::Slot;
use crate::net::core::Core;
use crate::net::peer::Peer;
use crate::observe::data_path::{DataDirection, Transport};
use crate::observe::throttle::warn_seldom;
use bytes::Bytes;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use zgate_fabric::endpoint::Message as Arrived;
use zgate_fabric::{QueueOptions, RemoteRead, RemoteSlice, RemoteWrite, SendPart};
use zgate_iscsi::iser::{Header, Message, PeerFault, Piece, Pull, Push, Step, Target};
use zgate_iscsi::pdu::{Opcode, R2t};
use zgate_iscsi::session::{CloseReason, Session, Solicited};
use zgate_store::AlignedBuf;

/// An RDMA Read in flight.
#[derive(Debug)]
pub(super) struct Reading {
    r2t: R2t,
    /// Set if the buffer holds all preceding data, too.
    has_front: bool,
}

struct Connection {
    wire: Wire,
    initiator: InitiatorConnection,
    target: Target,
    /// Messages that wait for room for their commands. Their receives are not
    /// posted again before that.
    held: VecDeque<Arrived>,
    core: Rc<Core>,
    draining: bool,
}

/// Accepts an initiator and serves it until either side closes the connection.
pub(crate) async fn serve(
    arrival: RdmaArrival,
    peer: Peer,
    slot: Slot,
    block: Arc<IscsiService>,
    core: Rc<Core>,
) {
    let from = SocketAddr::new(peer.address, arrival.request.peer_address().port());
    let _counted = core.network.rdma.connected();
    let connection = Arc::new(ConnectionHandle::new(from, core.number));
    let Some(ticket) = login::begin(&block, &connection) else {
        let end = ConnectionEnd::Overloaded;
        core.network.ends.record(&end, Transport::Iser, from, false);
        arrival.request.reject(Vec::new()).await;
        return;
    };
    match Wire::accept(arrival, core.network.pool.clone()).await {
        Ok(wire) => run(wire, connection, (slot, ticket), block, &core).await,
        Err(error) => warn_seldom!(peer = %from, %error, "cannot establish an iSER connection"),
    }
}

async fn run(
    mut wire: Wire,
    connection: Arc<ConnectionHandle>,
    (slot, ticket): (Slot, Ticket),
    block: Arc<IscsiService>,
    core: &Rc<Core>,
) {
    let memory = core.network.reservation(connection.peer.ip());
    let drain = core.network.drain.wait();
    let admitted = tokio::select! {
        admitted = login::run(&mut wire, &block, &connection, &memory, ticket) => admitted,
        () = drain => Err(ConnectionEnd::Stopping),
    };
    let admitted = match admitted {
        Ok(admitted) => admitted,
        Err(why) => {
            core.network.ends.record(&why, Transport::Iser, connection.peer, false);
            return;
        }
    };
    admitted.count(&slot);
    let target = Target::new(wire.invalidate, admitted.login.params.solicited_buffer_only);
    let initiator = InitiatorConnection::new(connection, block, admitted, wire.local(), memory);
    let mut connection = Connection {
        wire,
        initiator,
        target,
        held: VecDeque::new(),
        core: Rc::clone(core),
        draining: false,
    };
    let why = boundary::connection(connection.run()).await;
    let peer = connection.initiator.connection.peer;
    core.network.ends.record(&why, Transport::Iser, peer, true);
    // Drop the queue pair first: its buffers cannot be accessed afterwards.
    let Connection { wire, initiator, .. } = connection;
    drop(wire);
    drop(initiator);
}

impl Connection {
    async fn run(&mut self) -> ConnectionEnd {
        let (core, connection) = (Rc::clone(&self.core), Arc::clone(&self.initiator.connection));
        let stall = core.network.rdma_stall;
        let mut look = tokio::time::interval(stall / 3);
        let mut drain = pin!(core.network.drain.wait());
        let mut wake = pin!(connection.wake.notified());
        // Set if the last events may allow progress.
        let mut news = true;
        let mut ended = None;
        self.initiator.catch_up();
        loop {
            if news {
                if let Err(why) = self.advance().await {
                    return why;
                }
                if let Some(why) = ended {
                    return why;
                }
                if let Some(reason) = connection.closing() {
                    return self.last_words(reason).await;
                }
                if self.draining && self.is_idle() {
                    return self.say_goodbye().await;
                }
            }
            let had_room = self.wire.endpoint.sending_bytes() < MAX_QUEUED_BYTES;
            let happened = tokio::select! {
                biased;
                finished = self.initiator.finished() => {
                    self.initiator.finish(finished);
                    Ok(Happened::Nothing)
                }
                happened = self.wire.happens() => {
                    core.busy_poll.traffic();
                    happened
                }
                () = wake.as_mut() => {
                    wake.set(connection.wake.notified());
                    self.initiator.catch_up();
                    Ok(Happened::Nothing)
                }
                _ = look.tick() => {
                    if self.wire.endpoint.stalled_for(Instant::now()) > stall {
                        return Slow::Stalled.into();
                    }
                    Ok(Happened::Nothing)
                }
                () = drain.as_mut(), if !self.draining => {
                    self.draining = true;
                    Ok(Happened::Nothing)
                }
            };
            // Handle all events that arrived together before making progress.
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

    /// Processes an event; returns whether it may allow progress.
    fn take_in(&mut self, happened: Happened, had_room: bool) -> bool {
        match happened {
            Happened::Message(arrived) => self.held.push_back(arrived),
            Happened::Read(reading, buffers) => self.read_done(reading, buffers),
            Happened::Sent => {
                // Only commands that waited for room can make progress.
                return !had_room || self.draining || !self.held.is_empty();
            }
            Happened::Nothing => {}
        }
        true
    }

    /// Makes all progress that is possible without waiting.
    async fn advance(&mut self) -> Result<(), ConnectionEnd> {
        self.initiator.work().await;
        loop {
            while self.may_read() {
                let Some(arrived) = self.held.pop_front() else { break };
                self.message(arrived)?;
                self.initiator.work().await;
            }
            self.transmit()?;
            // There is no other notification of the end of the transmission.
            if self.held.is_empty() || !self.may_read() {
                return Ok(());
            }
        }
    }

    fn may_read(&self) -> bool {
        !self.draining && self.initiator.may_begin(self.wire.endpoint.sending_bytes())
    }

    fn is_idle(&self) -> bool {
        self.initiator.is_idle() && !self.wire.endpoint.has_work()
    }

    /// Processes a message.
    fn message(&mut self, arrived: Arrived) -> Result<(), ConnectionEnd> {
        let (handle, now) = (self.initiator.admitted.handle, self.initiator.block.now());
        let received = &self.initiator.block.stats.received_bytes;
        received.fetch_add(arrived.bytes().len() as u64, Ordering::Relaxed);
        let message = match Message::decode(arrived.bytes()) {
            Ok(message) => message,
            Err(error) => {
                self.initiator.drive(|session| session.handle_framing_error(handle, now));
                return Err(ConnectionEnd::framing(error));
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
                return if reply.rejected { Err(Misbehaved::Version.into()) } else { Ok(()) };
            }
            Header::HelloReply(_) => return Err(Misbehaved::Unexpected("HelloReply").into()),
        };
        let parts = Parts::of(&message);
        // Post the receive before any answer: the initiator relies on it.
        let (frame, copied) = self.wire.frame(arrived, parts, more_follows);
        self.copied(copied);
        if frame.bhs.opcode() == Opcode::SCSI_COMMAND {
            let immediate = frame.data.first().cloned().unwrap_or_default();
            let target = &mut self.target;
            self.initiator.admitted.live.with_engine(|session: &mut Session| {
                target.command(&frame.bhs, &header, immediate, |itt| session.has_task(itt));
            });
        }
        self.initiator.drive(|session| session.handle_pdu(handle, frame, now));
        Ok(())
    }

    /// Counts write data that was copied in memory.
    fn copied(&self, bytes: usize) {
        let data = &self.initiator.block.stats.data;
        data.carried(self.initiator.carrier(), DataDirection::Write, 0, bytes);
    }

    fn read_done(&mut self, reading: Reading, mut buffers: Vec<AlignedBuf>) {
        let Reading { r2t, has_front } = reading;
        let Some(buffer) = buffers.pop() else { return };
        let stats = &self.initiator.block.stats;
        stats.received_bytes.fetch_add(r2t.desired_bytes.into(), Ordering::Relaxed);
        let data = buffer.into_bytes();
        let data = if has_front { Solicited::Front(data) } else { Solicited::Part(data) };
        let (handle, now) = (self.initiator.admitted.handle, self.initiator.block.now());
        self.initiator.drive(|session| session.handle_solicited(handle, &r2t, data, now));
    }

    /// Posts the session's PDUs for this connection.
    fn transmit(&mut self) -> Result<(), ConnectionEnd> {
        loop {
            let sending = self.wire.endpoint.sending_bytes();
            let (taken, took_all) = self.initiator.take_outgoing(sending);
            for pdu in taken {
                let is_response = pdu.bhs.opcode() == Opcode::SCSI_RESPONSE;
                let step = self.target.transmit(pdu).map_err(|fault| match fault {
                    PeerFault::NotInMemory => Bug::NotInMemory.into(),
                    fault => {
                        ConnectionEnd::from(Misbehaved::Advertisement(fault.to_string().into()))
                    }
                })?;
                self.carry_out(step, is_response)?;
            }
            if took_all {
                self.initiator.count_memory(self.wire.endpoint.sending_bytes());
                return Ok(());
            }
        }
    }

    fn carry_out(&mut self, step: Step, is_response: bool) -> Result<(), ConnectionEnd> {
        match step {
            Step::Later => Ok(()),
            Step::Pull(pull) => self.pull(pull),
            Step::Send { pushes, message, invalidate } => {
                let writes: Vec<_> = pushes.into_iter().map(remote_write).collect();
                let sent = writes.iter().map(|write| u64::from(write.to.len)).sum::<u64>()
                    + message.iter().map(|piece| piece.len() as u64).sum::<u64>();
                self.initiator.block.stats.sent_bytes.fetch_add(sent, Ordering::Relaxed);
                let send = SendPart { gather: message, invalidate };
                let endpoint = &mut self.wire.endpoint;
                // Responses follow while data of other commands is still in
                // flight.
                let quiet = is_response && writes.is_empty() && endpoint.reads() > 0;
                match quiet {
                    true => endpoint.send_quietly(send)?,
                    false => endpoint.send(writes, Some(send))?,
                }
                Ok(())
            }
        }
    }

    /// Reads the data of an R2T into a buffer that storage writes from.
    fn pull(&mut self, pull: Pull) -> Result<(), ConnectionEnd> {
        let Pull { r2t, from, front } = pull;
        let has_front = front.is_some();
        let front = front.unwrap_or_default();
        let mut buffer = self.wire.buffer(front.len() + from.len as usize);
        buffer[..front.len()].copy_from_slice(&front);
        self.copied(front.len());
        let read = RemoteRead { from: slice(from), buffer: 0, offset: front.len() };
        Ok(self.wire.endpoint.read(Reading { r2t, has_front }, vec![buffer], vec![read])?)
    }

    /// Closes this connection on request of the session.
    async fn last_words(&mut self, reason: CloseReason) -> ConnectionEnd {
        let send_all = async {
            while self.transmit().is_ok() && self.wire.endpoint.sends() > 0 {
                if self.wire.happens().await.is_err() {
                    return;
                }
            }
        };
        last_words(reason, send_all).await
    }

    /// Answers all running commands because the gateway stops.
    async fn say_goodbye(&mut self) -> ConnectionEnd {
        let handle = self.initiator.admitted.handle;
        self.initiator.drive(|session| session.drop_connection(handle));
        self.last_words(CloseReason::Dropped).await;
        ConnectionEnd::Stopping
    }
}

fn slice(piece: Piece) -> RemoteSlice {
    RemoteSlice { rkey: piece.stag, address: piece.address, len: piece.len }
}

fn remote_write(push: Push) -> RemoteWrite {
    RemoteWrite { to: slice(push.to), gather: push.data }
}
