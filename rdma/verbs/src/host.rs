//! The libraries and devices of this machine, opened once.

use crate::establish;
use crate::inspect::{self, PortReport};
use crate::memory::{Region, RemoteRegion};
use crate::watch::DeviceWatch;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};
use std::ffi::{CStr, c_int};
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use thiserror::Error;
use zgate_fabric::{
    Access, ConnectError, DeviceEvent, Established, Exposed, Fabric, Foreign, Listener, Setup,
    Window,
};
use zgate_rdma_sys as sys;
use zgate_store::{AlignedBuf, Arena, BufferPool};

/// Why there is no RDMA on this machine.
#[derive(Debug, Error)]
pub enum Unavailable {
    /// A library is missing.
    #[error("{0}; install rdma-core (Debian: librdmacm1 ibverbs-providers)")]
    Library(#[from] sys::LoadError),
    /// The connection manager does not start.
    #[error("the RDMA connection manager does not start: {0}; is rdma_ucm loaded?")]
    ConnectionManager(io::Error),
    /// There is no device.
    #[error("no RDMA device: `rdma link` shows none")]
    NoDevice,
    /// A device cannot be used.
    #[error("RDMA device {device}: {what}: {error}")]
    Device {
        /// Its name.
        device: String,
        /// What failed.
        what: &'static str,
        /// The system's reason.
        error: io::Error,
    },
}

/// One device with its protection domain.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) context: *mut sys::Context,
    pub(crate) pd: *mut sys::ProtectionDomain,
    pub(crate) name: String,
    pub(crate) attributes: sys::DeviceAttributes,
    /// The arena and its local key.
    arena: Option<(Arena, u32)>,
}

// SAFETY: devices and protection domains are never closed, the libraries may be
// called from all threads.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// Everything of this process that has to do with RDMA. Devices stay open
/// while it runs.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) verbs: sys::Verbs,
    pub(crate) cm: sys::Cm,
    devices: Mutex<Vec<&'static Device>>,
    /// Devices that cannot be used, so that it is said once.
    refused: Mutex<Vec<String>>,
    pub(crate) pool: BufferPool,
}

/// The fabric of this machine's RDMA devices. Cloning shares it.
#[derive(Clone, Debug)]
pub struct VerbsFabric {
    pub(crate) host: Arc<Host>,
}

impl VerbsFabric {
    /// Loads the libraries, opens every device, and registers the pool's arena
    /// with each of them.
    ///
    /// # Errors
    /// [`Unavailable`], which says in one line what is missing.
    pub fn open(pool: BufferPool) -> Result<Self, Unavailable> {
        let verbs = sys::Verbs::load()?;
        let cm = sys::Cm::load()?;
        let mut devices = Vec::new();
        for context in contexts(&cm)? {
            devices.push(Device::open(&verbs, context, pool.arena())?);
        }
        if devices.is_empty() {
            return Err(Unavailable::NoDevice);
        }
        let (devices, refused) = (Mutex::new(devices), Mutex::default());
        Ok(Self { host: Arc::new(Host { verbs, cm, devices, refused, pool }) })
    }

    /// Every port of every device, with its addresses.
    #[must_use]
    pub fn ports(&self) -> Vec<PortReport> {
        inspect::ports(&self.host)
    }
}

/// The contexts of all devices there are now. They stay open while the process
/// runs, even those of devices that are taken away: the list is never freed.
fn contexts(cm: &sys::Cm) -> Result<Vec<*mut sys::Context>, Unavailable> {
    let mut count: c_int = 0;
    // SAFETY: writes the count.
    let list = unsafe { (cm.get_devices)(&raw mut count) };
    if list.is_null() {
        return Err(match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENODEV) => Unavailable::NoDevice,
            error => Unavailable::ConnectionManager(error),
        });
    }
    let count = usize::try_from(count).unwrap_or_default();
    // SAFETY: the list has `count` entries.
    Ok((0..count).map(|index| unsafe { *list.add(index) }).collect())
}

/// The names of the devices the kernel has.
fn kernel_devices() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/class/infiniband").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

impl Device {
    /// Opened for as long as the process runs.
    fn open(
        verbs: &sys::Verbs,
        context: *mut sys::Context,
        arena: Option<Arena>,
    ) -> Result<&'static Self, Unavailable> {
        // SAFETY: an open context has a device, and a device a name.
        let name = unsafe {
            CStr::from_ptr((verbs.get_device_name)((*context).device))
                .to_string_lossy()
                .into_owned()
        };
        let failed = |what| {
            let (device, error) = (name.clone(), io::Error::last_os_error());
            Unavailable::Device { device, what, error }
        };
        // SAFETY: a structure of plain numbers, for which zeros are valid.
        let mut attributes: sys::DeviceAttributes = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open, the attributes writable.
        if unsafe { (verbs.query_device)(context, &raw mut attributes) } != 0 {
            return Err(failed("its limits cannot be read"));
        }
        // SAFETY: the context is open.
        let pd = unsafe { (verbs.alloc_pd)(context) };
        if pd.is_null() {
            return Err(failed("no protection domain"));
        }
        let arena = match arena {
            Some(arena) => {
                advise_huge_pages(arena);
                let address = arena.address() as *mut _;
                // SAFETY: the arena is never freed. The device touches only
                // buffers that were posted, whose owners have given them away.
                let mr =
                    unsafe { (verbs.reg_mr)(pd, address, arena.len(), sys::ACCESS_LOCAL_WRITE) };
                if mr.is_null() {
                    return Err(failed("the arena cannot be registered (memlock limit?)"));
                }
                // SAFETY: not null; the region is never deregistered.
                Some((arena, unsafe { (*mr).lkey }))
            }
            None => None,
        };
        Ok(Box::leak(Box::new(Self { context, pd, name, attributes, arena })))
    }

    /// The local key of memory in the arena.
    pub(crate) fn arena_key(&self, bytes: &[u8]) -> Option<u32> {
        self.arena.filter(|(arena, _)| arena.contains(bytes)).map(|(_, key)| key)
    }
}

