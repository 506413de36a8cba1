//! Local end of an emulated connection.

use super::frame::Frame;
use super::memory::Memory;
use super::nic;
use super::plug::Plug;
use crate::limits::MAX_MESSAGE_BYTES;
use crate::traits::{Connection, QueueOptions, Setup};
use crate::work::{
    Disconnect, Event, PostError, ReadBatch, RemoteRead, SendBatch, WorkId, WorkKind, WorkStatus,
};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};
use zgate_store::AlignedBuf;

/// Posted work, waiting for one answer of the peer for each of its parts.
#[derive(Debug)]
struct Pending {
    id: WorkId,
    kind: WorkKind,
    /// Number of answers still missing.
    parts: usize,
    buffers: Vec<AlignedBuf>,
    /// Reads not answered yet, in order.
    reads: VecDeque<RemoteRead>,
}

/// State shared by a connection and its device task.
#[derive(Debug)]
pub(crate) struct Queues {
    receives: VecDeque<(WorkId, AlignedBuf)>,
    pending: VecDeque<Pending>,
    events: VecDeque<Event>,
    waker: Option<Waker>,
    ended: Option<Disconnect>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    queues: Mutex<Queues>,
    /// Notified when a receive was posted, or the connection ended.
    pub(crate) changed: Notify,
    /// Notified when the connection ended: little time is left for unsent
    /// frames.
    pub(crate) cut: Notify,
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the connection; see [`Queues::end`].
    pub(crate) fn end(&self, why: Disconnect, first: WorkStatus) {
        self.lock().end(why, first);
        self.changed.notify_one();
        self.cut.notify_one();
    }
}

