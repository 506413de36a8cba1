//! Libraries and devices of this machine, opened once.

use std::ffi::{CStr, c_int};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use thiserror::Error;
use zgate_fabric::DeviceEvent;
use zgate_rdma_sys as sys;
use zgate_store::{Arena, BufferPool};

/// Reason for which RDMA is unavailable on this machine.
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
        /// Name of the device.
        device: String,
        /// Operation that failed.
        what: &'static str,
        /// Error of the operating system.
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

/// RDMA state of the process. Devices stay open while it runs.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) verbs: sys::Verbs,
    pub(crate) cm: sys::Cm,
    devices: Mutex<Vec<&'static Device>>,
    /// Devices that cannot be used, so that each is reported once. Locked, before
    /// the list of devices, while one is opened: none is opened twice, and the
    /// list is free.
    refused: Mutex<Vec<String>>,
    pub(crate) pool: BufferPool,
}

/// Returns the contexts of all present devices. They stay open while the
/// process runs, even those of removed devices: the list is never freed.
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

/// Drops the devices that are not among the present ones. Connections may still
/// use them: they stay open.
fn drop_absent<D>(
    devices: &mut Vec<D>,
    context_of: impl Fn(&D) -> *mut sys::Context,
    present: &[*mut sys::Context],
) {
    devices.retain(|device| present.contains(&context_of(device)));
}

/// Lists the names of the kernel's RDMA devices.
fn kernel_devices() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/class/infiniband").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Returns the name of the device of an open context.
fn name_of(verbs: &sys::Verbs, context: *mut sys::Context) -> String {
    // SAFETY: an open context has a device, and a device a name.
    let name = unsafe { CStr::from_ptr((verbs.get_device_name)((*context).device)) };
    name.to_string_lossy().into_owned()
}

impl Device {
    /// Opens a device for the life of the process.
    fn open(
        verbs: &sys::Verbs,
        context: *mut sys::Context,
        arena: Option<Arena>,
    ) -> Result<&'static Self, Unavailable> {
        let name = name_of(verbs, context);
        let failed = |what| {
            let (device, error) = (name.clone(), io::Error::last_os_error());
            Unavailable::Device { device, what, error }
        };
        // SAFETY: a structure of plain numbers, for which zeros are valid.
        let mut attributes: sys::DeviceAttributes = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open, the attributes writable.
        if unsafe { (verbs.query_device)(context, &raw mut attributes) } != 0 {
            return Err(failed("cannot read its limits"));
        }
        // SAFETY: the context is open.
        let pd = unsafe { (verbs.alloc_pd)(context) };
        if pd.is_null() {
            return Err(failed("cannot allocate a protection domain"));
        }
        let arena = match arena {
            Some(arena) => {
                advise_huge_pages(arena);
                let address = arena.address() as *mut _;
                // SAFETY: the arena is never freed. The device accesses only
                // buffers that were posted, whose owners have given them up.
                let mr =
                    unsafe { (verbs.reg_mr)(pd, address, arena.len(), sys::ACCESS_LOCAL_WRITE) };
                if mr.is_null() {
                    // First: the next call replaces the error.
                    let refused =
                        failed("cannot register the arena (is the memlock limit too low?)");
                    // SAFETY: nothing was made in this domain.
                    unsafe { (verbs.dealloc_pd)(pd) };
                    return Err(refused);
                }
                // SAFETY: not null; the region is never deregistered.
                Some((arena, unsafe { (*mr).lkey }))
            }
            None => None,
        };
        Ok(Box::leak(Box::new(Self { context, pd, name, attributes, arena })))
    }

    /// Returns the local key of memory in the arena.
    pub(crate) fn arena_key(&self, bytes: &[u8]) -> Option<u32> {
        self.arena.filter(|(arena, _)| arena.contains(bytes)).map(|(_, key)| key)
    }
}

/// Requests huge pages, so that the device needs fewer page table entries; a
/// failure is harmless.
fn advise_huge_pages(arena: Arena) {
    // SAFETY: advice about memory that is ours and stays mapped.
    unsafe { libc::madvise(arena.address() as *mut _, arena.len(), libc::MADV_HUGEPAGE) };
}

