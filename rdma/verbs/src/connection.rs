//! One connection: a queue pair, its completions, and its connection manager
//! identifier.

use crate::cm::Link;
use crate::completion::{AT_ONCE, RECEIVE, status};
use crate::host::{Device, Host};
use crate::memory::{Region, local_key};
use crate::queue::Queues;
use crate::send_queue::{Batch, SendQueue, Work};
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use zgate_fabric::{
    Connection, Disconnect, Event, PostError, ReadBatch, SendBatch, WorkId, WorkKind, WorkStatus,
};
use zgate_rdma_sys as sys;
use zgate_store::AlignedBuf;

/// Length up to which bytes outside the arena are copied into it; longer ones
/// are registered. Such short data is headers.
const COPY_BYTES: usize = 8 << 10;

/// A posted receive. The registration is dropped before the buffer.
struct Receive {
    id: WorkId,
    _regions: Vec<Region>,
    buffer: AlignedBuf,
}

/// A connection on a device.
pub(crate) struct VerbsConnection {
    peer: SocketAddr,
    receives: HashMap<u64, Receive>,
    next_receive: u64,
    sends: SendQueue,
    events: VecDeque<Event>,
    /// Buffer for completions taken from the queue.
    taken: Box<[sys::Completion; AT_ONCE]>,
    ended: bool,
    max_scatter: usize,
    device: &'static Device,
    queues: Queues,
    link: Link,
}

impl fmt::Debug for VerbsConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerbsConnection({})", self.peer)
    }
}

impl VerbsConnection {
    /// Takes over an identifier with a queue pair. Receives may be posted
    /// before it is connected.
    pub(crate) fn new(
        link: Link,
        device: &'static Device,
        queues: Queues,
        peer: SocketAddr,
    ) -> Self {
        Self {
            peer,
            receives: HashMap::new(),
            next_receive: 0,
            sends: SendQueue::new(queues.send_depth),
            events: VecDeque::new(),
            taken: Box::new([sys::Completion::default(); AT_ONCE]),
            ended: false,
            max_scatter: queues.max_scatter,
            device,
            queues,
            link,
        }
    }

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    pub(crate) fn set_peer(&mut self, peer: SocketAddr) {
        self.peer = peer;
    }

    fn host(&self) -> &Arc<Host> {
        &self.link.host
    }

    /// Returns the local key of bytes.
    fn key(&self, bytes: &[u8], regions: &mut Vec<Region>) -> io::Result<u32> {
        local_key(self.host(), self.device, bytes, regions)
    }

    /// Builds scatter entries for bytes that are read, which the batch keeps
    /// alive.
    fn gather(&self, gather: Vec<Bytes>, batch: &mut Batch) -> io::Result<Vec<sys::ScatterEntry>> {
        let mut entries = Vec::with_capacity(gather.len());
        for bytes in gather.into_iter().filter(|bytes| !bytes.is_empty()) {
            let in_arena = self.device.arena_key(&bytes).is_some();
            let bytes = if in_arena || bytes.len() > COPY_BYTES {
                bytes
            } else {
                let mut copy = self.host().pool.take(bytes.len());
                copy.copy_from_slice(&bytes);
                copy.into_bytes()
            };
            let lkey = self.key(&bytes, &mut batch.regions)?;
            let (addr, length) = (bytes.as_ptr() as u64, bytes.len() as u32);
            entries.push(sys::ScatterEntry { addr, length, lkey });
            batch.held.push(bytes);
        }
        Ok(entries)
    }

