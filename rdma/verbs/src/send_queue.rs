//! The send queue: work that waits for room, work posted to the device, and its
//! batches.

use crate::memory::Region;
use bytes::Bytes;
use std::collections::VecDeque;
use zgate_fabric::{WorkId, WorkKind};
use zgate_rdma_sys as sys;
use zgate_store::AlignedBuf;

/// One work request.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) opcode: u32,
    pub(crate) scatter: Vec<sys::ScatterEntry>,
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
    pub(crate) invalidate: u32,
    /// Set if it is the last request of its batch.
    pub(crate) last: bool,
    /// Set if it requests a completion.
    pub(crate) signaled: bool,
}

/// A batch of work that completes together, and all memory it uses.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) id: WorkId,
    pub(crate) kind: WorkKind,
    /// Registrations of this batch; they are dropped before the memory.
    pub(crate) regions: Vec<Region>,
    /// Buffers that the device writes.
    pub(crate) buffers: Vec<AlignedBuf>,
    /// Bytes that the device reads.
    pub(crate) held: Vec<Bytes>,
}

#[derive(Clone, Copy, Debug)]
struct Posted {
    sequence: u64,
    last: bool,
}

/// Bookkeeping of the send queue. Its order is the order of completion.
#[derive(Debug)]
pub(crate) struct SendQueue {
    waiting: VecDeque<Work>,
    posted: VecDeque<Posted>,
    batches: VecDeque<Batch>,
    depth: usize,
    next_sequence: u64,
}

/// Work requests that are posted as one chain.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    requests: Vec<sys::SendWork>,
    scatter: Vec<Vec<sys::ScatterEntry>>,
}

impl Chain {
    /// Returns the first request, with all pointers set; null if there is none.
    /// Valid until the chain is moved, changed or dropped.
    pub(crate) fn head(&mut self) -> *mut sys::SendWork {
        let count = self.requests.len();
        if count == 0 {
            return std::ptr::null_mut();
        }
        for (request, scatter) in self.requests.iter_mut().zip(&mut self.scatter) {
            request.sg_list = scatter.as_mut_ptr();
            request.num_sge = scatter.len() as i32;
        }
        let first = self.requests.as_mut_ptr();
        for index in 1..count {
            // SAFETY: both are elements of the vector.
            unsafe { (*first.add(index - 1)).next = first.add(index) };
        }
        first
    }
}

impl SendQueue {
    pub(crate) fn new(depth: usize) -> Self {
        Self {
            waiting: VecDeque::new(),
            posted: VecDeque::new(),
            batches: VecDeque::new(),
            depth,
            next_sequence: 0,
        }
    }

    /// Queues a batch; its last request is marked as such. If that request is
    /// not signaled, the batch completes with the next signaled request.
    pub(crate) fn push(&mut self, batch: Batch, work: Vec<Work>) {
        debug_assert!(work.last().is_some_and(|work| work.last), "a batch without an end");
        self.batches.push_back(batch);
        self.waiting.extend(work);
    }

    /// Returns the work for which there is room now; it counts as posted.
    pub(crate) fn next_chain(&mut self) -> Chain {
        let mut chain = Chain::default();
        while self.posted.len() < self.depth {
            let Some(work) = self.waiting.pop_front() else { break };
            let sequence = self.next_sequence;
            self.next_sequence += 1;
            // Room is only known from completions: a batch longer than the
            // queue, or many unsignaled ones, must include some signaled
            // requests.
            let every = (self.depth / 4).max(1) as u64;
            let signaled = work.signaled || sequence.is_multiple_of(every);
            self.posted.push_back(Posted { sequence, last: work.last });
            chain.requests.push(sys::SendWork {
                wr_id: sequence,
                opcode: work.opcode,
                send_flags: if signaled { sys::SEND_SIGNALED } else { 0 },
                invalidate_rkey: work.invalidate,
                remote_addr: work.remote_addr,
                rkey: work.rkey,
                ..sys::SendWork::empty()
            });
            chain.scatter.push(work.scatter);
        }
        chain
    }

