//! One change of a volume at a time. A second one is refused (ABORTED), and the caller repeats
//! it. Those that many nodes or pods ask for at the same moment wait for each other, for a
//! bounded time.

use crate::status::busy;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;
use tonic::Status;

/// Keys with a change under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Locks {
    held: Arc<Mutex<HashSet<String>>>,
    released: Arc<Notify>,
}

/// A key; released on drop.
#[derive(Debug)]
pub(crate) struct Lock {
    locks: Locks,
    key: String,
}

impl Locks {
    /// Takes a key.
    ///
    /// # Errors
    /// ABORTED if it is held.
    pub(crate) fn take(&self, key: impl Into<String>) -> Result<Lock, Status> {
        let key = key.into();
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if !held.insert(key.clone()) {
            return Err(busy(&key));
        }
        Ok(Lock { locks: self.clone(), key })
    }

    /// Takes a key, and waits until it is released if it is held.
    ///
    /// # Errors
    /// ABORTED if that takes longer than `limit`.
    pub(crate) async fn take_within(&self, key: &str, limit: Duration) -> Result<Lock, Status> {
        let taken = timeout(limit, async {
            loop {
                // Before the attempt: a release after it is not missed.
                let released = self.released.notified();
                if let Ok(lock) = self.take(key) {
                    return lock;
                }
                released.await;
            }
        });
        taken.await.map_err(|_| busy(key))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.locks.held.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
        // Each looks for its own key.
        self.locks.released.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_held_once_and_released() {
        let locks = Locks::default();
        let first = locks.take("a").unwrap();
        assert_eq!(locks.take("a").unwrap_err().code(), tonic::Code::Aborted);
        assert!(locks.take("b").is_ok());
        drop(first);
        assert!(locks.take("a").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_is_released_in_time_is_waited_for() {
        let locks = Locks::default();
        let limit = Duration::from_secs(10);
        let first = locks.take("a").unwrap();
        let late = locks.take_within("a", limit).await;
        assert_eq!(late.unwrap_err().code(), tonic::Code::Aborted);
        let one = || async { locks.take_within("a", limit).await.map(drop) };
        let (second, third, ()) = tokio::join!(one(), one(), async {
            // The release of another key is none of this one.
            drop(locks.take("b"));
            tokio::time::sleep(limit / 2).await;
            drop(first);
        });
        assert!(second.is_ok() && third.is_ok());
        assert!(locks.take_within("a", Duration::ZERO).await.is_ok(), "it is free");
    }
}