    /// Builds the work requests of a batch of writes and a send.
    fn send_work(&self, posted: SendBatch, batch: &mut Batch) -> io::Result<Vec<Work>> {
        let mut work = Vec::new();
        let idle = Work {
            opcode: sys::WR_RDMA_WRITE,
            scatter: Vec::new(),
            remote_addr: 0,
            rkey: 0,
            invalidate: 0,
            last: false,
            signaled: false,
        };
        for write in posted.writes {
            let entries = self.gather(write.gather, batch)?;
            let (mut remote_addr, rkey) = (write.to.address, write.to.rkey);
            if entries.is_empty() {
                work.push(Work { remote_addr, rkey, ..idle_like(&idle) });
            }
            for entries in entries.chunks(self.max_scatter) {
                let scatter = entries.to_vec();
                let bytes: u64 = entries.iter().map(|entry| u64::from(entry.length)).sum();
                work.push(Work { scatter, remote_addr, rkey, ..idle_like(&idle) });
                remote_addr += bytes;
            }
        }
        if let Some(send) = posted.send {
            let pieces = send.gather.iter().filter(|bytes| !bytes.is_empty()).count();
            // A message is one request: merge the pieces if there are too many.
            let gather = if pieces > self.max_scatter {
                vec![flatten(&send.gather, self.host())]
            } else {
                send.gather
            };
            let scatter = self.gather(gather, batch)?;
            let opcode =
                if send.invalidate.is_some() { sys::WR_SEND_WITH_INV } else { sys::WR_SEND };
            let invalidate = send.invalidate.unwrap_or_default();
            work.push(Work { opcode, scatter, invalidate, ..idle });
        }
        Ok(work)
    }

    /// Builds the work requests of a batch of reads.
    fn read_work(&self, posted: &ReadBatch, regions: &mut Vec<Region>) -> io::Result<Vec<Work>> {
        let mut keys = Vec::with_capacity(posted.buffers.len());
        for buffer in &posted.buffers {
            keys.push(self.key(buffer, regions)?);
        }
        let with_bytes = posted.reads.iter().filter(|read| read.from.len > 0);
        Ok(with_bytes
            .map(|read| {
                let start = posted.buffers[read.buffer].as_ptr() as u64;
                let addr = start + read.offset as u64;
                let (length, lkey) = (read.from.len, keys[read.buffer]);
                Work {
                    opcode: sys::WR_RDMA_READ,
                    scatter: vec![sys::ScatterEntry { addr, length, lkey }],
                    remote_addr: read.from.address,
                    rkey: read.from.rkey,
                    invalidate: 0,
                    last: false,
                    signaled: false,
                }
            })
            .collect())
    }

    fn post(&mut self, posted: SendBatch, signaled: bool) -> Result<(), PostError> {
        posted.check()?;
        let (regions, buffers, held) = (Vec::new(), Vec::new(), Vec::new());
        let mut batch = Batch { id: posted.id, kind: WorkKind::Send, regions, buffers, held };
        let work = self.send_work(posted, &mut batch);
        self.submit(batch, work, signaled);
        Ok(())
    }

    /// Queues a batch, or returns it if the connection cannot take it. With
    /// `signaled` its completion is an event of its own.
    fn submit(&mut self, batch: Batch, work: io::Result<Vec<Work>>, signaled: bool) {
        let mut work = match work {
            Ok(work) if !self.ended => work,
            Ok(_) => return self.late(batch.id, batch.kind, batch.buffers),
            Err(error) => {
                // Memory that cannot be registered: none of the batch was
                // posted.
                let status = WorkStatus::Device(error.raw_os_error().unwrap_or(0) as u32);
                let Batch { id, kind, buffers, .. } = batch;
                self.events.push_back(Event::Failed { id, kind, status, buffers });
                return self.end(Disconnect::Error, WorkStatus::Flushed);
            }
        };
        match work.last_mut() {
            Some(last) => (last.last, last.signaled) = (true, signaled),
            None => return self.events.push_back(done(batch)),
        }
        self.sends.push(batch, work);
        self.post_waiting();
    }

    /// Posts waiting work while there is room.
    fn post_waiting(&mut self) {
        let mut chain = self.sends.next_chain();
        let head = chain.head();
        if head.is_null() || self.ended {
            return;
        }
        // SAFETY: the queue pair is live until `end`. The chain is valid
        // during the call; the memory its entries name is kept by its batch
        // until completion or until the queue pair is destroyed.
        let failed = unsafe { sys::post_send((*self.link.id).qp, head) };
        if failed != 0 {
            self.end(Disconnect::Error, WorkStatus::Device(failed as u32));
        }
    }

