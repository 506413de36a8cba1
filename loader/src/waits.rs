//! Waiting for a server that asks for patience.

use crate::error::ClientError;
use std::time::Duration;
use tokio::time::Instant;

/// The first pause and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Growing pauses up to the client's patience.
pub(crate) struct Waits {
    until: Instant,
    pause: Duration,
}

impl Waits {
    pub(crate) fn new(patience: Duration) -> Self {
        Self { until: Instant::now() + patience, pause: FIRST_PAUSE }
    }

    /// Waits; fails with `error` when there is no patience left.
    pub(crate) async fn next(&mut self, error: ClientError) -> Result<(), ClientError> {
        if Instant::now() + self.pause >= self.until {
            return Err(error);
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}

/// Repeats a request while the server asks for patience.
pub(crate) async fn patiently<T>(
    patience: Duration,
    request: impl AsyncFn() -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    let mut waits = Waits::new(patience);
    loop {
        match request().await {
            Err(error) if error.asks_for_patience() => waits.next(error).await?,
            result => return result,
        }
    }
}
