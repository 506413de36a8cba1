//! A connection of the fabric that carries PDUs.

use super::connection::Reading;
use crate::iscsi::limits::LOGIN_RECEIVES;
use crate::iscsi::login::LoginWire;
use crate::net::arrival::RdmaArrival;
use crate::net::connection_end::{Bug, ConnectionEnd, Misbehaved};
use crate::net::core::Core;
use crate::net::rdma::establish::establish;
use bytes::Bytes;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;
use zgate_fabric::endpoint::{Message as Arrived, receives};
use zgate_fabric::{Endpoint, EndpointEvent, QueueOptions, SendPart, Setup};
use zgate_iscsi::iser::limits::{HEADER_BYTES, RECEIVE_BYTES, SPARE_RECEIVES};
use zgate_iscsi::iser::{Header, Message, PrivateData, Step, Target};
use zgate_iscsi::limits::BHS_BYTES;
use zgate_iscsi::login::{Offer, Operational, Transport};
use zgate_iscsi::pdu::{Bhs, Frame, Outgoing};
use zgate_store::AlignedBuf;

/// Length from which a data segment gets a pool buffer, in bytes: storage
/// writes from it without a copy.
const ALIGNED_BYTES: usize = 512;

/// Positions of a PDU's parts in a message.
#[derive(Debug)]
pub(super) struct Parts {
    bhs: Bhs,
    ahs: Bytes,
    data: Range<usize>,
}

impl Parts {
    pub(super) fn of(message: &Message<'_>) -> Self {
        let begins = HEADER_BYTES + BHS_BYTES + message.ahs.len();
        Self {
            bhs: message.bhs,
            ahs: Bytes::copy_from_slice(message.ahs),
            data: begins..begins + message.data.len(),
        }
    }
}

/// Returns the number of receives of a connection that is logged in.
fn logged_in_receives() -> u32 {
    Offer::default().window() + SPARE_RECEIVES
}

/// A connection.
pub(super) struct IserWire {
    pub(super) endpoint: Endpoint<Reading>,
    pub(super) core: Rc<Core>,
    pub(super) target: Target,
    /// Messages that wait for room for their commands. Their receives are not
    /// posted again before that.
    pub(super) held: VecDeque<Arrived>,
    /// Time for which data waits for memory.
    pub(super) patience: Duration,
    /// Start of that time, until there is memory.
    pub(super) waits_since: Option<Instant>,
    /// Set if there was room for commands before the last events.
    pub(super) had_room: bool,
    /// Reason for the end of the connection, once the messages before it have
    /// been handled.
    pub(super) ended: Option<ConnectionEnd>,
    local: SocketAddr,
    /// Set if both sides support invalidation.
    invalidate: bool,
}

impl IserWire {
    /// Accepts an initiator, whose data waits for memory for `patience`.
    ///
    /// # Errors
    /// The fabric's error.
    pub(super) async fn accept(
        arrival: RdmaArrival,
        core: Rc<Core>,
        patience: Duration,
    ) -> io::Result<Self> {
        let RdmaArrival { request, can_invalidate, local, .. } = arrival;
        let local = request.local_address().unwrap_or(local);
        let own = PrivateData::decode(request.private_data()).answer(can_invalidate);
        let setup = Setup {
            options: QueueOptions { receives: logged_in_receives(), ..QueueOptions::default() },
            receives: receives(&core.network.pool, LOGIN_RECEIVES, RECEIVE_BYTES),
            private_data: own.encode().to_vec(),
        };
        let verbs = establish(request, setup, &core.network.drain).await?;
        Ok(Self {
            endpoint: Endpoint::new(verbs),
            core,
            // Login responses are Sends, whatever is negotiated.
            target: Target::new(false, true),
            held: VecDeque::new(),
            patience,
            waits_since: None,
            had_room: true,
            ended: None,
            local,
            invalidate: own.invalidate,
        })
    }

    /// Waits for the next event.
    pub(super) async fn next_event(&mut self) -> Result<EndpointEvent<Reading>, ConnectionEnd> {
        if let Some(end) = self.ended.take() {
            return Err(end);
        }
        match self.endpoint.event().await {
            EndpointEvent::Disconnected(why) => Err(why.into()),
            event => Ok(event),
        }
    }

