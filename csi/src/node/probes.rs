//! Commands that ask storage how it is. One whose storage is gone may wait for ever, and
//! cannot be ended: there is one at a time for each thing, and few of them in all, so that
//! they leave the places for commands that change volumes.

use crate::limits::{MAX_PROBES, STATS_SECONDS};
use prost_types::Timestamp;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

/// Probes that run, by what they ask.
#[derive(Clone, Debug)]
pub(super) struct Probes {
    running: Arc<Mutex<BTreeMap<String, Begun>>>,
    free: Arc<Semaphore>,
}

/// Begin of a probe, for its limit and for people.
#[derive(Clone, Copy, Debug)]
struct Begun {
    at: Instant,
    clock: SystemTime,
}

/// Place of a probe; free again when it is dropped, which is after the end of its command.
#[derive(Debug)]
pub(super) struct Place {
    probes: Probes,
    asked: String,
    _free: OwnedSemaphorePermit,
}

/// Reason for which no probe may begin.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// The last one of the same thing has had its time, and still waits.
    Overdue {
        /// Begin of the last one.
        since: String,
    },
    /// The last one of the same thing has just begun, or too many others wait.
    Busy,
}

impl Probes {
    pub(super) fn new() -> Self {
        Self { running: Arc::default(), free: Arc::new(Semaphore::new(MAX_PROBES)) }
    }

    /// Takes the place for a probe; waits a while for the end of others.
    ///
    /// # Errors
    /// See [`NoPlace`].
    pub(super) async fn begin(&self, asked: &str) -> Result<Place, NoPlace> {
        if let Some(last) = self.running().get(asked) {
            return Err(last.no_place());
        }
        let free = timeout(STATS_SECONDS, Arc::clone(&self.free).acquire_owned()).await;
        let Ok(Ok(free)) = free else { return Err(NoPlace::Busy) };
        let mut running = self.running();
        // Another one may have begun meanwhile.
        if let Some(last) = running.get(asked) {
            return Err(last.no_place());
        }
        running.insert(asked.to_owned(), Begun { at: Instant::now(), clock: SystemTime::now() });
        drop(running);
        Ok(Place { probes: self.clone(), asked: asked.to_owned(), _free: free })
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<String, Begun>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Begun {
    fn no_place(self) -> NoPlace {
        if self.at.elapsed() < STATS_SECONDS {
            return NoPlace::Busy;
        }
        let Timestamp { seconds, .. } = Timestamp::from(self.clock);
        NoPlace::Overdue { since: Timestamp { seconds, nanos: 0 }.to_string() }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.probes.running().remove(&self.asked);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn there_is_one_probe_of_each_thing_and_few_in_all() {
        let probes = Probes::new();
        let first = probes.begin("0").await.unwrap();
        assert_eq!(probes.begin("0").await.unwrap_err(), NoPlace::Busy, "it has just begun");
        tokio::time::advance(STATS_SECONDS).await;
        assert!(matches!(probes.begin("0").await.unwrap_err(), NoPlace::Overdue { .. }));
        let mut others = Vec::new();
        for number in 1..MAX_PROBES {
            others.push(probes.begin(&number.to_string()).await.unwrap());
        }
        assert_eq!(probes.begin("one more").await.unwrap_err(), NoPlace::Busy);
        drop(first);
        assert!(probes.begin("0").await.is_ok());
    }
}