/// Opens the devices that can be used. The others are left to the search for new
/// devices, which tells of them: devices stay open, and each further attempt at all
/// of them would pin the arena of those that can be used once more.
///
/// # Errors
/// None can be used: the first reason.
fn open_usable(
    verbs: &sys::Verbs,
    contexts: &[*mut sys::Context],
    arena: Option<Arena>,
) -> Result<Vec<&'static Device>, Unavailable> {
    let (mut devices, mut reason) = (Vec::new(), None);
    for context in contexts {
        match Device::open(verbs, *context, arena) {
            Ok(device) => devices.push(device),
            Err(refused) => reason = reason.or(Some(refused)),
        }
    }
    if devices.is_empty() { Err(reason.unwrap_or(Unavailable::NoDevice)) } else { Ok(devices) }
}

impl Host {
    /// Loads the libraries, opens every device that can be used, and registers the
    /// pool's arena with each of them.
    ///
    /// # Errors
    /// [`Unavailable`], which names the missing part in one line.
    pub(crate) fn open(pool: BufferPool) -> Result<Self, Unavailable> {
        let verbs = sys::Verbs::load()?;
        let cm = sys::Cm::load()?;
        let devices = open_usable(&verbs, &contexts(&cm)?, pool.arena())?;
        let (devices, refused) = (Mutex::new(devices), Mutex::default());
        Ok(Self { verbs, cm, devices, refused, pool })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<&'static Device>> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_opening(&self) -> MutexGuard<'_, Vec<String>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the device of a context, if it is open already.
    pub(crate) fn known(&self, context: *mut sys::Context) -> Option<&'static Device> {
        self.lock().iter().find(|device| device.context == context).copied()
    }

