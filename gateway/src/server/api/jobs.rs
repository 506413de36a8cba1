//! Work that waits for storage, each piece on a thread of its own: a bounded
//! number, of each pool and of all, and a bounded time for its answer.

use crate::server::limits::{API_ANSWER_TIMEOUT, MAX_API_JOBS, MAX_API_JOBS_PER_POOL};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};
use zgate_api::{ApiError, ErrorCode};

/// Running jobs.
pub(super) struct Jobs {
    room: Arc<Semaphore>,
    most_per_pool: usize,
    /// Room of the pools that have jobs.
    pools: Mutex<HashMap<String, Arc<Semaphore>>>,
    answer_timeout: Duration,
}

impl Default for Jobs {
    fn default() -> Self {
        Self::with(MAX_API_JOBS, MAX_API_JOBS_PER_POOL, API_ANSWER_TIMEOUT)
    }
}

impl Jobs {
    fn with(most: usize, most_per_pool: usize, answer_timeout: Duration) -> Self {
        let (room, pools) = (Arc::new(Semaphore::new(most)), Mutex::default());
        Self { room, most_per_pool, pools, answer_timeout }
    }

    /// Returns the room of a pool: one that hangs keeps none of the others' requests waiting.
    fn room_of(&self, pool: String) -> Arc<Semaphore> {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        // Jobs, and who waits for a place, keep the others.
        pools.retain(|_, room| Arc::strong_count(room) > 1);
        let new = || Arc::new(Semaphore::new(self.most_per_pool));
        Arc::clone(pools.entry(pool).or_insert_with(new))
    }

    /// Waits for the places of a job: one of its pool's, then one of all.
    async fn places(
        &self,
        pool: Option<String>,
    ) -> Option<(Option<OwnedSemaphorePermit>, OwnedSemaphorePermit)> {
        let of_pool = match pool.map(|pool| self.room_of(pool)) {
            Some(room) => Some(room.acquire_owned().await.ok()?),
            None => None,
        };
        let of_all = Arc::clone(&self.room).acquire_owned().await.ok()?;
        Some((of_pool, of_all))
    }

    /// Runs a job, which concerns one pool or none of its own. If it takes too long, it goes on
    /// without its client, and counts until it has ended.
    ///
    /// # Errors
    /// The error of the job; [`ErrorCode::Busy`] if there is no room, or no end
    /// in time.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        pool: Option<String>,
        job: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let deadline = Instant::now() + self.answer_timeout;
        let busy = |message: &str| {
            let next = "send the same request again; if it stays so, see `zpool status`";
            ApiError::new(ErrorCode::Busy, message, next)
        };
        let Ok(Some(places)) = timeout_at(deadline, self.places(pool)).await else {
            return Err(busy("too many requests wait for storage"));
        };
        let (told, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name("zgate-api-job".to_owned());
        let started = thread.spawn(move || {
            let _places = places;
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

    fn tank() -> Option<String> {
        Some("tank".to_owned())
    }

    #[tokio::test]
    async fn what_hangs_is_answered_and_bounded() {
        let jobs = Jobs::with(1, 1, Duration::from_millis(50));
        let (release, held) = mpsc::channel::<()>();
        let hung = jobs.run(tank(), move || {
            let _ = held.recv();
            Ok(())
        });
        assert_eq!(hung.await.unwrap_err().code, ErrorCode::Busy);
        let full = jobs.run(None, || Ok(())).await.unwrap_err();
        assert!(full.message.contains("too many"), "{full}");
        drop(release);
        while jobs.room.available_permits() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let jobs = Jobs::with(1, 1, Duration::from_secs(60));
        jobs.run(tank(), || Ok(())).await.unwrap();
        let failed = jobs.run::<()>(None, || panic!("inside")).await.unwrap_err();
        assert_eq!(failed.code, ErrorCode::Storage);
    }

    #[tokio::test]
    async fn a_pool_that_hangs_takes_only_its_own_places() {
        let jobs = Jobs::with(3, 2, Duration::from_millis(50));
        let (release, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        for _ in 0..2 {
            let held = Arc::clone(&held);
            let hung = jobs.run(tank(), move || {
                let _ = held.lock().unwrap().recv();
                Ok(())
            });
            assert_eq!(hung.await.unwrap_err().code, ErrorCode::Busy);
        }
        let full = jobs.run(tank(), || Ok(())).await.unwrap_err();
        assert!(full.message.contains("too many"), "{full}");
        jobs.run(Some("other".to_owned()), || Ok(())).await.unwrap();
        jobs.run(None, || Ok(())).await.unwrap();
        drop(release);
        while jobs.room.available_permits() < 3 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        jobs.run(tank(), || Ok(())).await.unwrap();
        assert_eq!(jobs.pools.lock().unwrap().len(), 1, "idle pools are forgotten");
    }
}