    /// Takes completions; returns whether there were any.
    fn take_completions(&mut self) -> bool {
        let Ok(count) = self.queues.completions.take(&mut self.taken[..]) else {
            self.end(Disconnect::Error, WorkStatus::Flushed);
            return true;
        };
        for at in 0..count.min(AT_ONCE) {
            if self.ended {
                break;
            }
            let completion = self.taken[at];
            if completion.wr_id & RECEIVE != 0 {
                self.receive_completed(&completion);
            } else {
                self.send_completed(&completion);
            }
        }
        if count > 0 && !self.ended {
            self.post_waiting();
        }
        count > 0
    }

    fn receive_completed(&mut self, completion: &sys::Completion) {
        if completion.status != sys::WC_SUCCESS {
            return match status(completion.status) {
                // The queue pair is in error; the peer or a send has the
                // reason.
                WorkStatus::Flushed => self.end(Disconnect::Peer, WorkStatus::Flushed),
                status => {
                    if let Some(receive) = self.receives.remove(&completion.wr_id) {
                        let (id, kind) = (receive.id, WorkKind::Receive);
                        let buffers = vec![receive.buffer];
                        self.events.push_back(Event::Failed { id, kind, status, buffers });
                    }
                    self.end(Disconnect::Error, WorkStatus::Flushed);
                }
            };
        }
        let Some(Receive { id, buffer, .. }) = self.receives.remove(&completion.wr_id) else {
            return;
        };
        let len = (completion.byte_len as usize).min(buffer.len());
        let by_peer = completion.wc_flags & sys::WC_WITH_INV != 0;
        let invalidated = by_peer.then_some(completion.invalidated_rkey);
        self.events.push_back(Event::Received { id, buffer, len, invalidated });
    }

    fn send_completed(&mut self, completion: &sys::Completion) {
        let failed = completion.status != sys::WC_SUCCESS;
        // A failure implies that all earlier work is done.
        let up_to = if failed { completion.wr_id.checked_sub(1) } else { Some(completion.wr_id) };
        if let Some(sequence) = up_to {
            let batches = self.sends.completed(sequence);
            self.events.extend(batches.into_iter().map(done));
        }
        if failed {
            match status(completion.status) {
                WorkStatus::Flushed => self.end(Disconnect::Peer, WorkStatus::Flushed),
                status => self.end(Disconnect::Error, status),
            }
        }
    }

    /// Ends the connection: the oldest batch fails with `first`, all other work
    /// is flushed. Nothing is returned before the queue pair is destroyed.
    fn end(&mut self, why: Disconnect, first: WorkStatus) {
        if self.ended {
            return;
        }
        self.ended = true;
        // SAFETY: the identifier is live and has a queue pair until here. The
        // device touches no memory of it any more when this returns.
        unsafe {
            (self.host().cm.disconnect)(self.link.id);
            (self.host().cm.destroy_qp)(self.link.id);
        }
        let mut status = first;
        for Batch { id, kind, buffers, .. } in self.sends.give_back() {
            self.events.push_back(Event::Failed { id, kind, status, buffers });
            status = WorkStatus::Flushed;
        }
        let mut receives: Vec<_> = self.receives.drain().collect();
        receives.sort_by_key(|(number, _)| *number);
        for (_, Receive { id, buffer, .. }) in receives {
            let (kind, status) = (WorkKind::Receive, WorkStatus::Flushed);
            self.events.push_back(Event::Failed { id, kind, status, buffers: vec![buffer] });
        }
        self.events.push_back(Event::Disconnected(why));
    }

    /// Returns work that was posted too late, before the last event.
    fn late(&mut self, id: WorkId, kind: WorkKind, buffers: Vec<AlignedBuf>) {
        let last = self.events.pop_back();
        let status = WorkStatus::Flushed;
        self.events.push_back(Event::Failed { id, kind, status, buffers });
        self.events.extend(last);
    }

