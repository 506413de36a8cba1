//! Checks whether the callback address of a minor-0 client answers.

use super::channel::BackChannels;
use crate::v4::tables::callback_path::{Callback40, CallbackProbe, RunningProbe};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Time after which a client whose path is down is probed again, in seconds: the KDC was
/// silent, for example, or the client did not answer a recall in time.
const PROBE_AGAIN_SECONDS: u64 = 60;

impl BackChannels {
    /// Probes a client again, if it could have a delegation now.
    pub(crate) fn probe_again(
        &self,
        probe: &Arc<CallbackProbe>,
        callback: &Callback40,
        now_seconds: u64,
    ) {
        let probed = callback.probed_seconds.load(Ordering::Relaxed);
        if now_seconds >= probed + PROBE_AGAIN_SECONDS {
            callback.probed_seconds.store(now_seconds, Ordering::Relaxed);
            self.probe(probe, callback.clone());
        }
    }

    /// Probes a minor-0 client's callback address after the reply.
    pub(crate) fn probe(&self, probe: &Arc<CallbackProbe>, callback: Callback40) {
        if !probe.ask(callback) {
            return;
        }
        let (channels, mut running) = (self.clone(), RunningProbe::new(probe));
        self.runtime.spawn(Box::pin(async move {
            while let Some(callback) = running.next() {
                let answers = channels.answers(&callback).await;
                callback.up.store(answers, Ordering::Release);
            }
        }));
    }
}
