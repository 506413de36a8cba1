//! A connection of the fabric that carries PDUs.

use crate::block::limits::LOGIN_RECEIVES;
use crate::block::login::LoginWire;
use crate::listen::rdma::accept::RdmaArrival;
use bytes::Bytes;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use zgate_fabric::{Event, QueueOptions, ReadBatch, SendBatch, SendPart, Setup, WorkId};
use zgate_iscsi::limits::BHS_BYTES;
use zgate_iscsi::login::{Offer, Operational, Transport};
use zgate_iscsi::pdu::{Bhs, Frame, Outgoing};
use zgate_iser::limits::{HEADER_BYTES, RECEIVE_BYTES, SPARE_RECEIVES};
use zgate_iser::{Header, Message, PrivateData, Step, Target};
use zgate_store::{AlignedBuf, BufferPool};

/// Numbers of work that is no receive begin here.
const FIRST_WORK: u64 = 1 << 32;
/// Data segments from this length on get a pool buffer, in bytes: storage
/// takes them from there as they are.
const ALIGNED_BYTES: usize = 512;

/// A message as it came.
#[derive(Debug)]
pub(super) struct Arrived {
    id: WorkId,
    buffer: AlignedBuf,
    len: usize,
}

/// What an event comes to.
#[derive(Debug)]
pub(super) enum Happened {
    /// A message.
    Message(Arrived),
    /// An RDMA Read is done.
    Read(WorkId, Vec<AlignedBuf>),
    /// The initiator has something that was sent.
    Sent,
    /// Nothing that anybody waits for.
    Nothing,
}

/// A PDU in a message: where its data is.
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

impl Arrived {
    pub(super) fn bytes(&self) -> &[u8] {
        self.buffer.get(..self.len).unwrap_or_default()
    }
}

/// Receives of a connection that is logged in.
fn receives() -> u32 {
    Offer::default().window() + SPARE_RECEIVES
}

/// The connection.
pub(super) struct Wire {
    verbs: Box<dyn zgate_fabric::Connection>,
    local: SocketAddr,
    pool: BufferPool,
    next_work: u64,
    /// Messages that came while something else was waited for.
    early: VecDeque<Arrived>,
    /// Sends under way and their bytes, oldest first.
    sending: VecDeque<(WorkId, usize)>,
    sending_bytes: usize,
    /// Both sides can invalidate.
    pub(super) invalidate: bool,
}

impl Wire {
    /// Accepts an initiator.
    ///
    /// # Errors
    /// The fabric's.
    pub(super) async fn accept(arrival: RdmaArrival, pool: BufferPool) -> io::Result<Self> {
        let RdmaArrival { request, can_invalidate, local, .. } = arrival;
        let local = request.local_address().unwrap_or(local);
        let own = PrivateData::decode(request.private_data()).answer(can_invalidate);
        let depth = receives();
        let receives = (0..LOGIN_RECEIVES).map(|id| (WorkId(id.into()), pool.take(RECEIVE_BYTES)));
        let setup = Setup {
            options: QueueOptions { receives: depth, ..QueueOptions::default() },
            receives: receives.collect(),
            private_data: own.encode().to_vec(),
        };
        let verbs = request.accept(setup).await?;
        Ok(Self {
            verbs,
            local,
            pool,
            next_work: FIRST_WORK,
            early: VecDeque::new(),
            sending: VecDeque::new(),
            sending_bytes: 0,
            invalidate: own.invalidate,
        })
    }