/// Fewer page table entries for the device; without huge pages all goes on.
fn advise_huge_pages(arena: Arena) {
    // SAFETY: advice about memory that is ours and stays mapped.
    unsafe { libc::madvise(arena.address() as *mut _, arena.len(), libc::MADV_HUGEPAGE) };
}

impl Host {
    fn lock(&self) -> MutexGuard<'_, Vec<&'static Device>> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All devices known by now.
    pub(crate) fn devices(&self) -> Vec<&'static Device> {
        self.lock().clone()
    }

    /// The device a connection identifier is bound to: one that is known, or
    /// one that came after the start, which the connection manager has opened.
    ///
    /// # Errors
    /// When it is bound to none, or the new one cannot be used.
    pub(crate) fn device_of(&self, context: *mut sys::Context) -> io::Result<&'static Device> {
        if context.is_null() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "bound to no device"));
        }
        let mut devices = self.lock();
        if let Some(device) = devices.iter().find(|device| device.context == context) {
            return Ok(device);
        }
        // Once more, so that this one stays open as well.
        let all = contexts(&self.cm).map_err(|reason| io::Error::other(reason.to_string()))?;
        if !all.contains(&context) {
            return Err(io::Error::new(io::ErrorKind::NotFound, "its device is gone"));
        }
        let opened = Device::open(&self.verbs, context, self.pool.arena());
        let device = opened.map_err(|reason| io::Error::other(reason.to_string()))?;
        devices.push(device);
        Ok(device)
    }

    /// Uses a device no more. What is on it still can: it stays open.
    pub(crate) fn forget(&self, gone: &Device) {
        self.lock().retain(|device| !std::ptr::eq(*device, gone));
    }

    /// Opens devices that came since the last look.
    pub(crate) fn find_new(&self) -> Vec<DeviceEvent> {
        let there = kernel_devices();
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.retain(|name| there.contains(name));
        let mut devices = self.lock();
        let is_known = |name: &String| {
            refused.contains(name) || devices.iter().any(|device| device.name == *name)
        };
        if there.iter().all(is_known) {
            return Vec::new();
        }
        let Ok(all) = contexts(&self.cm) else { return Vec::new() };
        let mut events = Vec::new();
        for context in all {
            if devices.iter().any(|device| device.context == context) {
                continue;
            }
            match Device::open(&self.verbs, context, self.pool.arena()) {
                Ok(device) => {
                    devices.push(device);
                    events.push(DeviceEvent::Arrived { device: device.name.clone() });
                }
                Err(reason) => {
                    if let Unavailable::Device { device, .. } = &reason {
                        if refused.contains(device) {
                            continue;
                        }
                        refused.push(device.clone());
                    }
                    events.push(DeviceEvent::Other(reason.to_string()));
                }
            }
        }
        events
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

    /// Registers a buffer with the first device: on a host with several, peers
    /// reach it through connections of that device only.
    fn expose(&self, buffer: AlignedBuf, access: Access) -> io::Result<Box<dyn Exposed>> {
        self.lend(buffer, access).map_err(|(error, _)| error)
    }

    fn lend(
        &self,
        buffer: AlignedBuf,
        access: Access,
    ) -> Result<Box<dyn Exposed>, (io::Error, AlignedBuf)> {
        let Some(device) = self.host.lock().first().copied() else {
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

    /// With the first device, as [`Fabric::expose`].
    fn expose_foreign(&self, memory: Arc<dyn Foreign>, range: Range<usize>) -> io::Result<Window> {
        let device = self.host.lock().first().copied();
        let device = device.ok_or(io::ErrorKind::NotFound)?;
        let (address, len) = (memory.address() + range.start as u64, range.len());
        let (region, how) = Region::of_foreign(&self.host, device, &*memory, range)?;
        // The region goes before the memory does.
        Ok(Window::new((region.rkey(), address, len), how, (region, memory)))
    }

    fn send_with_invalidate(&self) -> bool {
        let extended = sys::DEVICE_MEM_MGT_EXTENSIONS;
        self.host.lock().iter().all(|d| d.attributes.device_cap_flags & extended != 0)
    }

    fn device_events(&self) -> BoxStream<'static, DeviceEvent> {
        match DeviceWatch::new(&self.host) {
            Ok(watch) => watch.events(),
            Err(error) => {
                let event = DeviceEvent::Other(format!("devices cannot be watched: {error}"));
                stream::once(std::future::ready(event)).chain(stream::pending()).boxed()
            }
        }
    }

    /// Plain memory regions cannot be invalidated by a peer.
    fn remote_invalidation(&self) -> bool {
        false
    }
}
