//! Checks whether the callback address of a minor-0 client answers.

use super::channel::BackChannels;
use crate::v4::tables::callback_path::{Callback40, CallbackProbe, RunningProbe};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl BackChannels {
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
