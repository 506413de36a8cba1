//! Checks whether the callback address of a minor-0 client answers.

use super::channel::BackChannels;
use crate::v4::Server;
use crate::v4::state::tables::Callback40;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The probes of one client: one at a time, then the latest address.
#[derive(Debug, Default)]
pub struct CallbackProbe(Mutex<Probe>);

#[derive(Debug, Default)]
struct Probe {
    running: bool,
    next: Option<Callback40>,
}

impl CallbackProbe {
    fn lock(&self) -> MutexGuard<'_, Probe> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests a probe of this address; false if one is running, which probes
    /// this address afterwards.
    fn ask(&self, callback: Callback40) -> bool {
        let mut probe = self.lock();
        probe.next = Some(callback);
        !std::mem::replace(&mut probe.running, true)
    }
}

/// A running probe; when dropped, the next one may start.
struct Running {
    probe: Arc<CallbackProbe>,
    ended: bool,
}

impl Running {
    /// The address to probe next; without one, the probe has ended.
    fn next(&mut self) -> Option<Callback40> {
        let mut probe = self.probe.lock();
        let next = probe.next.take();
        probe.running = next.is_some();
        self.ended = next.is_none();
        next
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            self.probe.lock().running = false;
        }
    }
}

impl BackChannels {
    /// Probes a minor-0 client's callback address after the reply.
    pub(crate) fn probe(&self, server: &Server, probe: &Arc<CallbackProbe>, callback: Callback40) {
        if !probe.ask(callback) {
            return;
        }
        let (channels, runtime) = (self.clone(), Arc::clone(&server.runtime));
        let mut running = Running { probe: Arc::clone(probe), ended: false };
        server.runtime.spawn(Box::pin(async move {
            while let Some(callback) = running.next() {
                let answers = channels.answers_null(&*runtime, &callback).await;
                callback.up.store(answers, Ordering::Release);
            }
        }));
    }
}
