//! Identifiers and events of the connection manager.

use crate::address;
use crate::host::Host;
use std::ffi::c_int;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::ptr::null_mut;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use zgate_rdma_sys as sys;

/// An event, copied out and acknowledged.
#[derive(Debug)]
pub(crate) struct Notice {
    /// Identifier of the event; a new one in a connection request.
    pub(crate) id: *mut sys::CmId,
    pub(crate) event: u32,
    pub(crate) status: i32,
    pub(crate) private_data: Vec<u8>,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
}

/// An identifier with an event channel of its own.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) host: Arc<Host>,
    channel: *mut sys::EventChannel,
    pub(crate) id: *mut sys::CmId,
    readable: Option<AsyncFd<OwnedFd>>,
}

// SAFETY: the connection manager may be called from all threads; the channel
// and the identifier belong to this value alone.
unsafe impl Send for Link {}
// SAFETY: shared references only read what the library locks itself.
unsafe impl Sync for Link {}

/// Makes a library's descriptor non-blocking, and registers a copy of it with
/// the runtime: the library may close its own at any time.
///
/// # Safety
/// `fd` is open.
pub(crate) unsafe fn watch_descriptor(fd: RawFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: open, says the caller; it stays so during this call.
    let copy = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()?;
    // SAFETY: flags of an open descriptor; both descriptors share them.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: as above.
    if flags < 0 || unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the copy is owned by what watches it, and closed with it only.
    Ok(unsafe { AsyncFd::register_with_interest(copy, Interest::READABLE) }?)
}

/// Converts the result of a C function that returns -1 and sets errno.
pub(crate) fn check(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl Link {
    /// Creates a channel without an identifier.
    fn channel(host: &Arc<Host>) -> io::Result<Self> {
        // SAFETY: takes nothing.
        let channel = unsafe { (host.cm.create_event_channel)() };
        if channel.is_null() {
            return Err(io::Error::last_os_error());
        }
        let host = Arc::clone(host);
        Ok(Self { host, channel, id: null_mut(), readable: None })
    }

    /// Registers the channel with this task's runtime, which delivers events
    /// from now on.
    pub(crate) fn watch(&mut self) -> io::Result<()> {
        // SAFETY: the channel is open, and with it its descriptor.
        self.readable = Some(unsafe { watch_descriptor((*self.channel).fd) }?);
        Ok(())
    }

    /// Creates an identifier.
    pub(crate) fn new(host: &Arc<Host>) -> io::Result<Self> {
        let mut link = Self::channel(host)?;
        // SAFETY: the channel is open; the identifier is written on success.
        check(unsafe {
            (host.cm.create_id)(link.channel, &raw mut link.id, null_mut(), sys::PS_TCP)
        })?;
        link.watch()?;
        Ok(link)
    }

    /// Takes over the identifier of a connection request. It is not registered
    /// with a runtime yet, because it may be moved to another one.
    pub(crate) fn adopt(host: &Arc<Host>, id: *mut sys::CmId) -> io::Result<Self> {
        let adopted = Self::channel(host).and_then(|link| {
            // SAFETY: both exist, and all events of the identifier that were
            // read are acknowledged.
            check(unsafe { (host.cm.migrate_id)(id, link.channel) }).map(|()| link)
        });
        match adopted {
            Ok(mut link) => {
                link.id = id;
                Ok(link)
            }
            Err(error) => {
                // SAFETY: the identifier has no other user.
                unsafe { (host.cm.destroy_id)(id) };
                Err(error)
            }
        }
    }

    /// Polls for the next event.
    pub(crate) fn poll_notice(&self, task: &mut Context<'_>) -> Poll<io::Result<Notice>> {
        let Some(readable) = &self.readable else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        loop {
            let mut guard = ready!(readable.poll_read_ready(task))?;
            match self.read_notice() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                result => return Poll::Ready(result),
            }
        }
    }

    fn read_notice(&self) -> io::Result<Notice> {
        let mut event = null_mut();
        // SAFETY: the channel is open; the event is written on success.
        check(unsafe { (self.host.cm.get_cm_event)(self.channel, &raw mut event) })?;
        // SAFETY: the event is ours until it is acknowledged.
        let notice = unsafe {
            let conn = &(*event).conn;
            let has_data = !conn.private_data.is_null() && carries_data((*event).event);
            let private_data = if has_data {
                let data = conn.private_data.cast::<u8>();
                std::slice::from_raw_parts(data, usize::from(conn.private_data_len)).to_vec()
            } else {
                Vec::new()
            };
            Notice {
                id: (*event).id,
                event: (*event).event,
                status: (*event).status,
                private_data,
                responder_resources: conn.responder_resources,
                initiator_depth: conn.initiator_depth,
            }
        };
        // SAFETY: read once, acknowledged once, not used afterwards.
        unsafe { (self.host.cm.ack_cm_event)(event) };
        Ok(notice)
    }

    /// Waits for the event `wanted`; any other event is returned as the reason
    /// of the refusal.
    pub(crate) async fn expect(&self, wanted: u32, within: Duration) -> Result<Notice, Refusal> {
        let next = std::future::poll_fn(|task| self.poll_notice(task));
        let notice = match tokio::time::timeout(within, next).await {
            Ok(notice) => notice?,
            Err(_) => return Err(Refusal::Io(io::ErrorKind::TimedOut.into())),
        };
        match notice.event {
            event if event == wanted => Ok(notice),
            sys::CM_REJECTED => Err(Refusal::Rejected(notice.private_data)),
            sys::CM_UNREACHABLE => Err(Refusal::Io(io::ErrorKind::HostUnreachable.into())),
            other => {
                let text = format!("connection manager event {other}, status {}", notice.status);
                Err(Refusal::Io(io::Error::new(io::ErrorKind::ConnectionAborted, text)))
            }
        }
    }

    /// Returns the peer's address, once there is one.
    pub(crate) fn peer_address(&self) -> Option<SocketAddr> {
        // SAFETY: the identifier lives as long as the link.
        address::from_c(unsafe { &(*self.id).dst_addr })
    }

    /// Returns the local address, once there is one.
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        // SAFETY: the identifier lives as long as the link.
        address::from_c(unsafe { &(*self.id).src_addr })
    }

    /// Returns the context of the device the identifier is bound to; null
    /// before that.
    pub(crate) fn context(&self) -> *mut sys::Context {
        // SAFETY: the identifier lives as long as the link.
        unsafe { (*self.id).verbs }
    }
}

/// Returns whether the event has the parameters of a connection.
fn carries_data(event: u32) -> bool {
    matches!(
        event,
        sys::CM_CONNECT_REQUEST | sys::CM_CONNECT_RESPONSE | sys::CM_ESTABLISHED | sys::CM_REJECTED
    )
}

/// Reason for which a connection was not established.
#[derive(Debug)]
pub(crate) enum Refusal {
    Rejected(Vec<u8>),
    Io(io::Error),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.readable = None;
        // SAFETY: the queue pair is gone, all events are acknowledged; the
        // identifier goes before its channel.
        unsafe {
            if !self.id.is_null() {
                (self.host.cm.destroy_id)(self.id);
            }
            (self.host.cm.destroy_event_channel)(self.channel);
        }
    }
}
