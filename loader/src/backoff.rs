//! Pauses between attempts while a server answers NFS4ERR_DELAY or NFS4ERR_GRACE.

use crate::error::ClientError;
use std::time::Duration;
use tokio::time::Instant;

/// First and longest pause.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Longest time limit; a longer one may be beyond what an instant can hold.
const LONGEST_LIMIT: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Returns the time limit, or the longest one.
pub(crate) fn bounded(limit: Duration) -> Duration {
    limit.min(LONGEST_LIMIT)
}

/// Growing pauses up to the client's time limit.
pub(crate) struct Backoff {
    until: Instant,
    pause: Duration,
}

impl Backoff {
    pub(crate) fn new(patience: Duration) -> Self {
        Self { until: Instant::now() + patience, pause: FIRST_PAUSE }
    }

    /// Pauses; fails with `error` when the time limit is reached.
    pub(crate) async fn next(&mut self, error: ClientError) -> Result<(), ClientError> {
        if Instant::now() + self.pause >= self.until {
            return Err(error);
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}

/// Repeats a request while the server returns NFS4ERR_DELAY.
pub(crate) async fn patiently<T>(
    patience: Duration,
    request: impl AsyncFn() -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    let mut backoff = Backoff::new(patience);
    loop {
        match request().await {
            Err(error) if error.asks_for_patience() => backoff.next(error).await?,
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_patience_is_bounded() {
        let backoff = Backoff::new(bounded(Duration::MAX));
        assert!(backoff.until > Instant::now() + LONGEST_PAUSE);
    }
}