    /// Keeps a message, or the end of the connection, until it is asked for.
    pub(super) fn keep(&mut self, event: EndpointEvent<Reading>) {
        match event {
            EndpointEvent::Received(arrived) => self.held.push_back(arrived),
            EndpointEvent::Failed { kind, status } => {
                tracing::debug!(?kind, %status, "RDMA work failed");
            }
            EndpointEvent::Disconnected(why) => self.ended = Some(why.into()),
            EndpointEvent::Sent | EndpointEvent::Read { .. } => {}
        }
    }

    /// Posts the receive of a message again.
    pub(super) fn give_back(&mut self, arrived: Arrived) {
        self.endpoint.post_receive(arrived.buffer);
    }

    /// Extracts the PDU of a message; also returns the number of data bytes
    /// copied. The receive is posted again. Data of an incomplete sequence is
    /// not copied yet: one copy is made when the rest has arrived.
    pub(super) fn frame(
        &mut self,
        arrived: Arrived,
        parts: Parts,
        more_follows: bool,
    ) -> (Frame, usize) {
        let Parts { bhs, ahs, data } = parts;
        let len = data.len();
        let source = arrived.bytes().get(data.clone()).unwrap_or_default();
        if len < ALIGNED_BYTES {
            let data = if len == 0 { Vec::new() } else { vec![Bytes::copy_from_slice(source)] };
            self.give_back(arrived);
            return (Frame::new(bhs, ahs, data), len);
        }
        if more_follows {
            self.endpoint.post_receive(self.core.network.pool.take(RECEIVE_BYTES));
            let data = arrived.buffer.into_bytes().slice(data);
            return (Frame::new(bhs, ahs, vec![data]), 0);
        }
        let mut buffer = self.core.network.pool.take(len);
        buffer.copy_from_slice(source);
        self.give_back(arrived);
        (Frame::new(bhs, ahs, vec![buffer.into_bytes()]), len)
    }

    /// Extracts the PDU of a message whose data is thrown away. The receive is posted again.
    pub(super) fn frame_without_data(&mut self, arrived: Arrived, parts: Parts) -> Frame {
        self.give_back(arrived);
        let Parts { bhs, ahs, .. } = parts;
        Frame { bhs, ahs, data: Vec::new(), data_digest_ok: true }
    }

    /// Returns a buffer for a read.
    pub(super) fn buffer(&self, len: usize) -> AlignedBuf {
        self.core.network.pool.take(len)
    }

    /// Sends a single message.
    pub(super) fn send_message(&mut self, gather: Vec<Bytes>) -> Result<(), ConnectionEnd> {
        Ok(self.endpoint.send(Vec::new(), Some(SendPart { gather, invalidate: None }))?)
    }
}

impl LoginWire for IserWire {
    fn transport(&self) -> Transport {
        Transport::Iser
    }

    /// Posts all receives; before login, when the peer is unknown, there were
    /// only a few.
    fn open(&mut self) {
        for _ in LOGIN_RECEIVES..logged_in_receives() {
            self.endpoint.post_receive(self.core.network.pool.take(RECEIVE_BYTES));
        }
    }

    /// Receives hold the longest message from the beginning.
    fn configure(&mut self, params: &Operational) {
        self.target = Target::new(self.invalidate, params.solicited_buffer_only);
    }

    fn local(&self) -> Option<SocketAddr> {
        Some(self.local)
    }

    async fn next(&mut self) -> Result<Frame, ConnectionEnd> {
        loop {
            let Some(arrived) = self.held.pop_front() else {
                let event = self.next_event().await?;
                self.keep(event);
                continue;
            };
            let message = Message::decode(arrived.bytes()).map_err(ConnectionEnd::framing)?;
            if !matches!(message.header, Header::Control { .. }) {
                return Err(Misbehaved::Unexpected("Hello").into());
            }
            let parts = Parts::of(&message);
            return Ok(self.frame(arrived, parts, false).0);
        }
    }

    fn queue(&mut self, pdu: Outgoing) -> Result<(), ConnectionEnd> {
        match self.target.transmit(pdu) {
            Ok(Step::Send { message, .. }) => self.send_message(message),
            _ => Err(Bug::Encoding("a login response".into()).into()),
        }
    }

    async fn flush_all(&mut self) -> Result<(), ConnectionEnd> {
        while self.endpoint.sends() > 0 {
            let event = self.next_event().await?;
            self.keep(event);
        }
        Ok(())
    }
}