impl Queues {
    fn push(&mut self, event: Event) {
        self.events.push_back(event);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    pub(crate) fn has_receive(&self) -> bool {
        !self.receives.is_empty()
    }

    /// Delivers a message into the oldest receive.
    pub(crate) fn receive(
        &mut self,
        message: &[bytes::Bytes],
        invalidated: Option<u32>,
    ) -> Result<(), WorkStatus> {
        let Some((id, mut buffer)) = self.receives.pop_front() else {
            return Err(WorkStatus::ReceiverNotReady);
        };
        let len = message.iter().map(bytes::Bytes::len).sum::<usize>();
        if len > buffer.len() {
            let (kind, status) = (WorkKind::Receive, WorkStatus::LocalLength);
            self.push(Event::Failed { id, kind, status, buffers: vec![buffer] });
            return Err(WorkStatus::RemoteInvalidRequest);
        }
        let mut at = 0;
        for piece in message {
            buffer[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        self.push(Event::Received { id, buffer, len, invalidated });
        Ok(())
    }

    /// Completes the oldest request with the peer's answer; false if there is
    /// no request.
    pub(crate) fn answered(&mut self, data: Option<&[u8]>) -> bool {
        let Some(front) = self.pending.front_mut() else { return false };
        match (front.reads.pop_front(), data) {
            (Some(read), Some(data)) if data.len() == read.from.len as usize => {
                let end = read.offset + data.len();
                front.buffers[read.buffer][read.offset..end].copy_from_slice(data);
            }
            (None, None) => {}
            _ => return false,
        }
        front.parts -= 1;
        self.complete();
        true
    }

    fn complete(&mut self) {
        while self.pending.front().is_some_and(|front| front.parts == 0) {
            let Some(done) = self.pending.pop_front() else { return };
            let event = match done.kind {
                WorkKind::Read => Event::Read { id: done.id, buffers: done.buffers },
                _ => Event::Sent { id: done.id },
            };
            self.push(event);
        }
    }

    /// Ends the connection: the oldest request fails with `first`, all other
    /// work is flushed.
    fn end(&mut self, why: Disconnect, first: WorkStatus) {
        if self.ended.is_some() {
            return;
        }
        self.ended = Some(why);
        let mut status = first;
        while let Some(Pending { id, kind, buffers, .. }) = self.pending.pop_front() {
            self.push(Event::Failed { id, kind, status, buffers });
            status = WorkStatus::Flushed;
        }
        while let Some((id, buffer)) = self.receives.pop_front() {
            self.flush(id, WorkKind::Receive, vec![buffer]);
        }
        self.push(Event::Disconnected(why));
    }

    fn flush(&mut self, id: WorkId, kind: WorkKind, buffers: Vec<AlignedBuf>) {
        self.push(Event::Failed { id, kind, status: WorkStatus::Flushed, buffers });
    }

    /// Flushes work that was posted after the end, before the last event.
    fn flush_late(&mut self, id: WorkId, kind: WorkKind, buffers: Vec<AlignedBuf>) {
        let last = self.events.pop_back();
        self.flush(id, kind, buffers);
        self.events.extend(last);
    }
}

/// An emulated connection. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct EmulatedConnection {
    peer: SocketAddr,
    shared: Arc<Shared>,
    frames: mpsc::UnboundedSender<Frame>,
    /// Set when the last event was returned.
    finished: bool,
}

impl EmulatedConnection {
    /// Starts the device task of a connection. Needs a tokio runtime.
    pub(crate) fn new(
        stream: TcpStream,
        peer: SocketAddr,
        setup: Setup,
        memory: Arc<Memory>,
        plug: &Plug,
    ) -> Self {
        let Setup { options, receives, .. } = setup;
        let QueueOptions { rnr_retries, .. } = options;
        let queues = Queues {
            receives: receives.into(),
            pending: VecDeque::new(),
            events: VecDeque::new(),
            waker: None,
            ended: None,
        };
        let shared = Arc::new(Shared {
            queues: Mutex::new(queues),
            changed: Notify::new(),
            cut: Notify::new(),
        });
        let frames = nic::start(stream, Arc::clone(&shared), memory, plug, rnr_retries);
        Self { peer, shared, frames, finished: false }
    }

    /// Sends a request's frame. If the device task has ended, it has flushed
    /// the request or will do so.
    fn transmit(&self, frame: Frame) {
        let _ = self.frames.send(frame);
    }
}

impl Connection for EmulatedConnection {
    fn peer_address(&self) -> SocketAddr {
        self.peer
    }

    fn post_receive(&mut self, id: WorkId, buffer: AlignedBuf) {
        let mut queues = self.shared.lock();
        if queues.has_ended() {
            queues.flush_late(id, WorkKind::Receive, vec![buffer]);
            return;
        }
        queues.receives.push_back((id, buffer));
        drop(queues);
        self.shared.changed.notify_one();
    }

    fn post_read(&mut self, batch: ReadBatch) -> Result<(), PostError> {
        batch.check()?;
        let ReadBatch { id, buffers, reads } = batch;
        let mut queues = self.shared.lock();
        if queues.has_ended() {
            queues.flush_late(id, WorkKind::Read, buffers);
            return Ok(());
        }
        let reads = VecDeque::from(reads);
        for read in &reads {
            self.transmit(Frame::Read { from: read.from });
        }
        let (kind, parts) = (WorkKind::Read, reads.len());
        queues.pending.push_back(Pending { id, kind, parts, buffers, reads });
        queues.complete();
        Ok(())
    }

    fn post_send(&mut self, batch: SendBatch) -> Result<(), PostError> {
        batch.check()?;
        if batch.send.as_ref().is_some_and(|send| send.len() > MAX_MESSAGE_BYTES) {
            return Err(PostError::TooLong);
        }
        let SendBatch { id, writes, send } = batch;
        let mut queues = self.shared.lock();
        if queues.has_ended() {
            queues.flush_late(id, WorkKind::Send, Vec::new());
            return Ok(());
        }
        let parts = writes.len() + usize::from(send.is_some());
        for write in writes {
            self.transmit(Frame::Write { to: write.to, gather: write.gather });
        }
        if let Some(send) = send {
            self.transmit(Frame::Send { gather: send.gather, invalidate: send.invalidate });
        }
        let (buffers, reads) = (Vec::new(), VecDeque::new());
        queues.pending.push_back(Pending { id, kind: WorkKind::Send, parts, buffers, reads });
        queues.complete();
        Ok(())
    }

    fn poll_event(&mut self, task: &mut Context<'_>) -> Poll<Event> {
        let mut queues = self.shared.lock();
        match queues.events.pop_front() {
            Some(event) => {
                self.finished |= matches!(event, Event::Disconnected(_));
                Poll::Ready(event)
            }
            None => {
                queues.waker = Some(task.waker().clone());
                Poll::Pending
            }
        }
    }

    fn next_at_hand(&mut self) -> Option<Event> {
        let event = self.shared.lock().events.pop_front()?;
        self.finished |= matches!(event, Event::Disconnected(_));
        Some(event)
    }

    fn disconnect(&mut self) {
        self.transmit(Frame::Disconnect);
        self.shared.end(Disconnect::Local, WorkStatus::Flushed);
    }
}

impl Drop for EmulatedConnection {
    fn drop(&mut self) {
        if !self.finished {
            self.disconnect();
        }
    }
}
