//! One iSER connection in full feature phase.

use super::wire::{IserWire, Parts};
use crate::iscsi::connection::{InitiatorConnection, Intake};
use crate::iscsi::full_feature::{self, Wire};
use crate::iscsi::limits::MAX_QUEUED_BYTES;
use crate::iscsi::login;
use crate::iscsi::service::IscsiService;
use crate::iscsi::session::ConnectionHandle;
use crate::net::arrival::RdmaArrival;
use crate::net::connection_end::{Bug, ConnectionEnd, Misbehaved};
use crate::net::connections::Slot;
use crate::net::core::Core;
use crate::net::peer::Peer;
use crate::observe::data_path::{self, DataDirection};
use crate::observe::throttle::warn_seldom;
use bytes::Bytes;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zgate_fabric::endpoint::Message as Arrived;
use zgate_fabric::{EndpointEvent, QueueOptions, RemoteRead, RemoteSlice, RemoteWrite, SendPart};
use zgate_iscsi::iser::{Header, Message, PeerFault, Piece, RdmaRead, RdmaWrite, Step};
use zgate_iscsi::login::Transport;
use zgate_iscsi::pdu::{Opcode, Outgoing, R2t};
use zgate_iscsi::session::{Session, Solicited};
use zgate_store::AlignedBuf;

/// An RDMA Read in flight.
#[derive(Debug)]
pub(super) struct Reading {
    r2t: R2t,
    /// Set if the buffer holds all preceding data, too.
    has_front: bool,
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
    let Some(ticket) = login::begin(&block, &connection, &core, Transport::Iser) else {
        arrival.request.reject(Vec::new()).await;
        return;
    };
    match IserWire::accept(arrival, Rc::clone(&core), block.timeouts.data).await {
        Ok(wire) => full_feature::serve(wire, &connection, (slot, ticket), &block, &core).await,
        Err(error) => warn_seldom!(peer = %from, %error, "cannot establish an iSER connection"),
    }
}

impl Wire for IserWire {
    /// `None`: data has waited for memory long enough.
    type Event = Option<EndpointEvent<Reading>>;

    async fn event(&mut self, intake: Intake) -> Result<Self::Event, ConnectionEnd> {
        self.had_room = self.endpoint.sending_bytes() < MAX_QUEUED_BYTES;
        if intake != Intake::WithoutData || !self.held.front().is_some_and(needs_memory) {
            return self.next_event().await.map(Some);
        }
        let since = *self.waits_since.get_or_insert_with(tokio::time::Instant::now);
        let over = since + self.patience;
        tokio::select! {
            biased;
            event = self.next_event() => event.map(Some),
            () = tokio::time::sleep_until(over) => Ok(None),
        }
    }

    /// Handles all events that arrived together, so that progress is made once.
    fn handle(
        &mut self,
        event: Self::Event,
        initiator: &mut InitiatorConnection,
    ) -> Result<bool, ConnectionEnd> {
        let Some(event) = event else {
            initiator.warn_of_discards();
            return Ok(true);
        };
        self.core.busy_poll.traffic();
        let mut may_advance = self.take_in(event, initiator);
        while let Some(event) = self.endpoint.next_at_hand() {
            may_advance |= self.take_in(event, initiator);
        }
        Ok(may_advance)
    }

    fn take_pdu(
        &mut self,
        initiator: &mut InitiatorConnection,
        intake: Intake,
    ) -> Result<bool, ConnectionEnd> {
        if intake == Intake::All {
            self.waits_since = None;
        }
        let is_over = self.waits_since.is_some_and(|since| since.elapsed() >= self.patience);
        let waits = intake != Intake::All && self.held.front().is_some_and(needs_memory);
        if waits && !is_over {
            return Ok(false);
        }
        match self.held.pop_front() {
            Some(arrived) => self.message(arrived, !waits, initiator).map(|()| true),
            None => Ok(false),
        }
    }

    fn send(
        &mut self,
        pdu: Outgoing,
        initiator: &InitiatorConnection,
    ) -> Result<(), ConnectionEnd> {
        let is_response = pdu.bhs.opcode() == Opcode::SCSI_RESPONSE;
        let step = self.target.transmit(pdu).map_err(|fault| match fault {
            PeerFault::NotInMemory => ConnectionEnd::from(Bug::NotInMemory),
            fault => Misbehaved::Advertisement(fault.to_string().into()).into(),
        })?;
        self.carry_out(step, is_response, initiator)
    }

    /// Does nothing: what is sent is posted at once.
    fn flush(&mut self, _initiator: &InitiatorConnection) -> Result<bool, ConnectionEnd> {
        Ok(true)
    }

    fn unsent_bytes(&self) -> usize {
        self.endpoint.sending_bytes()
    }

    fn has_unsent(&self) -> bool {
        self.endpoint.sends() > 0
    }

    fn holds_data(&self) -> bool {
        self.held.front().is_some_and(needs_memory)
    }

    fn is_idle(&self) -> bool {
        !self.endpoint.has_work()
    }

    fn check_period(&self) -> Option<Duration> {
        Some(self.core.network.rdma_stall / 3)
    }

    fn check(&self) -> Result<(), ConnectionEnd> {
        Ok(self.core.network.check_stall(self.endpoint.stalled_for(Instant::now()))?)
    }
}

