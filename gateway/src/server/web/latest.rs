//! A value that one thread collects, and that requests take from memory: a
//! request never waits longer than a limit, and once a collection is overdue,
//! requests do not wait at all.

use crate::observe::panics::caught_blocking;
use crate::server::limits::COLLECT_TIMEOUT;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// A collected value, and the time at which collecting it began.
pub(crate) struct Collected<T> {
    pub value: T,
    began: Instant,
}

impl<T> Collected<T> {
    /// Returns the age of the value.
    pub(crate) fn age(&self) -> Duration {
        self.began.elapsed()
    }
}

/// The latest value.
pub(crate) struct Latest<T> {
    wanted: SyncSender<()>,
    published: watch::Receiver<Option<Arc<Collected<T>>>>,
    /// Time of the first request for the collection that is under way.
    asked: Arc<Mutex<Option<Instant>>>,
}

impl<T: Send + Sync + 'static> Latest<T> {
    /// Starts the thread that collects, on demand, until the value is dropped.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn start(
        thread: &str,
        collect: impl FnMut() -> T + Send + 'static,
    ) -> io::Result<Self> {
        let (wanted, requests) = sync_channel(1);
        let (publish, published) = watch::channel(None);
        let asked = Arc::new(Mutex::new(None));
        let pending = Arc::clone(&asked);
        std::thread::Builder::new()
            .name(thread.to_owned())
            .spawn(move || work(collect, &requests, &publish, &pending))?;
        Ok(Self { wanted, published, asked })
    }

    /// Returns the last value, and has another one collected if it is older than
    /// `age`. Never waits.
    pub(crate) fn at_hand(&self, age: Duration) -> Option<Arc<Collected<T>>> {
        let now = Instant::now();
        let last = self.published.borrow().clone();
        if last.as_ref().is_none_or(|value| value.began + age < now) {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            if asked.is_none() {
                *asked = Some(now);
                let _ = self.wanted.try_send(());
            }
        }
        last
    }

    /// Returns a value whose collection began at most `age` ago. If there is none
    /// within the time limit, it returns the last one, which is older, or none.
    pub(crate) async fn within(&self, age: Duration) -> Option<Arc<Collected<T>>> {
        let now = Instant::now();
        let is_new = |value: &Option<Arc<Collected<T>>>| {
            value.as_ref().is_some_and(|value| value.began + age >= now)
        };
        let mut published = self.published.clone();
        if !is_new(&published.borrow()) {
            let asked = {
                let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
                *asked.get_or_insert(now)
            };
            // Full: a collection is wanted already, and has not begun.
            let _ = self.wanted.try_send(());
            let waited = published.wait_for(is_new);
            // Overdue: the last value is as good as it gets.
            let _ = timeout_at(asked + COLLECT_TIMEOUT, waited).await;
        }
        self.published.borrow().clone()
    }
}

fn work<T>(
    mut collect: impl FnMut() -> T,
    requests: &Receiver<()>,
    publish: &watch::Sender<Option<Arc<Collected<T>>>>,
    asked: &Mutex<Option<Instant>>,
) {
    while requests.recv().is_ok() {
        let began = Instant::now();
        let value = caught_blocking("a collection for the page and the API", &mut collect);
        *asked.lock().unwrap_or_else(PoisonError::into_inner) = None;
        // After a panic the last value stays, with its age, and who asks next has another try.
        if let Some(value) = value {
            publish.send_replace(Some(Arc::new(Collected { value, began })));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn a_value_is_collected_when_it_is_asked_for_and_serves_several_requests() {
        let mut count = 0;
        let latest = Latest::start("test", move || {
            count += 1;
            count
        })
        .unwrap();
        let long = Duration::from_secs(3600);
        assert_eq!(latest.within(long).await.unwrap().value, 1);
        for _ in 0..100 {
            assert_eq!(latest.within(long).await.unwrap().value, 1);
        }
        let newer = latest.within(Duration::ZERO).await.unwrap();
        assert!(newer.value > 1 && newer.age() < long);
    }

    #[tokio::test]
    async fn who_does_not_wait_gets_the_last_value_and_one_collection_runs() {
        let (release, hung) = mpsc::channel::<u32>();
        let latest = Latest::start("test", move || hung.recv().unwrap_or(0)).unwrap();
        for _ in 0..100 {
            assert!(latest.at_hand(Duration::ZERO).is_none());
        }
        release.send(7).unwrap();
        latest.published.clone().changed().await.unwrap();
        let long = Duration::from_secs(3600);
        assert_eq!(latest.at_hand(long).unwrap().value, 7);
        // Nobody has asked for another one.
        assert!(latest.asked.lock().unwrap().is_none());
        assert_eq!(latest.at_hand(Duration::ZERO).unwrap().value, 7);
        assert!(latest.asked.lock().unwrap().is_some());
        release.send(8).unwrap();
    }

    #[tokio::test]
    async fn a_collection_that_panics_is_not_the_last_one() {
        let mut count = 0;
        let collect = move || {
            count += 1;
            assert!(count > 1, "told to");
            count
        };
        let latest = Latest::start("test", collect).unwrap();
        let asked_again = async {
            loop {
                if let Some(found) = latest.at_hand(Duration::ZERO) {
                    return found.value;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let found = tokio::time::timeout(Duration::from_secs(30), asked_again).await;
        assert!(found.unwrap() > 1);
    }

    /// Time is virtual for requests: it passes only while they wait.
    #[tokio::test(start_paused = true)]
    async fn a_collection_that_hangs_is_waited_for_once() {
        let (release, hung) = mpsc::channel::<u32>();
        let latest = Latest::start("test", move || hung.recv().unwrap_or(0)).unwrap();
        let begun = Instant::now();
        assert!(latest.within(Duration::ZERO).await.is_none());
        assert_eq!(begun.elapsed(), COLLECT_TIMEOUT);
        for _ in 0..1000 {
            assert!(latest.within(Duration::ZERO).await.is_none());
        }
        assert_eq!(begun.elapsed(), COLLECT_TIMEOUT, "nobody else waits");
        // The storage answers: the value is there, and so are later ones.
        release.send(7).unwrap();
        let mut published = latest.published.clone();
        tokio::time::resume();
        published.changed().await.unwrap();
        assert_eq!(latest.published.borrow().as_ref().unwrap().value, 7);
        release.send(8).unwrap();
        release.send(9).unwrap();
        assert!(latest.within(Duration::ZERO).await.unwrap().value >= 8);
    }
}
