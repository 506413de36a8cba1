//! Letting go of datasets on request, so that they can be unmounted, renamed,
//! destroyed or exported with their pool while clients use them.

use super::Follow;
use crate::lifecycle::run::Gateway;
use serde::Serialize;
use std::io;
use std::time::{Duration, Instant};
use zgate_control::DatasetName;

/// How long requests under way are waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest time anything is held back, in seconds.
const MAX_SECONDS: u64 = 3600;

/// What was let go of.
#[derive(Debug, Serialize)]
pub(crate) struct Released {
    /// Datasets that are exported or may be logical units.
    datasets: Vec<DatasetName>,
    /// Whether nothing of them is in use any more.
    free: bool,
    /// After so many seconds they are served again where they are then.
    seconds: u64,
}

impl Follow {
    /// Lets go of a dataset and everything below it. Clients are told to try
    /// again; logical units go. It is served again when it has moved, at
    /// [`Self::resume`], and at the latest after `seconds`.
    ///
    /// # Errors
    /// When it is no name, or datasets cannot be looked for.
    pub(crate) fn release(
        &self,
        gateway: &Gateway,
        name: &str,
        seconds: u64,
    ) -> io::Result<Released> {
        let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
        let name: DatasetName = name.parse().map_err(|error| invalid(format!("{error}")))?;
        if !(1..=MAX_SECONDS).contains(&seconds) {
            return Err(invalid(format!("{seconds} s: must be 1 to {MAX_SECONDS}")));
        }
        let plan = std::sync::Arc::clone(&self.state().plan);
        let found = self.find(&plan).map_err(|error| io::Error::other(error.to_string()))?;
        let until = Instant::now() + Duration::from_secs(seconds);
        let datasets = self.state().memory.hold(&name, &found.datasets, until);
        self.scan(gateway)?;
        let within = |guid: u64| {
            let mut all = found.datasets.iter();
            all.find(|dataset| dataset.guid == guid).map(|dataset| &dataset.name)
        };
        let mut free = true;
        for (guid, store) in gateway.followed() {
            match within(guid) {
                Some(dataset) if dataset.is_within(&name) => free &= store.hold(PATIENCE),
                // What is mounted below an export is part of it.
                Some(dataset) if name.is_within(dataset) => free &= store.let_go(PATIENCE),
                _ => {}
            }
        }
        gateway.release_paths();
        Ok(Released { datasets, free, seconds })
    }

    /// Serves again what was let go of.
    ///
    /// # Errors
    /// When it cannot be looked for.
    pub(crate) fn resume(&self, gateway: &Gateway, name: &str) -> io::Result<()> {
        let name: DatasetName = name
            .parse()
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, format!("{error}")))?;
        self.state().memory.resume(&name);
        self.scan(gateway).map(|_| ())
    }
}
