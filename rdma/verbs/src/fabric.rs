//! The fabric over the devices of this machine.

use crate::establish;
use crate::host::{Host, Unavailable};
use crate::inspect::{self, PortReport};
use crate::memory::{Region, RemoteRegion};
use crate::watch::DeviceWatch;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use zgate_fabric::{
    Access, ConnectError, DeviceEvent, Established, Exposed, Fabric, Foreign, Listener, Setup,
    Window,
};
use zgate_rdma_sys as sys;
use zgate_store::{AlignedBuf, BufferPool};

/// Fabric of this machine's RDMA devices. Clones share it.
#[derive(Clone, Debug)]
pub struct VerbsFabric {
    pub(crate) host: Arc<Host>,
}

impl VerbsFabric {
    /// Loads the libraries, opens every device that can be used, and registers the
    /// pool's arena with each of them.
    ///
    /// # Errors
    /// [`Unavailable`], which names the missing part in one line.
    pub fn open(pool: BufferPool) -> Result<Self, Unavailable> {
        Ok(Self { host: Arc::new(Host::open(pool)?) })
    }

    /// Lists every port of every device, with its addresses.
    #[must_use]
    pub fn ports(&self) -> Vec<PortReport> {
        inspect::ports(&self.host)
    }
}

impl Fabric for VerbsFabric {
    fn listen(&self, address: SocketAddr) -> io::Result<Box<dyn Listener>> {
        establish::listen(&self.host, address)
    }

    fn connect(
        &self,
        to: SocketAddr,
        setup: Setup,
    ) -> BoxFuture<'static, Result<Established, ConnectError>> {
        Box::pin(establish::connect(Arc::clone(&self.host), to, setup))
    }

    /// Registers a buffer with the first device: on a host with several
    /// devices, peers reach the buffer only through connections of that device.
    fn expose(&self, buffer: AlignedBuf, access: Access) -> io::Result<Box<dyn Exposed>> {
        self.lend(buffer, access).map_err(|(error, _)| error)
    }

    fn lend(
        &self,
        buffer: AlignedBuf,
        access: Access,
    ) -> Result<Box<dyn Exposed>, (io::Error, AlignedBuf)> {
        let Some(device) = self.host.devices().first().copied() else {
            return Err((io::ErrorKind::NotFound.into(), buffer));
        };
        let read = if access.read { sys::ACCESS_REMOTE_READ } else { 0 };
        let write = if access.write { sys::ACCESS_REMOTE_WRITE } else { 0 };
        let flags = sys::ACCESS_LOCAL_WRITE | read | write;
        match Region::new(&self.host, device, &buffer, flags) {
            Ok(region) => Ok(Box::new(RemoteRegion::new(region, buffer))),
            Err(error) => Err((error, buffer)),
        }
    }

    /// Registers with the first device, as [`Fabric::expose`] does.
    fn expose_foreign(&self, memory: Arc<dyn Foreign>, range: Range<usize>) -> io::Result<Window> {
        let device = self.host.devices().first().copied();
        let device = device.ok_or(io::ErrorKind::NotFound)?;
        let (address, len) = (memory.address() + range.start as u64, range.len());
        let (region, how) = Region::of_foreign(&self.host, device, &*memory, range)?;
        // The region is dropped before the memory.
        Ok(Window::new((region.rkey(), address, len), how, (region, memory)))
    }

    fn send_with_invalidate(&self) -> bool {
        let extended = sys::DEVICE_MEM_MGT_EXTENSIONS;
        self.host.devices().iter().all(|d| d.attributes.device_cap_flags & extended != 0)
    }

    fn device_events(&self) -> BoxStream<'static, DeviceEvent> {
        match DeviceWatch::new(&self.host) {
            Ok(watch) => watch.events(),
            Err(error) => {
                let event = DeviceEvent::Other(format!("cannot watch RDMA devices: {error}"));
                stream::once(std::future::ready(event)).chain(stream::pending()).boxed()
            }
        }
    }

    /// Returns false: plain memory regions cannot be invalidated by a peer.
    fn remote_invalidation(&self) -> bool {
        false
    }
}
