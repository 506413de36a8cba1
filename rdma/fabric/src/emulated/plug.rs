//! State of the emulated device: present or removed, working or hung.

use crate::device::DeviceEvent;
use futures_util::stream::{self, BoxStream, StreamExt};
use std::io;
use tokio::sync::{broadcast, watch};

/// Number of events kept for slow subscribers.
const KEPT_EVENTS: usize = 64;
/// Name of the device.
pub(crate) const DEVICE: &str = "emulated0";

/// State of the device, and its events.
#[derive(Debug)]
pub(crate) struct Plug {
    there: watch::Sender<bool>,
    takes: watch::Sender<bool>,
    events: broadcast::Sender<DeviceEvent>,
}

impl Default for Plug {
    fn default() -> Self {
        let (there, _) = watch::channel(true);
        let (takes, _) = watch::channel(true);
        let (events, _) = broadcast::channel(KEPT_EVENTS);
        Self { there, takes, events }
    }
}

impl Plug {
    /// Adds or removes the device.
    pub(crate) fn set(&self, there: bool) {
        if self.there.send_replace(there) != there {
            let device = DEVICE.to_owned();
            self.announce(match there {
                true => DeviceEvent::Arrived { device },
                false => DeviceEvent::Gone { device },
            });
        }
    }

    /// Sets whether its connections process frames of peers.
    pub(crate) fn set_taking(&self, takes: bool) {
        self.takes.send_replace(takes);
    }

    /// Returns a receiver of that setting.
    pub(crate) fn takes(&self) -> watch::Receiver<bool> {
        self.takes.subscribe()
    }

    pub(crate) fn announce(&self, event: DeviceEvent) {
        // There may be no subscriber.
        let _ = self.events.send(event);
    }

    /// Fails while there is no device.
    pub(crate) fn check(&self) -> io::Result<()> {
        match *self.there.borrow() {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::NotFound, "no emulated device")),
        }
    }

    /// Returns once the device is removed.
    pub(crate) fn gone(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut there = self.there.subscribe();
        async move {
            if there.wait_for(|there| !there).await.is_err() {
                // The fabric itself was dropped: its device can no longer be
                // removed.
                std::future::pending::<()>().await;
            }
        }
    }

    pub(crate) fn events(&self) -> BoxStream<'static, DeviceEvent> {
        let events = self.events.subscribe();
        let next = |mut events: broadcast::Receiver<DeviceEvent>| async move {
            loop {
                match events.recv().await {
                    Ok(event) => return Some((event, events)),
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return None,
                }
            }
        };
        stream::unfold(events, next).chain(stream::pending()).boxed()
    }
}