    /// Returns all devices known so far.
    pub(crate) fn devices(&self) -> Vec<&'static Device> {
        self.lock().clone()
    }

    /// Returns the device that a connection identifier is bound to: a known
    /// one, or one added after the start, which the connection manager has
    /// opened. Blocks while a new device is opened: not for threads that serve connections.
    ///
    /// # Errors
    /// If the identifier is not bound, or the new device cannot be used.
    pub(crate) fn device_of(&self, context: *mut sys::Context) -> io::Result<&'static Device> {
        if context.is_null() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "bound to no device"));
        }
        if let Some(device) = self.known(context) {
            return Ok(device);
        }
        let refused = self.lock_opening();
        if let Some(device) = self.known(context) {
            return Ok(device);
        }
        // Get the list once more, so that this device stays open as well.
        let all = contexts(&self.cm).map_err(|reason| io::Error::other(reason.to_string()))?;
        if !all.contains(&context) {
            return Err(io::Error::new(io::ErrorKind::NotFound, "its device was removed"));
        }
        // Each further attempt would try to pin the arena once more.
        let name = name_of(&self.verbs, context);
        if refused.contains(&name) {
            let reason = format!(
                "RDMA device {name} could not be used when it was found, as the log says; \
                 remedy that, and add the device again or restart"
            );
            return Err(io::Error::other(reason));
        }
        // Nobody may watch for removed devices; memory is registered with the
        // first one.
        drop_absent(&mut self.lock(), |device| device.context, &all);
        let opened = Device::open(&self.verbs, context, self.pool.arena());
        let device = opened.map_err(|reason| io::Error::other(reason.to_string()))?;
        self.lock().push(device);
        Ok(device)
    }

    /// Stops using a device. Its connections may still use it: it stays open.
    pub(crate) fn forget(&self, gone: &Device) {
        self.lock().retain(|device| !std::ptr::eq(*device, gone));
    }

    /// Opens devices added since the last check. Blocks, as registering the arena
    /// takes long.
    pub(crate) fn find_new(&self) -> Vec<DeviceEvent> {
        let there = kernel_devices();
        let mut refused = self.lock_opening();
        refused.retain(|name| there.contains(name));
        let known = self.devices();
        let is_known = |name: &String| {
            refused.contains(name) || known.iter().any(|device| device.name == *name)
        };
        if there.iter().all(is_known) {
            return Vec::new();
        }
        let Ok(all) = contexts(&self.cm) else { return Vec::new() };
        let mut events = Vec::new();
        for context in all {
            if known.iter().any(|device| device.context == context) {
                continue;
            }
            match Device::open(&self.verbs, context, self.pool.arena()) {
                Ok(device) => {
                    self.lock().push(device);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::{c_char, c_void};
    use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

    #[test]
    fn a_device_that_is_not_present_is_dropped() {
        let context = std::ptr::without_provenance_mut::<sys::Context>;
        let mut devices = vec![context(1), context(2)];
        drop_absent(&mut devices, |device| *device, &[context(2), context(3)]);
        assert_eq!(devices, [context(2)]);
        // It was replaced by another one.
        drop_absent(&mut devices, |device| *device, &[context(3)]);
        assert!(devices.is_empty());
    }
    static CONTEXT: AtomicPtr<sys::Context> = AtomicPtr::new(std::ptr::null_mut());
    static DOMAINS: AtomicI32 = AtomicI32::new(0);
    static REGISTRATIONS: AtomicI32 = AtomicI32::new(0);

    extern "C" fn get_devices(count: *mut c_int) -> *mut *mut sys::Context {
        // SAFETY: the caller's number.
        unsafe { *count = 1 };
        CONTEXT.as_ptr()
    }

    extern "C" fn get_device_name(_: *mut sys::Device) -> *const c_char {
        c"late0".as_ptr()
    }

    extern "C" fn query_device(_: *mut sys::Context, _: *mut sys::DeviceAttributes) -> c_int {
        0
    }

    extern "C" fn alloc_pd(_: *mut sys::Context) -> *mut sys::ProtectionDomain {
        DOMAINS.fetch_add(1, Ordering::SeqCst);
        std::ptr::dangling_mut()
    }

    extern "C" fn dealloc_pd(_: *mut sys::ProtectionDomain) -> c_int {
        DOMAINS.fetch_sub(1, Ordering::SeqCst);
        0
    }

    /// A context without anything in it.
    fn a_context() -> *mut sys::Context {
        // SAFETY: numbers, pointers and absent functions, for which zeros are valid.
        let context: sys::Context = unsafe { std::mem::zeroed() };
        Box::leak(Box::new(context))
    }

    static BROKEN: AtomicPtr<sys::Context> = AtomicPtr::new(std::ptr::null_mut());

    extern "C" fn query_all_but_the_broken(
        context: *mut sys::Context,
        _: *mut sys::DeviceAttributes,
    ) -> c_int {
        c_int::from(context == BROKEN.load(Ordering::SeqCst))
    }

    extern "C" fn any_pd(_: *mut sys::Context) -> *mut sys::ProtectionDomain {
        std::ptr::dangling_mut()
    }

    /// Runs where rdma-core is installed: its other functions fill the table.
    #[test]
    fn a_device_that_cannot_be_used_keeps_out_no_other() {
        let Ok(verbs) = sys::Verbs::load() else { return };
        let query_device = query_all_but_the_broken;
        let verbs = sys::Verbs { get_device_name, query_device, alloc_pd: any_pd, ..verbs };
        let (good, broken) = (a_context(), a_context());
        BROKEN.store(broken, Ordering::SeqCst);
        for both in [[good, broken], [broken, good]] {
            let opened = open_usable(&verbs, &both, None).unwrap();
            let opened: Vec<_> = opened.iter().map(|device| device.context).collect();
            assert_eq!(opened, [good]);
        }
        let none = open_usable(&verbs, &[broken], None).unwrap_err().to_string();
        assert!(none.contains("late0: cannot read its limits"), "{none}");
        let nothing = open_usable(&verbs, &[], None);
        assert!(matches!(nothing, Err(Unavailable::NoDevice)));
    }

    /// Stands for a memlock limit that is too low.
    extern "C" fn reg_mr(
        _: *mut sys::ProtectionDomain,
        _: *mut c_void,
        _: usize,
        _: c_int,
    ) -> *mut sys::MemoryRegion {
        REGISTRATIONS.fetch_add(1, Ordering::SeqCst);
        std::ptr::null_mut()
    }

    /// Runs where rdma-core is installed: its other functions fill the tables.
    #[test]
    fn a_device_that_was_refused_is_not_tried_again_and_keeps_nothing() {
        let (Ok(verbs), Ok(cm)) = (sys::Verbs::load(), sys::Cm::load()) else { return };
        let verbs =
            sys::Verbs { get_device_name, query_device, alloc_pd, dealloc_pd, reg_mr, ..verbs };
        let cm = sys::Cm { get_devices, ..cm };
        let pool = BufferPool::with_arena(0, Box::leak(vec![0; 1 << 20].into_boxed_slice()));
        let (devices, refused) = (Mutex::default(), Mutex::default());
        let host = Host { verbs, cm, devices, refused, pool };
        let context = a_context();
        CONTEXT.store(context, Ordering::SeqCst);
        host.device_of(context).unwrap_err();
        let registrations = || REGISTRATIONS.load(Ordering::SeqCst);
        assert_eq!((DOMAINS.load(Ordering::SeqCst), registrations()), (0, 1));
        // As the search for new devices does.
        host.lock_opening().push("late0".to_owned());
        let error = host.device_of(context).unwrap_err();
        assert!(error.to_string().contains("late0"), "{error}");
        assert_eq!(registrations(), 1, "nothing is pinned for each request");
    }
}
