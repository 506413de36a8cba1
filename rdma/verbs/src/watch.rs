//! Events of whole devices: ports and the devices themselves.

use crate::cm::{check, watch_descriptor};
use crate::host::{Device, Host};
use futures_util::stream::{self, BoxStream, StreamExt};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use zgate_rdma_sys as sys;

/// How often devices are looked for that came after the start.
const LOOK_PERIOD: Duration = Duration::from_secs(5);

/// What happened to a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeviceEvent {
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

impl fmt::Display for DeviceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PortUp { device, port } => write!(f, "{device}: port {port} is up"),
            Self::PortDown { device, port } => write!(
                f,
                "{device}: port {port} is down; its clients come back when it does, or over TCP"
            ),
            Self::Failed { device } => write!(f, "{device}: failed or taken away"),
            Self::Other { device, number } => write!(f, "{device}: event {number}"),
        }
    }
}

/// Waits for events of all devices.
#[derive(Debug)]
pub(crate) struct DeviceWatch {
    host: Arc<Host>,
    watched: Vec<(&'static Device, AsyncFd<OwnedFd>)>,
}

impl DeviceWatch {
    pub(crate) fn new(host: &Arc<Host>) -> io::Result<Self> {
        let mut watch = Self { host: Arc::clone(host), watched: Vec::new() };
        watch.look()?;
        Ok(watch)
    }

    /// Watches devices that are not watched yet.
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

    /// The events as they come, in words.
    pub(crate) fn lines(self) -> BoxStream<'static, String> {
        stream::unfold(self, |mut watch| async move {
            let line = match watch.next().await {
                Ok(event) => event.to_string(),
                Err(error) => {
                    tokio::time::sleep(LOOK_PERIOD).await;
                    format!("events of devices cannot be read: {error}")
                }
            };
            Some((line, watch))
        })
        .boxed()
    }

    async fn next(&mut self) -> io::Result<DeviceEvent> {
        loop {
            let event = std::future::poll_fn(|task| self.poll_next(task));
            match tokio::time::timeout(LOOK_PERIOD, event).await {
                Ok(event) => return event,
                Err(_) => self.look()?,
            }
        }
    }

    fn poll_next(&mut self, task: &mut Context<'_>) -> Poll<io::Result<DeviceEvent>> {
        for (device, readable) in &self.watched {
            while let Poll::Ready(ready) = readable.poll_read_ready(task) {
                match self.read(device) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        ready?.clear_ready();
                    }
                    result => return Poll::Ready(result),
                }
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
            sys::EVENT_DEVICE_FATAL => DeviceEvent::Failed { device },
            number => DeviceEvent::Other { device, number },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_name_the_device() {
        let device = "rxe0".to_owned();
        let down = DeviceEvent::PortDown { device: device.clone(), port: 1 };
        assert!(down.to_string().starts_with("rxe0: port 1 is down"));
        let other = DeviceEvent::Other { device, number: 11 };
        assert_eq!(other.to_string(), "rxe0: event 11");
    }
}
