//! A connection with its accounting: work numbers, bytes not received by the
//! peer yet, and the time since the peer's last completion.

use crate::traits::Connection;
use crate::work::{
    Disconnect, Event, PostError, ReadBatch, RemoteRead, RemoteSlice, RemoteWrite, SendBatch,
    SendPart, WorkId, WorkKind, WorkStatus,
};
use std::collections::{HashMap, VecDeque};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use zgate_store::{AlignedBuf, BufferPool};

/// Receives have no separate number: their events contain everything needed.
const RECEIVE: WorkId = WorkId(0);

/// Bytes that a message counts at least: a device may copy it into a buffer of
/// the pool, of which this is the smallest size.
const LEAST_MESSAGE_BYTES: usize = 4 << 10;

/// Most messages sent quietly in a row. The next one is sent as any other, so
/// that they are all counted.
const MAX_QUIET: usize = 63;

/// Most events in a row, without those that are at hand after them, until others of the
/// thread have their turn.
const MAX_IN_A_ROW: u32 = 32;

/// `count` receive buffers of `bytes` each, for [`crate::Setup`].
#[must_use]
pub fn receives(pool: &BufferPool, count: u32, bytes: usize) -> Vec<(WorkId, AlignedBuf)> {
    (0..count).map(|_| (RECEIVE, pool.take(bytes))).collect()
}

/// A message in its receive buffer. Return the buffer with
/// [`Endpoint::post_receive`].
#[derive(Debug)]
pub struct Message {
    /// The receive buffer.
    pub buffer: AlignedBuf,
    len: usize,
}

impl Message {
    /// The bytes of the message.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.buffer.get(..self.len).unwrap_or(&self.buffer)
    }
}

/// An event of a connection; `R` is the owner's note of a read.
#[derive(Debug)]
pub enum EndpointEvent<R> {
    /// A message was received.
    Received(Message),
    /// Reads are complete.
    Read {
        /// The owner's note.
        note: R,
        /// The buffers with the data.
        buffers: Vec<AlignedBuf>,
    },
    /// Writes and the message after them are complete: the peer has received
    /// them.
    Sent,
    /// Work failed; [`Self::Disconnected`] follows.
    Failed {
        /// Kind of the work.
        kind: WorkKind,
        /// The reason. [`WorkStatus::Flushed`] follows another reason.
        status: WorkStatus,
    },
    /// The connection ended; the last event.
    Disconnected(Disconnect),
}

/// One end of a connection.
#[derive(Debug)]
pub struct Endpoint<R> {
    verbs: Box<dyn Connection>,
    last_id: u64,
    /// Sends in progress and their bytes, oldest first.
    sends: VecDeque<(WorkId, usize)>,
    sending_bytes: usize,
    /// Messages sent quietly since the last send, and their bytes. Nothing may
    /// wait for them: they may be complete only with the next send, which takes
    /// over their bytes.
    quiet: VecDeque<(WorkId, usize)>,
    reads: HashMap<WorkId, R>,
    /// Time of the peer's last completion, or of the first outstanding work.
    progress: Instant,
    /// Events since the task has last waited.
    in_a_row: u32,
    ended: bool,
}

impl<R> Endpoint<R> {
    /// Takes a connection on which only [`receives`] are posted.
    #[must_use]
    pub fn new(verbs: Box<dyn Connection>) -> Self {
        Self {
            verbs,
            last_id: RECEIVE.0,
            sends: VecDeque::new(),
            sending_bytes: 0,
            quiet: VecDeque::new(),
            reads: HashMap::new(),
            progress: Instant::now(),
            in_a_row: 0,
            ended: false,
        }
    }

    /// Waits for the next event. Cancel safe.
    pub async fn event(&mut self) -> EndpointEvent<R> {
        let event = std::future::poll_fn(|task| self.poll_event(task)).await;
        self.account(event)
    }

