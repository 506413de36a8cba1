//! The emulated device as a whole: there or taken away, working or hung.

use crate::device::DeviceEvent;
use futures_util::stream::{self, BoxStream, StreamExt};
use std::io;
use tokio::sync::{broadcast, watch};

/// Events kept for who has not looked yet.
const KEPT_EVENTS: usize = 64;
/// The device's name.
pub(crate) const DEVICE: &str = "emulated0";

/// Whether the device is there, and what happens to it.
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
    /// Puts the device in place or takes it away.
    pub(crate) fn set(&self, there: bool) {
        if self.there.send_replace(there) != there {
            let device = DEVICE.to_owned();
            self.announce(match there {
                true => DeviceEvent::Arrived { device },
                false => DeviceEvent::Gone { device },
            });
        }
    }

    /// Whether its connections take in what peers send.
    pub(crate) fn set_taking(&self, takes: bool) {
        self.takes.send_replace(takes);
    }

    /// What says whether they do.
    pub(crate) fn takes(&self) -> watch::Receiver<bool> {
        self.takes.subscribe()
    }

    pub(crate) fn announce(&self, event: DeviceEvent) {
        // Nobody need listen.
        let _ = self.events.send(event);
    }

    /// An error while there is no device.
    pub(crate) fn check(&self) -> io::Result<()> {
        match *self.there.borrow() {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::NotFound, "no emulated device")),
        }
    }

    /// Returns once the device is taken away.
    pub(crate) fn gone(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut there = self.there.subscribe();
        async move {
            if there.wait_for(|there| !there).await.is_err() {
                // The fabric itself is gone: nobody can take its device away.
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