    fn noticed(&mut self, event: u32) {
        match event {
            sys::CM_DISCONNECTED | sys::CM_ADDR_CHANGE => {
                // Completions that precede the disconnect are still delivered.
                while self.take_completions() && !self.ended {}
                self.end(Disconnect::Peer, WorkStatus::Flushed);
            }
            sys::CM_DEVICE_REMOVAL => self.end(Disconnect::DeviceGone, WorkStatus::Flushed),
            // End of TIME-WAIT, or an irrelevant event.
            _ => {}
        }
    }
}

fn idle_like(work: &Work) -> Work {
    Work { scatter: Vec::new(), ..*work }
}

fn done(batch: Batch) -> Event {
    match batch.kind {
        WorkKind::Read => Event::Read { id: batch.id, buffers: batch.buffers },
        _ => Event::Sent { id: batch.id },
    }
}

fn flatten(pieces: &[Bytes], host: &Host) -> Bytes {
    let mut whole = host.pool.take(pieces.iter().map(Bytes::len).sum());
    let mut at = 0;
    for piece in pieces {
        whole[at..at + piece.len()].copy_from_slice(piece);
        at += piece.len();
    }
    whole.into_bytes()
}

impl Connection for VerbsConnection {
    fn peer_address(&self) -> SocketAddr {
        self.peer
    }

    fn post_receive(&mut self, id: WorkId, buffer: AlignedBuf) {
        if self.ended {
            return self.late(id, WorkKind::Receive, vec![buffer]);
        }
        let mut regions = Vec::new();
        let lkey = self.key(&buffer, &mut regions);
        let number = RECEIVE | self.next_receive;
        self.next_receive += 1;
        let (addr, length) = (buffer.as_ptr() as u64, buffer.len() as u32);
        self.receives.insert(number, Receive { id, _regions: regions, buffer });
        let failed = match lkey {
            Ok(lkey) => {
                let mut entry = sys::ScatterEntry { addr, length, lkey };
                let mut work = sys::ReceiveWork {
                    wr_id: number,
                    next: std::ptr::null_mut(),
                    sg_list: &raw mut entry,
                    num_sge: 1,
                };
                // SAFETY: the queue pair is live until `end`; the buffer is
                // kept until completion or until the queue pair is destroyed.
                unsafe { sys::post_recv((*self.link.id).qp, &raw mut work) }
            }
            Err(error) => error.raw_os_error().unwrap_or(libc::ENOMEM),
        };
        if failed != 0 {
            self.end(Disconnect::Error, WorkStatus::Device(failed as u32));
        }
    }

    fn post_read(&mut self, batch: ReadBatch) -> Result<(), PostError> {
        batch.check()?;
        let mut regions = Vec::new();
        let work = self.read_work(&batch, &mut regions);
        let ReadBatch { id, buffers, .. } = batch;
        let batch = Batch { id, kind: WorkKind::Read, regions, buffers, held: Vec::new() };
        self.submit(batch, work, true);
        Ok(())
    }

    fn post_send(&mut self, posted: SendBatch) -> Result<(), PostError> {
        self.post(posted, true)
    }

    fn post_send_quietly(&mut self, posted: SendBatch) -> Result<(), PostError> {
        self.post(posted, false)
    }

    fn poll_event(&mut self, task: &mut Context<'_>) -> Poll<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Poll::Ready(event);
            }
            if self.ended {
                return Poll::Pending;
            }
            if self.take_completions() {
                continue;
            }
            match self.queues.completions.poll_ready(task) {
                Poll::Ready(Ok(())) => continue,
                Poll::Ready(Err(_)) => {
                    self.end(Disconnect::Error, WorkStatus::Flushed);
                    continue;
                }
                Poll::Pending => {}
            }
            match self.link.poll_notice(task) {
                Poll::Ready(Ok(notice)) => self.noticed(notice.event),
                Poll::Ready(Err(_)) => self.end(Disconnect::Error, WorkStatus::Flushed),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn next_at_hand(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn disconnect(&mut self) {
        while !self.ended && self.take_completions() {}
        self.end(Disconnect::Local, WorkStatus::Flushed);
    }
}

impl Drop for VerbsConnection {
    fn drop(&mut self) {
        // Before the queues and the identifier are dropped.
        self.end(Disconnect::Local, WorkStatus::Flushed);
    }
}