    /// Polls for the next event. A device, unlike the runtime's own sockets, has events
    /// as fast as the peer makes them: a peer that always has more would keep the thread
    /// for itself, and its own connection from all else that it waits for.
    fn poll_event(&mut self, task: &mut Context<'_>) -> Poll<Event> {
        if self.in_a_row >= MAX_IN_A_ROW {
            self.in_a_row = 0;
            task.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.in_a_row += 1;
        let polled = self.verbs.poll_event(task);
        if polled.is_pending() {
            self.in_a_row = 0;
        }
        polled
    }

    /// Returns the next event that was received together with an earlier one.
    pub fn next_at_hand(&mut self) -> Option<EndpointEvent<R>> {
        let event = self.verbs.next_at_hand()?;
        Some(self.account(event))
    }

    fn account(&mut self, event: Event) -> EndpointEvent<R> {
        match event {
            Event::Received { buffer, len, .. } => EndpointEvent::Received(Message { buffer, len }),
            Event::Read { id, buffers } => {
                self.progress = Instant::now();
                match self.reads.remove(&id) {
                    Some(note) => EndpointEvent::Read { note, buffers },
                    None => EndpointEvent::Sent,
                }
            }
            Event::Sent { id } => {
                self.progress = Instant::now();
                self.forget_send(id);
                EndpointEvent::Sent
            }
            Event::Failed { id, kind, status, .. } => {
                self.reads.remove(&id);
                self.forget_send(id);
                EndpointEvent::Failed { kind, status }
            }
            Event::Disconnected(why) => {
                self.ended = true;
                EndpointEvent::Disconnected(why)
            }
        }
    }

    fn forget_send(&mut self, id: WorkId) {
        // Sends complete in the order in which they were posted.
        if let Some(at) = self.sends.iter().position(|(known, _)| *known == id)
            && let Some((_, bytes)) = self.sends.remove(at)
        {
            self.sending_bytes -= bytes;
        } else {
            self.quiet.retain(|(known, _)| *known != id);
        }
    }

    fn next_id(&mut self) -> WorkId {
        self.last_id += 1;
        WorkId(self.last_id)
    }

    /// Posts a buffer for one message.
    pub fn post_receive(&mut self, buffer: AlignedBuf) {
        self.verbs.post_receive(RECEIVE, buffer);
    }

    /// Reads the peer's memory. The event returns the note.
    ///
    /// # Errors
    /// [`PostError`]; the buffers are dropped.
    pub fn read(
        &mut self,
        note: R,
        buffers: Vec<AlignedBuf>,
        reads: Vec<RemoteRead>,
    ) -> Result<(), PostError> {
        let id = self.next_id();
        self.verbs.post_read(ReadBatch { id, buffers, reads })?;
        self.work_begins();
        self.reads.insert(id, note);
        Ok(())
    }

    /// Writes the peer's memory, and then sends a message.
    ///
    /// # Errors
    /// [`PostError`].
    pub fn send(
        &mut self,
        writes: Vec<RemoteWrite>,
        send: Option<SendPart>,
    ) -> Result<(), PostError> {
        let written: usize = writes.iter().map(|write| write.to.len as usize).sum();
        let bytes = written + send.as_ref().map_or(0, charge);
        let id = self.next_id();
        self.verbs.post_send(SendBatch { id, writes, send })?;
        self.work_begins();
        let bytes = bytes + self.quiet.drain(..).map(|(_, bytes)| bytes).sum::<usize>();
        self.sends.push_back((id, bytes));
        self.sending_bytes += bytes;
        Ok(())
    }

    /// Sends a message that is followed by more work; see
    /// [`Connection::post_send_quietly`]. The message does not count as
    /// outstanding work: it is complete once the following work is. Its bytes
    /// count from the next [`Self::send`] on, until that is complete; after some
    /// such messages the next one is a [`Self::send`].
    ///
    /// # Errors
    /// [`PostError`].
    pub fn send_quietly(&mut self, message: SendPart) -> Result<(), PostError> {
        if self.quiet.len() >= MAX_QUIET {
            return self.send(Vec::new(), Some(message));
        }
        let (id, bytes) = (self.next_id(), charge(&message));
        self.verbs.post_send_quietly(SendBatch { id, writes: Vec::new(), send: Some(message) })?;
        self.quiet.push_back((id, bytes));
        Ok(())
    }

    /// Posts an empty write unless work is outstanding: a dead peer does not
    /// acknowledge it, and the connection fails.
    ///
    /// # Errors
    /// [`PostError`].
    pub fn probe(&mut self) -> Result<(), PostError> {
        if self.has_work() {
            return Ok(());
        }
        let to = RemoteSlice { rkey: 0, address: 0, len: 0 };
        self.send(vec![RemoteWrite { to, gather: Vec::new() }], None)
    }

    fn work_begins(&mut self) {
        if !self.has_work() {
            self.progress = Instant::now();
        }
    }

    /// Returns whether the peer has operations to complete.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !(self.sends.is_empty() && self.reads.is_empty())
    }

    /// Number of outstanding batches of reads.
    #[must_use]
    pub fn reads(&self) -> usize {
        self.reads.len()
    }

    /// Number of outstanding sends, without messages sent quietly.
    #[must_use]
    pub fn sends(&self) -> usize {
        self.sends.len()
    }

    /// Bytes sent and written that the peer may not have received yet, without a
    /// few messages sent quietly. A message counts 4 KiB at least.
    #[must_use]
    pub fn sending_bytes(&self) -> usize {
        self.sending_bytes
    }

    /// Returns the time since the peer last completed one of the operations in flight.
    /// Devices retry for long, and longer when many operations are in flight.
    #[must_use]
    pub fn stalled_for(&self, now: Instant) -> Duration {
        if self.has_work() { now.saturating_duration_since(self.progress) } else { Duration::ZERO }
    }

    /// Closes the connection, unless closed. After this returns, no device
    /// accesses local memory any more.
    pub async fn close(&mut self) {
        if !self.ended {
            self.verbs.disconnect();
            while !self.ended {
                self.event().await;
            }
        }
    }
}

/// Returns the bytes that a message counts.
fn charge(message: &SendPart) -> usize {
    message.len().max(LEAST_MESSAGE_BYTES)
}
