//! Events of whole devices: ports, and the devices themselves.

use crate::cm::{check, watch_descriptor};
use crate::host::{Device, Host};
use futures_util::stream::{self, BoxStream, StreamExt};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use zgate_fabric::DeviceEvent;
use zgate_rdma_sys as sys;

/// Interval of the search for devices added after the start.
const LOOK_PERIOD: Duration = Duration::from_secs(5);

/// Waits for events of all devices.
#[derive(Debug)]
pub(crate) struct DeviceWatch {
    host: Arc<Host>,
    watched: Vec<(&'static Device, AsyncFd<OwnedFd>)>,
    /// Events found by the last search.
    found: VecDeque<DeviceEvent>,
}

impl DeviceWatch {
    pub(crate) fn new(host: &Arc<Host>) -> io::Result<Self> {
        let mut watch =
            Self { host: Arc::clone(host), watched: Vec::new(), found: VecDeque::new() };
        watch.look()?;
        Ok(watch)
    }

    /// Registers devices that are not watched yet.
    fn look(&mut self) -> io::Result<()> {
        for device in self.host.devices() {
            if !self.watched.iter().any(|(known, _)| std::ptr::eq(*known, device)) {
                // SAFETY: the context is open, and with it this descriptor.
                let readable = unsafe { watch_descriptor((*device.context).async_fd) }?;
                self.watched.push((device, readable));
            }
        }
        Ok(())
    }

    /// Returns a stream of the events.
    pub(crate) fn events(self) -> BoxStream<'static, DeviceEvent> {
        stream::unfold(self, |mut watch| async move {
            let event = match watch.next().await {
                Ok(event) => event,
                Err(error) => {
                    tokio::time::sleep(LOOK_PERIOD).await;
                    DeviceEvent::Other(format!("cannot read device events: {error}"))
                }
            };
            Some((event, watch))
        })
        .boxed()
    }

    async fn next(&mut self) -> io::Result<DeviceEvent> {
        loop {
            if let Some(event) = self.found.pop_front() {
                return Ok(event);
            }
            let event = std::future::poll_fn(|task| self.poll_next(task));
            match tokio::time::timeout(LOOK_PERIOD, event).await {
                Ok(event) => return event,
                Err(_) => {
                    // Not on this thread, which serves connections as well.
                    let host = Arc::clone(&self.host);
                    let found = tokio::task::spawn_blocking(move || host.find_new()).await;
                    self.found.extend(found.map_err(io::Error::other)?);
                    self.look()?;
                }
            }
        }
    }

    fn poll_next(&mut self, task: &mut Context<'_>) -> Poll<io::Result<DeviceEvent>> {
        for at in 0..self.watched.len() {
            let (device, readable) = &self.watched[at];
            while let Poll::Ready(ready) = readable.poll_read_ready(task) {
                let event = match self.read(device) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        ready?.clear_ready();
                        continue;
                    }
                    // Reads fail for a device that was removed.
                    Err(_) => DeviceEvent::Gone { device: device.name.clone() },
                    Ok(event) => event,
                };
                if matches!(event, DeviceEvent::Gone { .. }) {
                    self.host.forget(device);
                    self.watched.remove(at);
                }
                return Poll::Ready(Ok(event));
            }
        }
        Poll::Pending
    }

    fn read(&self, device: &Device) -> io::Result<DeviceEvent> {
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
            sys::EVENT_DEVICE_FATAL => DeviceEvent::Gone { device },
            sys::EVENT_GID_CHANGE => DeviceEvent::AddressesChanged { device },
            number => DeviceEvent::Other(format!("{device}: event {number}")),
        })
    }
}