    /// The next thing that happens.
    pub(super) async fn happens(&mut self) -> Result<Happened, &'static str> {
        if let Some(arrived) = self.early.pop_front() {
            return Ok(Happened::Message(arrived));
        }
        let event = self.verbs.event().await;
        self.take(event)
    }

    /// What came together with what happened last.
    pub(super) fn at_hand(&mut self) -> Option<Result<Happened, &'static str>> {
        let event = self.verbs.next_at_hand()?;
        Some(self.take(event))
    }

    fn take(&mut self, event: Event) -> Result<Happened, &'static str> {
        match event {
            Event::Received { id, buffer, len, .. } => {
                Ok(Happened::Message(Arrived { id, buffer, len }))
            }
            Event::Read { id, buffers } => Ok(Happened::Read(id, buffers)),
            Event::Sent { id } => {
                self.sent(id);
                Ok(Happened::Sent)
            }
            Event::Failed { id, kind, status, .. } => {
                self.sent(id);
                tracing::debug!(?kind, %status, "RDMA work failed");
                Ok(Happened::Nothing)
            }
            Event::Disconnected(_) => Err("disconnected"),
        }
    }

    fn sent(&mut self, id: WorkId) {
        if let Some(at) = self.sending.iter().position(|(known, _)| *known == id)
            && let Some((_, bytes)) = self.sending.remove(at)
        {
            self.sending_bytes -= bytes;
        }
    }

    /// Gives the receive of a message back, once it has been looked at.
    pub(super) fn give_back(&mut self, arrived: Arrived) {
        self.verbs.post_receive(arrived.id, arrived.buffer);
    }

    /// The PDU of a message, and how many bytes of its data were copied. The
    /// receive is posted again. Data that more is to follow is not copied:
    /// that is done when the rest is there, and once is enough.
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
            let Arrived { id, buffer, .. } = arrived;
            self.verbs.post_receive(id, self.pool.take(RECEIVE_BYTES));
            return (Frame::new(bhs, ahs, vec![buffer.into_bytes().slice(data)]), 0);
        }
        let mut buffer = self.pool.take(len);
        buffer.copy_from_slice(source);
        self.give_back(arrived);
        (Frame::new(bhs, ahs, vec![buffer.into_bytes()]), len)
    }

    /// A buffer for a read.
    pub(super) fn buffer(&self, len: usize) -> AlignedBuf {
        self.pool.take(len)
    }

    /// A number for work.
    pub(super) fn work_id(&mut self) -> WorkId {
        self.next_work += 1;
        WorkId(self.next_work)
    }

    /// Posts reads.
    pub(super) fn post_read(&mut self, batch: ReadBatch) -> Result<(), &'static str> {
        self.verbs.post_read(batch).map_err(|_| "a read outside its buffer")
    }

    /// Posts writes and the message behind them.
    pub(super) fn post_send(&mut self, batch: SendBatch) -> Result<(), &'static str> {
        let written = batch.writes.iter().map(|write| write.to.len as usize).sum::<usize>();
        let bytes = written + batch.send.as_ref().map_or(0, SendPart::len);
        let id = self.work_id();
        self.sending.push_back((id, bytes));
        self.sending_bytes += bytes;
        self.verbs.post_send(SendBatch { id, ..batch }).map_err(|_| "a message of other lengths")
    }

    /// Posts a message behind which more work follows. It does not count among
    /// what is being sent: the initiator has it when it has what follows.
    pub(super) fn post_quietly(&mut self, batch: SendBatch) -> Result<(), &'static str> {
        let id = self.work_id();
        let posted = self.verbs.post_send_quietly(SendBatch { id, ..batch });
        posted.map_err(|_| "a message of other lengths")
    }

    /// Sends a message without more.
    pub(super) fn send(&mut self, gather: Vec<Bytes>) -> Result<(), &'static str> {
        let send = Some(SendPart { gather, invalidate: None });
        self.post_send(SendBatch { id: WorkId(0), writes: Vec::new(), send })
    }

    /// Bytes that the initiator does not have yet.
    pub(super) fn sending_bytes(&self) -> usize {
        self.sending_bytes
    }

    /// Whether the initiator has everything.
    pub(super) fn is_empty(&self) -> bool {
        self.sending.is_empty()
    }
}

impl LoginWire for Wire {
    fn transport(&self) -> Transport {
        Transport::Iser
    }

    /// All receives, where a connection that may be anybody's had few.
    fn open(&mut self) {
        for id in LOGIN_RECEIVES..receives() {
            self.verbs.post_receive(WorkId(id.into()), self.pool.take(RECEIVE_BYTES));
        }
    }

    /// Nothing changes: receives hold the longest message from the beginning.
    fn configure(&mut self, _params: &Operational) {}

    fn local(&self) -> Option<SocketAddr> {
        Some(self.local)
    }

    async fn next(&mut self) -> Result<Frame, &'static str> {
        loop {
            let Happened::Message(arrived) = self.happens().await? else { continue };
            let message = Message::decode(arrived.bytes()).map_err(|error| {
                tracing::debug!(%error, "bad iSER message");
                "bad message"
            })?;
            if !matches!(message.header, Header::Control { .. }) {
                return Err("a Hello before its time");
            }
            let parts = Parts::of(&message);
            return Ok(self.frame(arrived, parts, false).0);
        }
    }

    fn queue(&mut self, pdu: Outgoing) -> Result<(), &'static str> {
        // Login responses become Sends, whatever is agreed.
        match Target::new(false, true).transmit(pdu) {
            Ok(Step::Send { message, .. }) => self.send(message),
            _ => Err("a PDU cannot be sent"),
        }
    }

    async fn flush_all(&mut self) -> Result<(), &'static str> {
        while !self.sending.is_empty() {
            let event = self.verbs.event().await;
            if let Happened::Message(arrived) = self.take(event)? {
                self.early.push_back(arrived);
            }
        }
        Ok(())
    }
}