impl IserWire {
    /// Processes an event; returns whether it may allow progress.
    fn take_in(
        &mut self,
        event: EndpointEvent<Reading>,
        initiator: &mut InitiatorConnection,
    ) -> bool {
        match event {
            EndpointEvent::Read { note, buffers } => read_done(note, buffers, initiator),
            EndpointEvent::Sent => {
                if self.endpoint.sends() == 0 {
                    // No progress may follow that counts what the initiator has taken.
                    initiator.count_memory(self.unsent_bytes());
                }
                // Only commands that waited for room can make progress.
                let waits = !self.held.is_empty() || initiator.has_waiting();
                return !self.had_room || initiator.is_draining || waits;
            }
            other => self.keep(other),
        }
        true
    }

    /// Processes a message. Unless `keeps_data`, its data is thrown away.
    fn message(
        &mut self,
        arrived: Arrived,
        keeps_data: bool,
        initiator: &mut InitiatorConnection,
    ) -> Result<(), ConnectionEnd> {
        initiator.block.stats.bytes_in(arrived.bytes().len());
        let message = match Message::decode(arrived.bytes()) {
            Ok(message) => message,
            Err(error) => return Err(initiator.framing_error(error)),
        };
        let header = message.header;
        let more_follows = match header {
            Header::Control { write, .. } => write.is_some(),
            Header::Hello(hello) => {
                let depth = QueueOptions::default().initiator_depth;
                let reply = hello.answer(depth.into());
                self.give_back(arrived);
                self.send_message(vec![Bytes::copy_from_slice(
                    &Header::HelloReply(reply).encode(),
                )])?;
                return if reply.rejected { Err(Misbehaved::Version.into()) } else { Ok(()) };
            }
            Header::HelloReply(_) => return Err(Misbehaved::Unexpected("HelloReply").into()),
        };
        let parts = Parts::of(&message);
        // Post the receive before any answer: the initiator relies on it.
        let (frame, copied) = match keeps_data {
            true => self.frame(arrived, parts, more_follows),
            false => (self.frame_without_data(arrived, parts), 0),
        };
        count_copied(initiator, copied);
        if frame.bhs.opcode() == Opcode::SCSI_COMMAND {
            let immediate = frame.data.first().cloned().unwrap_or_default();
            let target = &mut self.target;
            initiator.admitted.live.with_engine(|session: &mut Session| {
                target.command(&frame.bhs, &header, immediate, |itt| session.has_task(itt));
            });
        }
        initiator.handle_pdu(frame);
        Ok(())
    }

    fn carry_out(
        &mut self,
        step: Step,
        is_response: bool,
        initiator: &InitiatorConnection,
    ) -> Result<(), ConnectionEnd> {
        match step {
            Step::Later => Ok(()),
            Step::Read(read) => self.rdma_read(read, initiator),
            Step::Send { rdma_writes, message, invalidate } => {
                let writes: Vec<_> = rdma_writes.into_iter().map(remote_write).collect();
                let sent = writes.iter().map(|write| write.to.len as usize).sum::<usize>()
                    + message.iter().map(|piece| piece.len()).sum::<usize>();
                initiator.block.stats.bytes_out(sent);
                let send = SendPart { gather: message, invalidate };
                let endpoint = &mut self.endpoint;
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
    fn rdma_read(
        &mut self,
        read: RdmaRead,
        initiator: &InitiatorConnection,
    ) -> Result<(), ConnectionEnd> {
        let RdmaRead { r2t, from, front } = read;
        let has_front = front.is_some();
        let front = front.unwrap_or_default();
        let mut buffer = self.buffer(front.len() + from.len as usize);
        buffer[..front.len()].copy_from_slice(&front);
        count_copied(initiator, front.len());
        let read = RemoteRead { from: slice(from), buffer: 0, offset: front.len() };
        Ok(self.endpoint.read(Reading { r2t, has_front }, vec![buffer], vec![read])?)
    }
}

/// Returns whether a message carries data of a write that was not asked for. A ping or a text
/// has the reserve of the connection.
fn needs_memory(arrived: &Arrived) -> bool {
    Message::decode(arrived.bytes()).is_ok_and(|message| {
        let is_write = [Opcode::SCSI_COMMAND, Opcode::DATA_OUT].contains(&message.bhs.opcode());
        is_write && !message.data.is_empty()
    })
}

/// Counts write data that was copied in memory.
fn count_copied(initiator: &InitiatorConnection, bytes: usize) {
    let data = &initiator.block.stats.data;
    data.carried(data_path::Transport::Iser, DataDirection::Write, 0, bytes);
}

/// Gives the data of a completed read to the session.
fn read_done(reading: Reading, mut buffers: Vec<AlignedBuf>, initiator: &mut InitiatorConnection) {
    let Reading { r2t, has_front } = reading;
    let Some(buffer) = buffers.pop() else { return };
    initiator.block.stats.bytes_in(r2t.desired_bytes as usize);
    let data = buffer.into_bytes();
    let data = if has_front { Solicited::Front(data) } else { Solicited::Part(data) };
    let (handle, now) = (initiator.admitted.handle, initiator.block.now());
    initiator.drive(|session| session.handle_solicited(handle, &r2t, data, now));
}

fn slice(piece: Piece) -> RemoteSlice {
    RemoteSlice { rkey: piece.stag, address: piece.address, len: piece.len }
}

fn remote_write(push: RdmaWrite) -> RemoteWrite {
    RemoteWrite { to: slice(push.to), gather: push.data }
}
