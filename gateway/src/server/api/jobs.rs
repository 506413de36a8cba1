//! Work that waits for storage, each piece on a thread of its own: a bounded
//! number, and a bounded time for its answer.

use crate::server::limits::{API_ANSWER_TIMEOUT, MAX_API_JOBS};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};
use zgate_api::{ApiError, ErrorCode};

/// Running jobs.
pub(super) struct Jobs {
    room: Arc<Semaphore>,
    answer_timeout: Duration,
}

impl Default for Jobs {
    fn default() -> Self {
        Self::with(MAX_API_JOBS, API_ANSWER_TIMEOUT)
    }
}

impl Jobs {
    fn with(most: usize, answer_timeout: Duration) -> Self {
        Self { room: Arc::new(Semaphore::new(most)), answer_timeout }
    }

    /// Runs a job. If it takes too long, it goes on without its client, and
    /// counts until it has ended.
    ///
    /// # Errors
    /// The error of the job; [`ErrorCode::Busy`] if there is no room, or no end
    /// in time.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let deadline = Instant::now() + self.answer_timeout;
        let busy = |message: &str| {
            let next = "send the same request again; if it stays so, see `zpool status`";
            ApiError::new(ErrorCode::Busy, message, next)
        };
        let room = Arc::clone(&self.room).acquire_owned();
        let Ok(Ok(permit)) = timeout_at(deadline, room).await else {
            return Err(busy("too many requests wait for storage"));
        };
        let (told, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name("zgate-api-job".to_owned());
        let started = thread.spawn(move || {
            let _permit = permit;
            // The client may have given up.
            let _ = told.send(job());
        });
        started.map_err(|error| busy(&format!("no thread: {error}")))?;
        match timeout_at(deadline, ended).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => {
                let next = "report this, with the gateway's log";
                Err(ApiError::new(ErrorCode::Storage, "the request failed inside", next))
            }
            Err(_) => Err(busy("storage has not answered in time; the request goes on")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn what_hangs_is_answered_and_bounded() {
        let jobs = Jobs::with(1, Duration::from_millis(50));
        let (release, held) = mpsc::channel::<()>();
        let hung = jobs.run(move || {
            let _ = held.recv();
            Ok(())
        });
        assert_eq!(hung.await.unwrap_err().code, ErrorCode::Busy);
        let full = jobs.run(|| Ok(())).await.unwrap_err();
        assert!(full.message.contains("too many"), "{full}");
        drop(release);
        while jobs.room.available_permits() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let jobs = Jobs::with(1, Duration::from_secs(60));
        jobs.run(|| Ok(())).await.unwrap();
        let failed = jobs.run::<()>(|| panic!("inside")).await.unwrap_err();
        assert_eq!(failed.code, ErrorCode::Storage);
    }
}