    /// Completes all work up to `sequence`; returns the batches that end with
    /// it.
    pub(crate) fn completed(&mut self, sequence: u64) -> Vec<Batch> {
        let mut done = Vec::new();
        while self.posted.front().is_some_and(|posted| posted.sequence <= sequence) {
            let last = self.posted.pop_front().is_some_and(|posted| posted.last);
            if last && let Some(batch) = self.batches.pop_front() {
                done.push(batch);
            }
        }
        done
    }

    /// Returns all incomplete batches, in order. Call it only after the queue
    /// pair is destroyed.
    pub(crate) fn give_back(&mut self) -> Vec<Batch> {
        self.waiting.clear();
        self.posted.clear();
        self.batches.drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(last: bool) -> Work {
        let scatter = vec![sys::ScatterEntry::default(); 2];
        let (remote_addr, rkey, invalidate, signaled) = (0, 0, 0, last);
        let opcode = sys::WR_RDMA_WRITE;
        Work { opcode, scatter, remote_addr, rkey, invalidate, last, signaled }
    }

    fn batch(id: u64) -> Batch {
        let (regions, buffers, held) = (Vec::new(), Vec::new(), Vec::new());
        Batch { id: WorkId(id), kind: WorkKind::Send, regions, buffers, held }
    }

    #[test]
    fn a_batch_longer_than_the_queue_goes_in_pieces() {
        let mut queue = SendQueue::new(8);
        let mut long: Vec<Work> = (0..19).map(|_| work(false)).collect();
        long.push(work(true));
        queue.push(batch(1), long);
        queue.push(batch(2), vec![work(true)]);
        let mut chain = queue.next_chain();
        assert_eq!(chain.requests.len(), 8);
        assert!(!chain.head().is_null());
        assert!(chain.requests[7].next.is_null());
        assert_eq!(chain.requests[0].next.cast_const(), &raw const chain.requests[1]);
        assert!(chain.requests.iter().any(|work| work.send_flags == sys::SEND_SIGNALED));
        assert!(queue.next_chain().head().is_null());
        let mut done = Vec::new();
        // The device completes only signaled requests.
        for sequence in 0..21 {
            done.extend(queue.completed(sequence).into_iter().map(|batch| batch.id.0));
            queue.next_chain();
        }
        assert_eq!(done, [1, 2]);
        assert!(queue.give_back().is_empty());
    }

    #[test]
    fn what_is_not_signaled_ends_with_what_is() {
        let mut queue = SendQueue::new(64);
        let quiet = || vec![Work { signaled: false, ..work(true) }];
        // The queue itself signals one request out of several.
        queue.push(batch(0), quiet());
        assert_eq!(queue.next_chain().requests[0].send_flags, sys::SEND_SIGNALED);
        queue.push(batch(1), quiet());
        queue.push(batch(2), vec![work(true)]);
        queue.push(batch(3), quiet());
        let flags: Vec<_> =
            queue.next_chain().requests.iter().map(|work| work.send_flags).collect();
        assert_eq!(flags, [0, sys::SEND_SIGNALED, 0]);
        let done: Vec<u64> = queue.completed(2).iter().map(|batch| batch.id.0).collect();
        assert_eq!(done, [0, 1, 2]);
        assert_eq!(queue.give_back().len(), 1);
    }

    #[test]
    fn one_completion_stands_for_all_before_it() {
        let mut queue = SendQueue::new(64);
        queue.push(batch(1), vec![work(false), work(true)]);
        queue.push(batch(2), vec![work(true)]);
        queue.push(batch(3), vec![work(true)]);
        queue.next_chain();
        let done: Vec<u64> = queue.completed(2).iter().map(|batch| batch.id.0).collect();
        assert_eq!(done, [1, 2]);
        assert_eq!(queue.give_back().len(), 1);
    }
}
