//! Events of whole devices: ports and the devices themselves.

use crate::cm::{check, watch_descriptor};
use crate::host::Host;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::unix::AsyncFd;
use zgate_rdma_sys as sys;

/// What happened to a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    /// A port came up.
    PortUp {
        /// The device.
        device: String,
        /// The port's number.
        port: u8,
    },
    /// A port went down; connections over it end when their retries do.
    PortDown {
        /// The device.
        device: String,
        /// The port's number.
        port: u8,
    },
    /// The device failed.
    Failed {
        /// The device.
        device: String,
    },
    /// Anything else, by the number of the verbs API.
    Other {
        /// The device.
        device: String,
        /// The number.
        number: u32,
    },
}

/// Waits for events of all devices.
#[derive(Debug)]
pub struct DeviceWatch {
    host: Arc<Host>,
    readable: Vec<AsyncFd<OwnedFd>>,
}

impl DeviceWatch {
    pub(crate) fn new(host: &Arc<Host>) -> io::Result<Self> {
        let watch = |device: &crate::host::Device| {
            // SAFETY: the context is open, and with it this descriptor.
            unsafe { watch_descriptor((*device.context).async_fd) }
        };
        let readable = host.devices.iter().map(watch).collect::<io::Result<_>>()?;
        Ok(Self { host: Arc::clone(host), readable })
    }

    /// The next event.
    ///
    /// # Errors
    /// The system's.
    pub async fn next(&mut self) -> io::Result<DeviceEvent> {
        std::future::poll_fn(|task| self.poll_next(task)).await
    }

    fn poll_next(&mut self, task: &mut Context<'_>) -> Poll<io::Result<DeviceEvent>> {
        for (index, readable) in self.readable.iter().enumerate() {
            while let Poll::Ready(ready) = readable.poll_read_ready(task) {
                match self.read(index) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        ready?.clear_ready();
                    }
                    result => return Poll::Ready(result),
                }
            }
        }
        Poll::Pending
    }

    fn read(&self, index: usize) -> io::Result<DeviceEvent> {
        let device = &self.host.devices[index];
        let mut event = sys::AsyncEvent { element: std::ptr::null_mut(), event_type: 0 };
        // SAFETY: the context is open, its descriptor does not block.
        check(unsafe { (self.host.verbs.get_async_event)(device.context, &raw mut event) })?;
        // For port events the element is the port's number, an int.
        let port = (event.element as usize & 0xff) as u8;
        // SAFETY: taken once, acknowledged once.
        unsafe { (self.host.verbs.ack_async_event)(&raw mut event) };
        let device = device.name.clone();
        Ok(match event.event_type {
            sys::EVENT_PORT_ACTIVE => DeviceEvent::PortUp { device, port },
            sys::EVENT_PORT_ERR => DeviceEvent::PortDown { device, port },
            sys::EVENT_DEVICE_FATAL => DeviceEvent::Failed { device },
            number => DeviceEvent::Other { device, number },
        })
    }
}
