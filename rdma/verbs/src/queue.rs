//! Completion queues with their channels, and queue pairs.

use crate::cm::{Link, check, watch_descriptor};
use crate::cq_poller::CqPoller;
use crate::host::{Device, Host};
use std::ffi::c_int;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Instant;
use tokio::io::unix::AsyncFd;
use zgate_fabric::QueueOptions;
use zgate_rdma_sys as sys;

/// Most scatter entries of one work request.
const MAX_SCATTER: u32 = 16;

/// Counter that spreads completion queues over the device's interrupts.
static NEXT_VECTOR: AtomicUsize = AtomicUsize::new(0);

/// A completion queue that wakes a task.
#[derive(Debug)]
pub(crate) struct Completions {
    host: Arc<Host>,
    channel: *mut sys::CompletionChannel,
    cq: *mut sys::CompletionQueue,
    readable: Option<AsyncFd<OwnedFd>>,
    /// Set if the next completion raises an event.
    armed: bool,
    poller: CqPoller,
}

// SAFETY: verbs may be called from all threads, and the objects belong to this
// value alone.
unsafe impl Send for Completions {}

impl Completions {
    fn new(host: &Arc<Host>, device: &Device, entries: u32) -> io::Result<Self> {
        // SAFETY: the context is open.
        let channel = unsafe { (host.verbs.create_comp_channel)(device.context) };
        if channel.is_null() {
            return Err(io::Error::last_os_error());
        }
        let host = Arc::clone(host);
        let poller = CqPoller::new(Instant::now());
        let mut made = Self { host, channel, cq: null_mut(), readable: None, armed: false, poller };
        // SAFETY: just created, with an open descriptor.
        made.readable = Some(unsafe { watch_descriptor((*channel).fd) }?);
        // SAFETY: the context is open.
        let vectors = unsafe { (*device.context).num_comp_vectors }.max(1) as usize;
        let vector = (NEXT_VECTOR.fetch_add(1, Ordering::Relaxed) % vectors) as c_int;
        let entries = c_int::try_from(entries).unwrap_or(c_int::MAX).min(device.attributes.max_cqe);
        // SAFETY: context and channel are open.
        made.cq = unsafe {
            (made.host.verbs.create_cq)(device.context, entries, null_mut(), channel, vector)
        };
        if made.cq.is_null() {
            return Err(io::Error::last_os_error());
        }
        made.arm()?;
        Ok(made)
    }

    fn arm(&mut self) -> io::Result<()> {
        // SAFETY: the queue is live.
        match unsafe { sys::req_notify_cq(self.cq) } {
            0 => self.armed = true,
            error => return Err(io::Error::from_raw_os_error(error)),
        }
        Ok(())
    }

    /// Takes completions without waiting; returns their number.
    pub(crate) fn take(&mut self, into: &mut [sys::Completion]) -> io::Result<usize> {
        // SAFETY: the queue is live.
        let taken = unsafe { sys::poll_cq(self.cq, into) };
        if taken > 0 {
            self.poller.found(Instant::now());
        }
        usize::try_from(taken).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    /// Ready if there may be new completions since the last poll, which found
    /// none. While completions arrive quickly, polling continues and other
    /// tasks run in between; otherwise the queue is armed to raise an event.
    pub(crate) fn poll_ready(&mut self, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.armed {
            if self.poller.poll_again(Instant::now()) {
                task.waker().wake_by_ref();
                return Poll::Pending;
            }
            // Completions that arrived since the last poll raise no event: poll
            // once more.
            return Poll::Ready(self.arm());
        }
        let Some(readable) = &self.readable else { return Poll::Pending };
        loop {
            let mut guard = ready!(readable.poll_read_ready(task))?;
            let (mut cq, mut context) = (null_mut(), null_mut());
            // SAFETY: the channel is open and its descriptor does not block.
            let result = check(unsafe {
                (self.host.verbs.get_cq_event)(self.channel, &raw mut cq, &raw mut context)
            });
            match result {
                Ok(()) => {
                    // SAFETY: one event was taken of this queue.
                    unsafe { (self.host.verbs.ack_cq_events)(cq, 1) };
                    // The queue raises one event each time it is armed: there
                    // is no other.
                    guard.clear_ready();
                    self.armed = false;
                    self.poller.woken(Instant::now());
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        self.readable = None;
        // SAFETY: the queue pair that used the queue is gone, all events are
        // acknowledged; the queue goes before its channel.
        unsafe {
            if !self.cq.is_null() {
                (self.host.verbs.destroy_cq)(self.cq);
            }
            (self.host.verbs.destroy_comp_channel)(self.channel);
        }
    }
}

/// Queues of one connection and their sizes.
#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) completions: Completions,
    /// Number of work requests that the send queue holds.
    pub(crate) send_depth: usize,
    /// Most scatter entries of one work request.
    pub(crate) max_scatter: usize,
}

/// Creates the queue pair of an identifier that is bound to a device.
pub(crate) fn create(link: &Link, device: &Device, options: &QueueOptions) -> io::Result<Queues> {
    let limits = &device.attributes;
    let most = u32::try_from(limits.max_qp_wr).unwrap_or(1);
    let sends = options.sends.clamp(4, most.max(4));
    let receives = options.receives.clamp(1, most.max(1));
    let completions = Completions::new(&link.host, device, sends + receives)?;
    let scatter = u32::try_from(limits.max_sge).unwrap_or(1).clamp(1, MAX_SCATTER);
    let mut attributes = sys::QueuePairAttributes {
        qp_context: null_mut(),
        send_cq: completions.cq,
        recv_cq: completions.cq,
        srq: null_mut(),
        cap: sys::QueueCapacities {
            max_send_wr: sends,
            max_recv_wr: receives,
            max_send_sge: scatter,
            max_recv_sge: 1,
            max_inline_data: 0,
        },
        qp_type: sys::QPT_RC,
        sq_sig_all: 0,
    };
    // SAFETY: the identifier is bound to the device whose protection domain
    // and queue these are.
    check(unsafe { (link.host.cm.create_qp)(link.id, device.pd, &raw mut attributes) })?;
    Ok(Queues { completions, send_depth: sends as usize, max_scatter: scatter as usize })
}
