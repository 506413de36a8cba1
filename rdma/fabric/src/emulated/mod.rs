//! Emulation over TCP. The peer's "device" is a task that executes incoming
//! frames; keys, bounds, rights, receives and order are checked as a device
//! checks them. Two things are simpler: the side that lacks a receive counts
//! the sender's retries, with its own [`crate::QueueOptions::rnr_retries`], and
//! an RDMA Read completes before anything posted behind it.

mod connection;
mod frame;
mod handshake;
mod memory;
mod nic;
mod plug;

use crate::device::DeviceEvent;
use crate::foreign::{Foreign, Window};
use crate::traits::{Access, ConnectError, Established, Exposed, Fabric, Listener, Request, Setup};
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use memory::Memory;
use plug::Plug;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use zgate_store::AlignedBuf;

/// A fabric over TCP. Clones share the registered memory, as connections of one
/// protection domain do.
#[derive(Clone, Debug, Default)]
pub struct EmulatedFabric {
    memory: Arc<Memory>,
    host_only: bool,
    plug: Arc<Plug>,
    from: Option<IpAddr>,
}

impl EmulatedFabric {
    /// Connects from this address of the machine, as if from another host.
    #[must_use]
    pub fn from_address(self, address: IpAddr) -> Self {
        Self { from: Some(address), ..self }
    }

    /// Removes the device: its connections and listeners end, and new ones are
    /// impossible until [`Self::plug`].
    pub fn unplug(&self) {
        self.plug.set(false);
    }

    /// Adds the device again.
    pub fn plug(&self) {
        self.plug.set(true);
    }

    /// Stops processing frames of peers, as if the machine behind the device
    /// had hung, until [`Self::take_again`]. Posted work is still sent.
    pub fn stop_taking(&self) {
        self.plug.set_taking(false);
    }

    /// Resumes processing, starting with the frames that arrived meanwhile.
    pub fn take_again(&self) {
        self.plug.set_taking(true);
    }

    /// Reports that the device's port went up or down. As on a device, nothing
    /// else changes: connections end by their retries.
    pub fn set_port(&self, up: bool) {
        let device = plug::DEVICE.to_owned();
        self.plug.announce(match up {
            true => DeviceEvent::PortUp { device, port: 1 },
            false => DeviceEvent::PortDown { device, port: 1 },
        });
    }

    /// Creates a fabric without registered memory.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a fabric that cannot reach the memory of other devices.
    #[must_use]
    pub fn of_host_memory() -> Self {
        Self { host_only: true, ..Self::default() }
    }

    /// Returns the number of buffers that peers can use now.
    #[must_use]
    pub fn exposed_buffers(&self) -> usize {
        self.memory.len()
    }
}

impl Fabric for EmulatedFabric {
    fn listen(&self, address: SocketAddr) -> io::Result<Box<dyn Listener>> {
        self.plug.check()?;
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        let (memory, plug) = (Arc::clone(&self.memory), Arc::clone(&self.plug));
        Ok(Box::new(EmulatedListener { listener, address, memory, plug }))
    }

    fn connect(
        &self,
        to: SocketAddr,
        setup: Setup,
    ) -> BoxFuture<'static, Result<Established, ConnectError>> {
        let (memory, plug) = (Arc::clone(&self.memory), Arc::clone(&self.plug));
        Box::pin(handshake::connect(self.from, to, setup, memory, plug))
    }

    fn expose(&self, buffer: AlignedBuf, access: Access) -> io::Result<Box<dyn Exposed>> {
        Ok(Box::new(memory::expose(&self.memory, buffer, access)))
    }

    fn expose_foreign(&self, memory: Arc<dyn Foreign>, range: Range<usize>) -> io::Result<Window> {
        if self.host_only {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "host memory only"));
        }
        // Same order as with a real driver: dmabuf first.
        let how = if memory.dmabuf(range.clone()).is_ok() { "dmabuf" } else { "peer memory" };
        let exposed = memory::expose_foreign(&self.memory, memory, range);
        Ok(Window::new((exposed.rkey(), exposed.address(), exposed.len()), how, exposed))
    }

    fn send_with_invalidate(&self) -> bool {
        true
    }

    fn device_events(&self) -> BoxStream<'static, DeviceEvent> {
        self.plug.events()
    }

    fn remote_invalidation(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct EmulatedListener {
    listener: tokio::net::TcpListener,
    address: SocketAddr,
    memory: Arc<Memory>,
    plug: Arc<Plug>,
}

impl Listener for EmulatedListener {
    fn local_address(&self) -> SocketAddr {
        self.address
    }

    fn accept(&mut self) -> BoxFuture<'_, io::Result<Box<dyn Request>>> {
        Box::pin(async {
            loop {
                let (stream, from) = tokio::select! {
                    accepted = self.listener.accept() => accepted?,
                    () = self.plug.gone() => {
                        let text = "the device of the listener was removed";
                        return Err(io::Error::new(io::ErrorKind::NotConnected, text));
                    }
                };
                let (memory, plug) = (Arc::clone(&self.memory), Arc::clone(&self.plug));
                // A connection without a valid handshake is dropped.
                if let Ok(request) = handshake::receive_request(stream, from, memory, plug).await {
                    return Ok(Box::new(request) as Box<dyn Request>);
                }
            }
        })
    }
}
